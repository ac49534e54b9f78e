"""Geometries of which a slice can be measured without a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.config import ModelConfig, MTPConfig

INKLING_SMALL: Mapping[str, Any] = {
    "model_type": "inkling_mm_model",
    "eos_token_id": 200006,
    "text_config": {
        "hidden_size": 4096,
        "num_hidden_layers": 42,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "swa_num_attention_heads": 32,
        "swa_num_key_value_heads": 8,
        "swa_head_dim": 128,
        "sliding_window_size": 512,
        "local_layer_ids": [i for i in range(42) if i % 6 != 5],
        "d_rel": 16,
        "rel_extent": 1024,
        "log_scaling_n_floor": 128000,
        "log_scaling_alpha": 0.1,
        "sconv_kernel_size": 4,
        "use_embed_norm": True,
        "rms_norm_eps": 1e-6,
        "dense_mlp_idx": 2,
        "dense_intermediate_size": 16384,
        "intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 6,
        "n_shared_experts": 2,
        "route_scale": 8.0,
        "logits_mup_width_multiplier": 16.0,
        "vocab_size": 201024,
        "unpadded_vocab_size": 200058,
        "model_max_length": 1048576,
    },
    "mtp_config": {
        "num_nextn_predict_layers": 8,
        "chain_hidden_post_norm": False,
        "local_layer_ids": [0, 2, 4, 5, 6, 7],
    },
}
"""What decides the shapes in config.json of thinkingmachines/Inkling-Small, in its spelling."""

_SMALL_TEXT: Mapping[str, Any] = INKLING_SMALL["text_config"]
TINY: Mapping[str, Any] = {
    **INKLING_SMALL,
    "eos_token_id": 1000,
    "text_config": {
        **_SMALL_TEXT,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 32,
        "sliding_window_size": 16,
        "rel_extent": 32,
        "dense_intermediate_size": 256,
        "intermediate_size": 64,
        "n_routed_experts": 16,
        "num_experts_per_tok": 2,
        "vocab_size": 1024,
        "unpadded_vocab_size": 1001,
    },
}
"""The same kinds of layers in the same order, each a few kilobytes, to try the command itself."""

_GROUP = 64


def slice_config(geometry: Mapping[str, Any], *, layers: int, depths: int, bits: int | None) -> ModelConfig:
    """The first layers of a geometry, its first global one among them, and the first MTP blocks.

    Inkling-Small's global layers are every sixth, so that 4 layers are 0, 1, 2 and 5, and 6 are 0 to 5.

    Args:
        bits: every matrix is packed (affine, groups of 64), None for none.
    """
    whole = ModelConfig.from_dict(geometry)
    text, mtp = whole.text, whole.mtp
    first_global = text.sliding.index(False)
    kept = sorted({*range(layers - 1), max(layers - 1, first_global)})
    return replace(
        whole,
        text=replace(
            text,
            sliding=tuple(text.sliding[i] for i in kept),
            dense=tuple(text.dense[i] for i in kept),
            mup_multiplier=1.0,  # logits as far apart as random ones can be, see `engine.decode.acceptance.tie_margin`
        ),
        mtp=None if mtp is None else MTPConfig(mtp.sliding[:depths], mtp.chain_norm),
        quantization=None if bits is None else {"bits": bits, "group_size": _GROUP, "mode": "affine"},
    )

"""What a checkpoint's `config.json` says, in one spelling.

Three spellings are read: the published one, the one that transformers saves, and the text-only `inkling_text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from engine.errors import ConfigError
from engine.fields import Fields, read_object

FAMILIES = ("inkling_mm_model", "inkling", "inkling_text")
"""Values of `model_type` that name a first-generation Inkling; `inkling` is what older MLX conversions wrote."""
DRAFTER = "inkling_mtp"
"""`model_type` of a folder with nothing but a head, as mlx-vlm writes it; its text_config is its model's."""
_KINDS = {"hybrid_sliding": True, "hybrid": False}
_MLP_KINDS = {"dense": True, "sparse": False}


@dataclass(frozen=True, slots=True)
class AttentionGeometry:
    """Shape of the attention of one layer kind (global or sliding)."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None
    """Keys a query sees, itself included; None on global layers."""
    extent: int
    """Columns of the relative bias bank: distances 0 .. extent - 1 carry a bias."""


@dataclass(frozen=True, slots=True)
class TextConfig:
    """Geometry and constants of the decoder."""

    vocab_size: int
    """Rows of the embedding and of the LM head, padding included."""
    unpadded_vocab_size: int
    hidden_size: int
    sliding: tuple[bool, ...]
    """Per layer: True where attention is windowed. Its length is the number of layers."""
    dense: tuple[bool, ...]
    """Per layer: True where the MLP is dense, False where it is a mixture of experts."""
    global_attention: AttentionGeometry
    sliding_attention: AttentionGeometry
    d_rel: int
    log_scaling_floor: int | None
    log_scaling_alpha: float
    conv_kernel: int
    rms_norm_eps: float
    embed_norm: bool
    dense_width: int
    expert_width: int
    num_experts: int
    experts_per_token: int
    num_shared_experts: int
    route_scale: float
    mup_multiplier: float
    max_positions: int

    @property
    def num_layers(self) -> int:
        return len(self.sliding)

    def attention(self, sliding: bool) -> AttentionGeometry:
        return self.sliding_attention if sliding else self.global_attention


@dataclass(frozen=True, slots=True)
class MTPConfig:
    """The multi-token-prediction head that the config announces."""

    sliding: tuple[bool, ...]
    """Per depth: True where the block's attention is windowed. Its length is the depth n."""
    chain_norm: bool

    @property
    def depths(self) -> int:
        return len(self.sliding)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A validated `config.json`."""

    model_type: str
    text: TextConfig
    mtp: MTPConfig | None
    eos_token_ids: tuple[int, ...]
    dtype: str | None
    """`torch_dtype`/`dtype` of the file, as written, or None."""
    quantization: dict[str, Any] | None
    """The MLX `quantization` block or the ModelOpt one, unparsed; see `engine.weights`."""

    @classmethod
    def from_directory(cls, directory: Path) -> ModelConfig:
        """Read `config.json`, with `generation_config.json` (stop ids) and `hf_quant_config.json` beside it.

        Raises:
            ConfigError: the directory or the file is missing or unreadable, or a value is wrong.
        """
        path = _config_path(directory)
        raw = read_object(path)
        generation, modelopt = path.with_name("generation_config.json"), path.with_name("hf_quant_config.json")
        if raw.get("eos_token_id") is None and generation.is_file():
            raw["eos_token_id"] = read_object(generation).get("eos_token_id")
        if raw.get("quantization") is None and raw.get("quantization_config") is None and modelopt.is_file():
            raw["quantization_config"] = read_object(modelopt)
        return cls.from_dict(raw, str(path))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> ModelConfig:
        """Validate a parsed `config.json`; `where` names it in messages. Raises `ConfigError`."""
        top = Fields(raw, where)
        model_type = raw.get("model_type")
        if model_type not in (*FAMILIES, DRAFTER):
            name = "a file without model_type" if model_type is None else f"the model family {model_type!r}"
            raise ConfigError(
                f"{where} describes {name}; Inkstand runs Inkling checkpoints ({', '.join(FAMILIES)}).",
                "Choose a checkpoint of the first Inkling generation, such as Inkling or Inkling-Small.",
            )
        nested = top.nested("text_config")
        if nested is None and model_type != "inkling_text":
            raise top.missing("text_config", accepted="an object")
        fields = nested or top
        text = _text_config(fields)
        source = top if top.has("eos_token_id") else fields
        dtype = (top if top.has("dtype", "torch_dtype") else fields).raw("dtype", "torch_dtype")[1]
        if dtype is not None and not isinstance(dtype, str):
            raise top.wrong("dtype", dtype, "the name of a number format")
        return cls(
            model_type=model_type,
            text=text,
            mtp=_mtp_config(top.nested("mtp_config"), fields),
            eos_token_ids=_eos_token_ids(source, text.vocab_size),
            dtype=dtype,
            quantization=_quantization(top),
        )


def family_of(directory: Path) -> str | None:
    """`model_type` of a directory's config.json, supported or not; None when the file is unreadable.

    Raises:
        ConfigError: the directory or the file is missing.
    """
    path = _config_path(directory)
    try:
        family = read_object(path).get("model_type")
    except ConfigError:
        return None
    return family if isinstance(family, str) else None


def _config_path(directory: Path) -> Path:
    directory = Path(directory)
    if directory.suffix.lower() == ".gguf" or (
        not (directory / "config.json").exists() and any(directory.glob("*.[gG][gG][uU][fF]"))
    ):
        raise ConfigError(
            f"{directory} is GGUF, which Inkstand does not read.",
            "Take a checkpoint in safetensors, as published or converted for MLX.",
        )
    if not directory.is_dir():
        wrong = "is a file" if directory.exists() else "is not there"
        raise ConfigError(
            f"The model directory {directory} {wrong}.",
            "Give the path of a directory that holds config.json; `inkstand models list` shows what was downloaded.",
        )
    path = directory / "config.json"
    if not path.is_file():
        raise ConfigError(
            f"{directory} has no config.json.",
            "Give the path of a checkpoint directory, or download its config.json as well.",
        )
    return path


def _text_config(f: Fields) -> TextConfig:
    for switch in ("shared_expert_sink", "use_gate_bias", "norm_after_topk", "use_global_scale", "use_sconv"):
        f.fixed(switch, True)
    for switch in ("q_bias", "o_bias", "tie_word_embeddings"):
        f.fixed(switch, False)
    f.fixed("gate_activation", "sigmoid")
    f.fixed("hidden_act", "silu")
    f.fixed("final_logit_softcapping", None)
    f.fixed("mtp_hidden_states_first", True)

    layers = f.integer("num_hidden_layers", low=1, high=1024)
    vocab = f.integer("vocab_size", low=2, high=1 << 22)
    if f.has("layer_types"):
        sliding = f.kinds("layer_types", count=layers, among=_KINDS)
    else:
        local = f.indices("local_layer_ids", "layer_types", count=layers)
        sliding = tuple(i in local for i in range(layers))
    if f.has("mlp_layer_types"):
        dense = f.kinds("mlp_layer_types", count=layers, among=_MLP_KINDS)
    else:
        first_sparse = f.integer("dense_mlp_idx", "mlp_layer_types", low=0, high=layers)
        dense = tuple(i < first_sparse for i in range(layers))

    # `intermediate_size` is the experts' width where `dense_intermediate_size` stands beside it (the published
    # spelling) and the dense width otherwise (what transformers saves).
    published = f.has("dense_intermediate_size")
    widths = (
        ("dense_intermediate_size", "intermediate_size")
        if published
        else ("intermediate_size", "moe_intermediate_size")
    )
    dense_width = f.integer(widths[0], low=1, high=1 << 20)
    experts = per_token = shared = expert_width = 0
    if not all(dense):
        expert_width = f.integer(widths[1], low=1, high=1 << 20)
        experts = f.integer("n_routed_experts", "num_local_experts", low=1, high=1 << 16)
        per_token = f.integer("num_experts_per_tok", low=1, high=experts)
        shared = f.integer("n_shared_experts", low=1, high=1024)

    floor = None
    if f.has("log_scaling_n_floor"):
        floor = f.integer("log_scaling_n_floor", low=1, high=1 << 40)
    window = f.integer("sliding_window_size", "sliding_window", low=1, high=1 << 24)
    return TextConfig(
        vocab_size=vocab,
        unpadded_vocab_size=f.integer("unpadded_vocab_size", low=1, high=vocab, default=vocab),
        hidden_size=f.integer("hidden_size", low=1, high=1 << 18),
        sliding=sliding,
        dense=dense,
        global_attention=_attention(f, "", None, f.integer("rel_extent", low=1, high=1 << 24)),
        sliding_attention=_attention(f, "swa_", window, window),
        d_rel=f.integer("d_rel", low=1, high=4096),
        log_scaling_floor=floor,
        log_scaling_alpha=f.number("log_scaling_alpha", low=-100.0, high=100.0, default=None if floor else 0.0),
        conv_kernel=f.integer("sconv_kernel_size", "conv_kernel_size", low=2, high=64),
        rms_norm_eps=f.number("rms_norm_eps", low=0.0, high=1.0),
        embed_norm=f.flag("use_embed_norm", default=True),
        dense_width=dense_width,
        expert_width=expert_width,
        num_experts=experts,
        experts_per_token=per_token,
        num_shared_experts=shared,
        route_scale=f.number("route_scale", low=0.0, high=1e6, default=None if experts else 1.0),
        mup_multiplier=f.number("logits_mup_width_multiplier", "embedding_multiplier", low=0.0, high=1e6),
        max_positions=f.integer("model_max_length", "max_position_embeddings", low=1, high=1 << 40),
    )


def _attention(f: Fields, prefix: str, window: int | None, extent: int) -> AttentionGeometry:
    heads = f.integer(f"{prefix}num_attention_heads", low=1, high=4096)
    name = f"{prefix}num_key_value_heads"
    kv_heads = f.integer(name, low=1, high=heads)
    if heads % kv_heads:
        raise f.wrong(name, kv_heads, f"a divisor of {prefix}num_attention_heads, which is {heads}")
    return AttentionGeometry(heads, kv_heads, f.integer(f"{prefix}head_dim", low=1, high=4096), window, extent)


def _mtp_config(block: Fields | None, text: Fields) -> MTPConfig | None:
    """From the published `mtp_config` block, or from the fields that transformers keeps in the text config."""
    f = block or text
    depth, local = (
        ("num_nextn_predict_layers", "local_layer_ids")
        if block is not None
        else ("num_mtp_layers", "mtp_local_layer_ids")
    )
    n = f.integer(depth, low=0, high=64, default=0)
    if n == 0:
        return None
    ids = f.indices(local, count=n, default=None if block is not None else ())
    chain_norm = f.flag("chain_hidden_post_norm", default=False)
    return MTPConfig(tuple(j in ids for j in range(n)), chain_norm)


def _eos_token_ids(f: Fields, vocab_size: int) -> tuple[int, ...]:
    accepted = f"a token id below {vocab_size} or a list of such ids"
    name, value = f.raw("eos_token_id")
    if value is None:
        raise f.missing(name, accepted=accepted)
    ids = cast("list[Any]", value if isinstance(value, list) else [value])
    if not ids or not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab_size for i in ids):
        raise f.wrong(name, cast("object", value), accepted)
    return tuple(dict.fromkeys(ids))


def _quantization(top: Fields) -> dict[str, Any] | None:
    name, value = top.raw("quantization", "quantization_config")
    if value is not None and not isinstance(value, dict):
        raise top.wrong(name, value, "an object")
    return cast("dict[str, Any] | None", value)

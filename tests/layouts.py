"""Rewrites the tiny checkpoint into the layouts that other tools leave behind.

Written against what those tools save (transformers 5.24, mlx-vlm 0.7, ModelOpt), not against the loader's table, so
that the two check each other.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

TINY = Path(__file__).parent / "data" / "inkling-tiny"
MAIN, HEAD = "model-00001-of-00001.safetensors", "mtp.safetensors"
Tensors = dict[str, mx.array]
Layout = Callable[[Tensors], Tensors]

_DTYPES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16", mx.uint32: "U32", mx.uint8: "U8"}


def backbone() -> Tensors:
    """The tiny checkpoint's tensors in the published layout, towers included."""
    return dict(mx.load(str(TINY / MAIN)))


def head() -> Tensors:
    return dict(mx.load(str(TINY / HEAD)))


def config() -> dict[str, Any]:
    return json.loads((TINY / "config.json").read_text())


def write(
    directory: Path,
    tensors: Mapping[str, mx.array],
    config: Mapping[str, Any],
    *,
    head: Mapping[str, mx.array] | None = None,
    dtypes: Callable[[str], str | None] = lambda name: None,
) -> Path:
    """A checkpoint directory without an index; `dtypes` may name another dtype for a tensor's bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save(directory / "model.safetensors", tensors, dtypes)
    if head is not None:
        save(directory / HEAD, head, dtypes)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, directory / name)
    return directory


def save(path: Path, tensors: Mapping[str, mx.array], dtypes: Callable[[str], str | None] = lambda name: None) -> None:
    """A safetensors file, written without MLX so that its dtypes can be anything."""
    entries: dict[str, Any] = {}
    blobs: list[bytes] = []
    offset = 0
    for name, value in tensors.items():
        data = np.array(value.view(mx.uint16) if value.dtype in (mx.bfloat16, mx.float16) else value).tobytes()
        entries[name] = {
            "dtype": dtypes(name) or _DTYPES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        blobs.append(data)
        offset += len(data)
    save_raw(path, json.dumps(entries).encode(), b"".join(blobs))


def save_raw(path: Path, header: bytes, data: bytes) -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def transformers_config(text_only: bool = False) -> dict[str, Any]:
    """The config as transformers saves it."""
    old = config()
    text = old["text_config"]
    n = text["num_hidden_layers"]
    local, dense = text.pop("local_layer_ids"), text.pop("dense_mlp_idx")
    text["layer_types"] = ["hybrid_sliding" if i in local else "hybrid" for i in range(n)]
    text["mlp_layer_types"] = ["dense" if i < dense else "sparse" for i in range(n)]
    text["moe_intermediate_size"] = text["intermediate_size"]
    text["intermediate_size"] = text.pop("dense_intermediate_size")
    text["conv_kernel_size"] = text.pop("sconv_kernel_size")
    text["max_position_embeddings"] = text.pop("model_max_length")
    text["num_mtp_layers"] = None if text_only else old["mtp_config"]["num_nextn_predict_layers"]
    text["mtp_local_layer_ids"] = None if text_only else old["mtp_config"]["local_layer_ids"]
    text["mtp_hidden_states_first"] = True
    if text_only:
        return {**text, "architectures": ["InklingForCausalLM"], "dtype": "float32"}
    del old["torch_dtype"], old["mtp_config"]
    return {**old, "dtype": "float32", "text_config": text}


def to_transformers(tensors: Tensors, root: str = "model.language_model.") -> Tensors:
    """`save_pretrained(save_original_format=False)`: split dense w13, experts with contiguous halves."""
    result: Tensors = {}
    for name, value in tensors.items():
        if not name.startswith("model.llm."):
            continue
        path = name.removeprefix("model.llm.")
        if path == "unembed.weight":
            result["lm_head.weight"] = value
            continue
        path = path.replace("embed.weight", "embed_tokens.weight").replace("embed_norm", "embed_tokens.embed_norm")
        path = path.replace(".attn_norm.", ".input_layernorm.").replace(".mlp_norm.", ".post_attention_layernorm.")
        path = _projections(path).replace("_sconv.weight", "_sconv.conv1d.weight")
        path = path.replace("gate.bias", "gate.e_score_correction_bias").replace("w2_md", "down_proj")
        path = path.replace("experts.w2_weight", "experts.down_proj").replace("shared_w2_weight", "down_proj")
        gate, up = (value[..., 0::2, :], value[..., 1::2, :]) if "w13" in path else (value, value)
        if path.endswith("w13_dn.weight"):
            result[root + path.replace("w13_dn", "gate_proj")] = gate
            result[root + path.replace("w13_dn", "up_proj")] = up
        elif path.endswith("shared_w13_weight"):
            result[root + path.replace("shared_w13_weight", "gate_proj")] = gate
            result[root + path.replace("shared_w13_weight", "up_proj")] = up
        elif path.endswith("experts.w13_weight"):
            result[root + path.replace("w13_weight", "gate_up_proj")] = mx.concatenate([gate, up], axis=-2)
        else:
            result[root + path] = value
    return {name: mx.contiguous(value) for name, value in result.items()}


def to_mixed(tensors: Tensors) -> Tensors:
    """Published names but for the MLPs, which are spelled as in transformers (the public 0.6B checkpoint)."""
    mlps = to_transformers({name: value for name, value in tensors.items() if ".mlp." in name}, "model.llm.")
    return {**{name: value for name, value in tensors.items() if ".mlp." not in name}, **mlps}


def to_mlx_vlm(tensors: Tensors, fused: bool = True) -> Tensors:
    """mlx-vlm's own parameters: fused qkvr, split experts, shared experts as one dense MLP, kernels [C, K, 1].

    Works on packed tensors too: codes, scales and biases are cut and joined alike.
    """
    result: Tensors = {}
    for name, value in tensors.items():
        if name.startswith("model.llm.unembed."):
            result[name.replace("model.llm.unembed", "language_model.lm_head")] = value
        elif name.startswith("model.llm."):
            path = _mlx_path(name.removeprefix("model.llm."))
            result |= {f"language_model.model.{key}": part for key, part in _mlx_parts(path, value).items()}
    layers = dict.fromkeys(name.split(".self_attn.")[0] for name in result if ".self_attn." in name)
    for layer in layers if fused else ():
        for leaf in ("weight", "scales", "biases"):
            names = [f"{layer}.self_attn.{part}_proj.{leaf}" for part in "qkvr"]
            if names[0] in result:
                result[f"{layer}.self_attn.qkvr_proj.{leaf}"] = mx.concatenate([result.pop(name) for name in names])
    return {name: mx.contiguous(value) for name, value in result.items()}


def _mlx_path(path: str) -> str:
    for old, new in (
        (r"^embed\.", "embed_tokens."),
        (r"\.attn_norm\.", ".input_layernorm."),
        (r"\.mlp_norm\.", ".post_attention_layernorm."),
        (r"rel_logits_proj\.proj$", "rel_proj"),
        (r"_sconv\.weight$", "_sconv.conv.weight"),
        (r"mlp\.gate\.weight$", "mlp.gate_weight"),
        (r"mlp\.gate\.bias$", "mlp.e_score_correction_bias"),
        (r"mlp\.gate\.global_scale$", "mlp.global_scale"),
        (r"\.w2_md\.", ".w2."),
        (r"\.w13_dn\.", ".w13."),
    ):
        path = re.sub(old, new, path)
    path = _bare_to_module(_projections(path)).replace(".mlp.experts.", ".mlp.switch_mlp.")
    return path.replace(".shared_experts.shared_", ".shared_experts.")


def _mlx_parts(path: str, value: mx.array) -> Tensors:
    if path.endswith("_sconv.conv.weight"):
        return {path: value.swapaxes(1, 2)}
    if ".w2." in path:
        columns = value.swapaxes(0, 1).reshape(value.shape[-2], -1) if ".shared_experts." in path else value
        return {path.replace(".w2.", ".down_proj."): columns}
    if ".w13." not in path:
        return {path: value}
    halves = {"gate_proj": value[..., 0::2, :], "up_proj": value[..., 1::2, :]}
    if ".shared_experts." in path:
        halves = {half: part.reshape(-1, part.shape[-1]) for half, part in halves.items()}
    return {path.replace("w13", half): part for half, part in halves.items()}


def to_split_experts(tensors: Tensors) -> Tensors:
    """Published names, but routed experts already split and kernels in MLX's form, as mlx-community's first builds."""
    result: Tensors = {}
    for name, value in tensors.items():
        path = _bare_to_module(name)
        if "_sconv.weight" in path:
            result[path] = value.swapaxes(1, 2)
        elif ".mlp.experts.w13." in path:
            result[path.replace("w13", "gate_proj")] = value[..., 0::2, :]
            result[path.replace("w13", "up_proj")] = value[..., 1::2, :]
        elif ".mlp.experts.w2." in path:
            result[path.replace("w2", "down_proj")] = value
        else:
            result[name] = value
    return {name: mx.contiguous(value) for name, value in result.items()}


def pack(tensors: Tensors, wanted: Callable[[str], bool], **setting: Any) -> tuple[Tensors, Tensors]:
    """Quantize the matrices whose name is `wanted`: (packed tensors, the plain tensors that they stand for)."""
    packed, plain = dict(tensors), dict(tensors)
    for name, value in tensors.items():
        if not is_matrix(name) or not wanted(name):
            continue
        module = name.removesuffix(".weight")
        codes, scales, *biases = mx.quantize(value, **setting)
        packed[name] = codes
        packed[f"{module}.scales"] = scales
        if biases:
            packed[f"{module}.biases"] = biases[0]
        plain[name] = mx.dequantize(codes, scales, *biases, **setting, dtype=mx.float32)
    return packed, plain


def is_matrix(name: str) -> bool:
    """Whether a published tensor is one that quantizers pack."""
    matrix = re.search(r"(embed|w[qkvro]_\w+|w13_dn|w2_md|input_proj)\.weight$|w13_weight$|w2_weight$", name)
    return matrix is not None and name.startswith(("model.llm.", "model.mtp."))


def to_modelopt(
    tensors: Tensors, excluded: Callable[[str], bool], matrices: str = r"\.experts\.w(13|2)_weight$"
) -> tuple[Tensors, Tensors]:
    """ModelOpt's NVFP4 of experts, the routed ones as it does: (its tensors, the plain tensors that they stand for)."""
    packed, plain = dict(tensors), dict(tensors)
    for i, name in enumerate(name for name in tensors if re.search(matrices, name)):
        if excluded(name):
            continue
        experts = tensors[name].shape[0]
        scale2 = mx.array(np.random.default_rng(i).uniform(0.5, 2.0, experts).astype(np.float32))
        codes, scales = mx.quantize(tensors[name] / scale2[:, None, None], group_size=16, bits=4, mode="nvfp4")
        packed[name] = codes.view(mx.uint8)
        packed[f"{name}.scale"] = scales
        packed[f"{name}.scale2"] = scale2
        packed[f"{name}.input_amax"] = mx.array(4.375)
        packed[f"{name}.original_shape"] = mx.array(np.array(tensors[name].shape, np.uint32))
        wide = mx.dequantize(codes, scales, group_size=16, bits=4, mode="nvfp4", dtype=mx.float32)
        plain[name] = wide * scale2[:, None, None]
    return packed, plain


def modelopt_dtype(name: str) -> str | None:
    return "F8_E4M3" if name.endswith("_weight.scale") else None


def _projections(path: str) -> str:
    path = re.sub(r"\.attn\.w([qkvro])_(du|dv|ud)\.", r".self_attn.\1_proj.", path)
    return path.replace(".attn.", ".self_attn.")


def _bare_to_module(path: str) -> str:
    """`experts.w13_weight[.scales]` as a module `experts.w13` with a leaf."""
    return re.sub(
        r"\b((?:shared_)?w(?:13|2))_weight(?:\.(scales|biases))?$", lambda m: f"{m[1]}.{m[2] or 'weight'}", path
    )


def to_drafter(directory: Path) -> Path:
    """The tiny head as mlx-vlm's splitter writes it: blocks.*, its own layout in them, a copy of the last norm."""
    tensors: Tensors = {"norm.weight": backbone()["model.llm.norm.weight"]}
    blocks: Tensors = {}
    for name, value in head().items():
        path = name.removeprefix("model.mtp.layers.")
        if ".transformer_block." in path:
            blocks[f"model.llm.layers.{path.replace('.transformer_block.', '.', 1)}"] = value
        else:
            tensors[f"blocks.{path}"] = value
    for name, value in to_mlx_vlm(blocks).items():
        depth, _, rest = name.removeprefix("language_model.model.layers.").partition(".")
        tensors[f"blocks.{depth}.transformer_block.{rest}"] = value
    whole = config()
    mtp = whole["mtp_config"]
    text = whole["text_config"] | {
        "num_mtp_layers": mtp["num_nextn_predict_layers"],
        "mtp_local_layer_ids": mtp["local_layer_ids"],
    }
    directory.mkdir()
    save(directory / "model.safetensors", tensors)
    (directory / "config.json").write_text(json.dumps({"model_type": "inkling_mtp", "text_config": text}))
    return directory

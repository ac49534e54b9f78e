"""A checkpoint as the peer can load it: published layout, one floating-point dtype, the very weights that we multiply.

Quantized matrices are written expanded, so that both engines compute the same function.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.config import ModelConfig
from engine.errors import HeadError
from engine.fields import read_object
from engine.model.linear import Dense, Packed
from engine.model.params import Parameter, Params
from engine.weights.files import INDEX
from engine.weights.head import HeadMissing, find_head
from engine.weights.load import load_head, load_model
from engine.weights.rename import published_name
from engine.weights.write import write_safetensors

_FILE = "model.safetensors"
_MARKER = "copied_from.json"
_TEXT = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def copy_for_peer(model: Path, head: Path, target: Path, dtype: str) -> bool:
    """Write `model` with the MTP head in `head` to `target`, unless it holds that copy already.

    Args:
        dtype: "f32" or "bf16".

    Returns:
        Whether anything was written.

    Raises:
        UserError: the checkpoint or its head cannot be read.
        OSError: `target` cannot be written.
    """
    origin = {"dtype": dtype, "files": sorted(_fingerprints({model.resolve(), head.resolve()}))}
    marker = target / _MARKER
    if marker.is_file() and json.loads(marker.read_text(encoding="utf-8")) == json.loads(json.dumps(origin)):
        return False
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    found = find_head(head)
    if isinstance(found, HeadMissing):
        raise HeadError(found.reason, "The peer needs the MTP head too: name its directory with --draft-model.")
    weights = load_model(model, dtype=dtype, keep_quantized=False)
    blocks = load_head(head, target=weights.config, dtype=dtype, keep_quantized=False)
    tensors = published_tensors({**weights.params, **blocks.params}, weights.config)
    write_safetensors(target / _FILE, tensors)
    # The index names every tensor there is, so that the peer leaves the towers out.
    index = {"metadata": {}, "weight_map": dict.fromkeys(sorted(tensors), _FILE)}
    (target / INDEX).write_text(json.dumps(index), encoding="utf-8")
    for name in _TEXT:
        if (model / name).is_file():
            shutil.copy(model / name, target / name)
    (target / "config.json").write_text(json.dumps(_config(model, head, dtype)), encoding="utf-8")
    marker.write_text(json.dumps(origin), encoding="utf-8")
    return True


def published_tensors(params: Params, config: ModelConfig) -> dict[str, mx.array]:
    """All parameters as tensors of the published layout, quantized ones expanded."""
    shared, tensors = config.text.num_shared_experts, dict[str, mx.array]()
    for target in params:
        if target.endswith((".gate_scale", ".out_scale", ".up_proj")):
            continue  # joined with the matrix they belong to
        name, stacked = published_name(target), ".mlp.shared." in target
        wide = _wide(params, target)
        if target.endswith(".gate_proj"):
            up = _wide(params, target.removesuffix("gate_proj") + "up_proj")
            gate = wide
            if stacked:
                gate, up = (m.reshape(shared, -1, m.shape[-1]) for m in (gate, up))
            # Rows alternate: one of the gate, one of the up matrix.
            wide = mx.stack([gate, up], axis=-2).reshape(*gate.shape[:-2], -1, gate.shape[-1])
        elif stacked:
            wide = wide.reshape(wide.shape[0], shared, -1).swapaxes(0, 1)
        elif target.endswith("_conv"):
            wide = wide[:, None]
        tensors[name] = wide
    return tensors


def _wide(params: Params, target: str) -> mx.array:
    """A parameter as a plain array, with ModelOpt's scale per expert multiplied in."""
    value: Parameter = params[target]
    if isinstance(value, mx.array):
        return value
    assert isinstance(value, (Dense, Packed))
    wide = value.weight if isinstance(value, Dense) else value.dequantize(mx.float32)
    module, _, part = target.rpartition(".")
    scale = params.get(f"{module}.{'gate' if part == 'gate_proj' else 'out'}_scale")
    if part in {"gate_proj", "down_proj"} and isinstance(scale, mx.array):
        wide = (wide * scale[:, None, None]).astype(wide.dtype)
    return wide


def _config(model: Path, head: Path, dtype: str) -> dict[str, Any]:
    config = read_object(model / "config.json")
    if not config.get("mtp_config"):
        config["mtp_config"] = read_object(head / "config.json").get("mtp_config")
    packed = {"quantization", "quantization_config"}
    plain = {name: value for name, value in config.items() if name not in packed}
    return {**plain, "torch_dtype": {"f32": "float32", "bf16": "bfloat16"}[dtype]}


def _fingerprints(directories: Iterable[Path]) -> Iterator[list[Any]]:
    for directory in directories:
        for path in (directory / "config.json", *directory.glob("*.safetensors")):
            if path.is_file():
                about = path.stat()
                yield [str(path), about.st_size, about.st_mtime_ns]

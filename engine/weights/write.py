"""Writing a checkpoint directory: shards of bounded size, their index, and the config's quantization block."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.model.linear import Dense, Packed, Quantization
from engine.model.params import Parameter
from engine.weights.files import INDEX
from engine.weights.rename import mlx_name

_DTYPES = {
    mx.float32: "F32",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.uint32: "U32",
    mx.int32: "I32",
    mx.uint8: "U8",
    mx.int8: "I8",
}
_ALIGNMENT = 8
Value = bool | int | str | dict[str, Any]


def write_safetensors(path: Path, tensors: Mapping[str, mx.array]) -> None:
    """Write tensors in the order of their names, so that the bytes depend on nothing but the tensors.

    MLX's own writer orders them by hash and does not notice a full disk. Raises OSError.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for name, value in sorted(tensors.items()):
        entry = {"dtype": _DTYPES[value.dtype], "shape": list(value.shape)}
        header[name] = {**entry, "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for _, value in sorted(tensors.items()):
            plain = mx.contiguous(value).reshape(-1).view(mx.uint8)
            file.write(memoryview(plain))  # pyright: ignore[reportArgumentType] (the stubs lack the buffer protocol)


class ShardWriter:
    """Collects tensors and writes them in files of about `shard_bytes`, whose final names come at the end."""

    def __init__(self, directory: Path, shard_bytes: int) -> None:
        self._directory = directory
        self._shard_bytes = shard_bytes
        self._pending: dict[str, mx.array] = {}
        self._numbered: list[list[str]] = []
        """Names of the tensors in each numbered file."""
        self._named: dict[str, list[str]] = {}
        self._total = 0

    def add(self, tensors: Mapping[str, mx.array], *, split: bool = True) -> None:
        """Take tensors and, with `split`, write out what is pending once it reaches the size of a shard."""
        mx.eval(list(tensors.values()))
        self._pending |= tensors
        if split and sum(tensor.nbytes for tensor in self._pending.values()) >= self._shard_bytes:
            self.close_shard()

    def close_shard(self, name: str | None = None) -> None:
        """Write what is pending to a numbered file, or to the file `name`."""
        if not self._pending:
            return
        path = self._directory / (name or f"{len(self._numbered)}.safetensors")
        write_safetensors(path, self._pending)
        if name is None:
            self._numbered.append(list(self._pending))
        else:
            self._named[name] = list(self._pending)
        self._total += sum(tensor.nbytes for tensor in self._pending.values())
        self._pending = {}
        mx.clear_cache()

    def finish(self) -> None:
        """Give the numbered files their names and write the index."""
        count = len(self._numbered)
        files = dict(self._named)
        for i, tensors in enumerate(self._numbered):
            name = "model.safetensors" if count == 1 else f"model-{i + 1:05d}-of-{count:05d}.safetensors"
            (self._directory / f"{i}.safetensors").rename(self._directory / name)
            files[name] = tensors
        weight_map = {tensor: file for file, tensors in files.items() for tensor in tensors}
        index = {"metadata": {"total_size": self._total}, "weight_map": dict(sorted(weight_map.items()))}
        (self._directory / INDEX).write_text(json.dumps(index, indent=1) + "\n")


def stored_tensors(target: str, value: Parameter) -> dict[str, mx.array]:
    """A parameter as the tensors of mlx-vlm's layout, by name."""
    name = mlx_name(target)
    if isinstance(value, Dense):
        return {name: value.weight}
    if isinstance(value, Packed):
        module = name.removesuffix(".weight")
        parts = {name: value.weight, f"{module}.scales": value.scales}
        return parts if value.biases is None else {**parts, f"{module}.biases": value.biases}
    # MLX keeps depthwise kernels as [C, K, 1].
    return {name: value[..., None] if target.endswith("_conv") else value}


def quantization_block(matrices: Mapping[str, Quantization | None]) -> dict[str, Value] | None:
    """The `quantization` entry of config.json: the commonest setting, and what differs from it by module.

    matrices: canonical name -> packing, of every matrix of the checkpoint.
    """
    counts = Counter(packing for packing in matrices.values() if packing is not None)
    if not counts:
        return None
    common = max(counts, key=lambda packing: (counts[packing], packing.bits, packing.group_size, packing.mode))
    differing = {
        mlx_name(target).removesuffix(".weight"): False if packing is None else _setting(packing)
        for target, packing in matrices.items()
        if packing != common
    }
    return {**_setting(common), **dict(sorted(differing.items()))}


def _setting(packing: Quantization) -> dict[str, Value]:
    return {"group_size": packing.group_size, "bits": packing.bits, "mode": packing.mode}

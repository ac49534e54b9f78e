"""Safetensors headers: names, shapes and byte ranges of the tensors, without their data.

Format (github.com/huggingface/safetensors): a little-endian u64 N, N bytes of JSON, then the data. Offsets count from
the first data byte. A header is accepted only if its ranges tile the rest of the file exactly.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, cast

from engine.errors import CheckpointError

MAX_HEADER_BYTES = 100_000_000
"""The limit of the reference implementation."""
_MAX_ELEMENTS = 1 << 48
BITS = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    "F4": 4,
}
"""Bits of one element, by the format's dtype names."""
FLOATS = frozenset({"F32", "F16", "BF16"})
"""Plain floating-point storage that can become a weight."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies and what it is."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """First byte, counted from the start of the file."""
    nbytes: int
    file: Path


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of a safetensors file by name, in file order.

    Raises:
        CheckpointError: the file is unreadable, truncated, or its header is malformed; names the file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length, raw = _header_bytes(file, size, path)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror}.", "Check that the file exists and its permissions."
        ) from error
    return parse_header(raw, path=path, data_start=8 + length, file_size=size)


def parse_header(raw: bytes, *, path: Path, data_start: int, file_size: int) -> dict[str, TensorInfo]:
    """Validate the JSON part of a header whose file has `file_size` bytes. Raises `CheckpointError`."""
    try:
        entries = json.loads(raw, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not valid JSON ({error})") from error
    if not isinstance(entries, dict):
        raise _damaged(path, "its header is not a JSON object")
    tensors = [
        _tensor(name, entry, path, data_start)
        for name, entry in cast("dict[str, Any]", entries).items()
        if name != "__metadata__"
    ]
    end = data_start
    for info in sorted(tensors, key=lambda t: (t.offset, t.nbytes)):
        if info.offset != end:
            what = "overlaps the tensor before it" if info.offset < end else "leaves a hole before it"
            raise _damaged(path, f"the data of {info.name} {what}")
        end += info.nbytes
    if end > file_size:
        raise CheckpointError(
            f"{path} is truncated: its header promises {end} bytes, the file has {file_size}.",
            "Download the file again.",
        )
    if end < file_size:
        raise _damaged(path, f"{file_size - end} bytes follow the last tensor")
    return {info.name: info for info in tensors}


def _header_bytes(file: BinaryIO, size: int, path: Path) -> tuple[int, bytes]:
    prefix = file.read(8)
    if len(prefix) < 8:
        raise _damaged(path, f"it is {size} bytes long, too short for a header")
    (length,) = struct.unpack("<Q", prefix)
    if length > MAX_HEADER_BYTES:
        raise _damaged(path, f"its header claims {length} bytes, above the format's limit of {MAX_HEADER_BYTES}")
    if 8 + length > size:
        raise CheckpointError(
            f"{path} is truncated: its header alone has {length} bytes, the file {size}.", "Download the file again."
        )
    return length, file.read(length)


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _tensor(name: str, entry: object, path: Path, data_start: int) -> TensorInfo:
    if not isinstance(entry, dict):
        raise _damaged(path, f"the entry of {name} is not an object")
    fields = cast("dict[str, Any]", entry)
    dtype = fields.get("dtype")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _damaged(path, f"{name} has the unknown dtype {dtype!r}")
    shape, offsets = _naturals(fields.get("shape")), _naturals(fields.get("data_offsets"))
    if shape is None or prod(shape) > _MAX_ELEMENTS:
        raise _damaged(path, f"{name} has the shape {fields.get('shape')!r}")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _damaged(path, f"{name} has the data offsets {fields.get('data_offsets')!r}")
    nbytes = offsets[1] - offsets[0]
    if prod(shape) * BITS[dtype] != 8 * nbytes:
        raise _damaged(path, f"{name} is {dtype} {list(shape)} but has {nbytes} bytes")
    return TensorInfo(name, dtype, shape, data_start + offsets[0], nbytes, path)


def _naturals(value: object) -> tuple[int, ...] | None:
    """A JSON list of whole numbers that are not negative, or None."""
    if not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    return tuple(items) if all(type(item) is int and item >= 0 for item in items) else None


def _damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is not a sound safetensors file: {what}.", "Download the file again.")

"""Small safetensors files with given tensor names."""

from __future__ import annotations

import json
from collections.abc import Iterable


def safetensors(names: Iterable[str], size: int = 64, padding: int = 0) -> bytes:
    """One U8 tensor of `size` bytes per name; `padding` blanks lengthen the header."""
    header = {
        name: {"dtype": "U8", "shape": [size], "data_offsets": [k * size, (k + 1) * size]}
        for k, name in enumerate(names)
    }
    text = json.dumps(header).encode() + b" " * padding
    return len(text).to_bytes(8, "little") + text + b"\7" * (size * len(header))


def index(shards: dict[str, list[str]]) -> bytes:
    """The index of these shards."""
    weight_map = {name: shard for shard, names in shards.items() for name in names}
    return json.dumps({"metadata": {}, "weight_map": weight_map}).encode()

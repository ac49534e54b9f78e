"""The safetensors header reader: exact on sound files, a named error on every other."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import layouts
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CheckpointError
from engine.weights.header import MAX_HEADER_BYTES, read_header


def header(name: str = "a", dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, Any]:
    return {name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_a_header_lists_tensors_where_they_lie(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    layouts.save(path, {"a": mx.arange(6).reshape(2, 3).astype(mx.float32), "b": mx.ones(2, mx.bfloat16)})
    tensors = read_header(path)
    assert [(t.name, t.dtype, t.shape, t.nbytes) for t in tensors.values()] == [
        ("a", "F32", (2, 3), 24),
        ("b", "BF16", (2,), 4),
    ]
    content = path.read_bytes()
    assert np.frombuffer(content[tensors["a"].offset :][:24], np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert tensors["b"].offset + 4 == len(content)


@pytest.mark.parametrize(
    ("entries", "data", "what"),
    [
        (header(dtype="F13"), 8, "unknown dtype 'F13'"),
        (header(dtype=None), 8, "unknown dtype None"),
        (header(shape=[-2]), 8, "shape"),
        (header(shape=[2.0]), 8, "shape"),
        (header(shape=[1 << 40, 1 << 40]), 8, "shape"),
        (header(shape=[3]), 8, "has 8 bytes"),
        (header(offsets=[8, 0]), 8, "data offsets"),
        (header(offsets=[0, 8, 16]), 8, "data offsets"),
        (header(offsets="ab"), 8, "data offsets"),
        ({"a": 3}, 0, "not an object"),
        ([], 0, "not a JSON object"),
        (header() | header("b", offsets=(4, 12)), 12, "overlaps"),
        (header() | header("b", offsets=(0, 8)), 8, "overlaps"),
        (header() | header("b", offsets=(12, 20)), 20, "hole"),
        (header(offsets=(4, 12)), 12, "hole"),
        (header(), 12, "4 bytes follow"),
    ],
)
def test_a_malformed_header_is_refused(entries: object, data: int, what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    layouts.save_raw(path, json.dumps(entries).encode(), bytes(data))
    with pytest.raises(CheckpointError, match=what) as error:
        read_header(path)
    assert str(path) in error.value.title


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "too short"),
        (b"\x08\x00", "too short"),
        (struct.pack("<Q", 1 << 62) + b"{}", "claims"),
        (struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}", "claims"),
        (struct.pack("<Q", 4000) + b"{}", "truncated"),
        (struct.pack("<Q", 2) + b"{]", "not valid JSON"),
        (struct.pack("<Q", 2) + b"\xff\xff", "not valid JSON"),
        (struct.pack("<Q", 200_000) + b"[" * 200_000, "not valid JSON"),
        (struct.pack("<Q", 17) + b'{"a": 1, "a": 2 }', "occurs twice"),
    ],
)
def test_a_broken_beginning_is_refused(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=what):
        read_header(path)


SOUND = (layouts.TINY / layouts.HEAD).read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("headers") / "damaged.safetensors"


@given(st.integers(0, 3000), st.binary(min_size=1, max_size=4), st.booleans())
def test_any_damage_to_a_header_is_survived(scratch: Path, position: int, junk: bytes, cut: bool) -> None:
    """Whatever bytes stand there, the outcome is a list of tensors inside the file, or a named error."""
    scratch.write_bytes(SOUND[:position] + junk + (b"" if cut else SOUND[position + len(junk) :]))
    try:
        tensors = read_header(scratch)
    except CheckpointError:
        return
    size = scratch.stat().st_size
    assert all(0 < t.offset <= t.offset + t.nbytes <= size for t in tensors.values())

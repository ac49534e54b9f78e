"""Matrices begin at a cache line, with the values they had."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import pytest

from engine.model.linear import Dense
from engine.model.params import lay_out
from engine.model.placement import CACHE_LINE, address, on_cache_line
from engine.weights.load import load_model
from tests.support import TINY


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.int8])
@pytest.mark.parametrize("shape", [(1,), (7, 5), (3, 40, 24), (300, 400)])
def test_a_placed_array_begins_a_cache_line_and_keeps_its_values(shape: tuple[int, ...], dtype: mx.Dtype) -> None:
    x = (100 * mx.random.normal(shape)).astype(dtype)
    placed = on_cache_line(x)
    assert address(placed) % CACHE_LINE == 0
    assert placed.dtype == dtype
    assert placed.shape == shape
    assert mx.array_equal(placed, x)


def test_a_transposed_array_is_stored_as_it_is_seen() -> None:
    x = mx.random.normal((2, 6, 20)).swapaxes(1, 2)
    placed = on_cache_line(x)
    assert placed.tolist() == x.tolist()
    assert memoryview(cast(Any, placed)).c_contiguous


def test_all_that_the_cpu_multiplies_by_begins_a_cache_line() -> None:
    loaded = load_model(TINY)
    before = {name: value.weight for name, value in loaded.params.items() if isinstance(value, Dense)}
    lay_out(loaded.params)
    seen = 0
    for name, value in loaded.params.items():
        if isinstance(value, Dense) and name != "embed":
            # Experts are stored input by input.
            stored = value.weight.swapaxes(1, 2) if ".bank." in name else value.weight
            assert address(stored) % CACHE_LINE == 0, name
            seen += 1
    assert seen > 10
    head, embedding = loaded.params["lm_head"], loaded.params["embed"]
    assert isinstance(head, Dense)
    assert isinstance(embedding, Dense)
    assert mx.array_equal(head.weight, before["lm_head"])
    # Rows of the embedding are read, never multiplied by.
    assert embedding.weight is before["embed"]

"""Attention in blocks equals attention at once, and its memory is bounded by the blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.cache import ALIGN, KeyView, KVCache, align_up
from engine.config import ModelConfig
from engine.decode.target import Target
from engine.model import blockwise
from engine.model.attention import log_scale
from engine.model.backbone import Backbone
from engine.model.blockwise import AT_ONCE_ROWS, QUERY_BLOCK, attend_at_once, attend_in_blocks, near_start
from engine.model.elementary import exp, silu, softmax_product
from engine.model.relative_bias import RelativeBias
from engine.weights.load import load_model
from tests.support import TINY

HEADS, KV_HEADS, DIM, D_REL, EXTENT = 6, 2, 16, 4, 24


@dataclass
class Case:
    q: mx.array
    r: mx.array
    view: KeyView
    position: int
    bias: RelativeBias
    tau: mx.array | None

    def run(self, attend: Callable[..., mx.array]) -> mx.array:
        return attend(
            self.q, self.r, self.view, position=self.position, bias=self.bias, tau=self.tau, scale=1 / self.q.shape[-1]
        )


def make(
    length: int, position: int, *, windowed: bool = False, tau: bool = False, dtype: mx.Dtype = mx.float32
) -> Case:
    """Queries behind `position` keys in a cache; keys vary in size, so that the running maximum moves."""

    def normal(seed: int, *shape: int) -> mx.array:
        return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)

    cache = KVCache(EXTENT if windowed else None)
    keys = normal(0, 1, KV_HEADS, position + length, DIM) * mx.linspace(0.2, 6.0, position + length)[:, None].astype(
        dtype
    )
    values = normal(1, 1, KV_HEADS, position + length, DIM)
    if position:
        cache.append(keys[:, :, :position], values[:, :, :position])
    view = cache.append(keys[:, :, position:], values[:, :, position:])
    scale = log_scale(position, length, floor=100, alpha=0.1) if tau else None
    q, r = 3 * normal(2, 1, HEADS, length, DIM), normal(3, 1, HEADS, length, D_REL)
    return Case(q, r, view, position, RelativeBias(normal(4, D_REL, EXTENT), windowed=windowed), scale)


@pytest.mark.parametrize("tau", [False, True])
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize(
    ("length", "position"), [(17, 0), (64, 0), (150, 3), (64, 500), (33, 1211), (130, 2048), (512, 4096)]
)
def test_blocks_equal_one_call(length: int, position: int, windowed: bool, tau: bool) -> None:
    case = make(length, position, windowed=windowed, tau=tau)
    expected = case.run(attend_at_once)
    actual = case.run(attend_in_blocks)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(np.array(actual), np.array(expected), atol=2e-5)


@pytest.mark.parametrize("tau", [False, True])
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize(("length", "position"), [(17, 0), (64, 500), (65, 3), (150, 1211)])
def test_with_cuda_every_block_has_as_many_queries(
    length: int, position: int, windowed: bool, tau: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockwise, "on_cuda", lambda: True)
    case, counts = make(length, position, windowed=windowed, tau=tau), set[int]()

    compute = RelativeBias.__call__

    def watched(bias: RelativeBias, r: mx.array, *rest: Any) -> mx.array:
        counts.add(r.shape[2])
        return compute(bias, r, *rest)

    monkeypatch.setattr(RelativeBias, "__call__", watched)
    actual = case.run(attend_in_blocks)
    assert counts == {QUERY_BLOCK}
    np.testing.assert_allclose(np.array(actual), np.array(case.run(attend_at_once)), atol=2e-5)


@pytest.mark.parametrize("key_block", [1, 7, 100])
def test_any_size_of_blocks_will_do(key_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "KEY_BLOCK", key_block)
    monkeypatch.setattr(blockwise, "QUERY_BLOCK", 10)
    case = make(37, 300, tau=True)
    np.testing.assert_allclose(np.array(case.run(attend_in_blocks)), np.array(case.run(attend_at_once)), atol=2e-5)


def test_bfloat16_is_computed_in_float32_and_handed_back() -> None:
    case = make(70, 3000, dtype=mx.bfloat16)
    wide = Case(
        *(a.astype(mx.float32) for a in (case.q, case.r)),
        KeyView(case.view.keys.astype(mx.float32), case.view.values.astype(mx.float32), case.view.first),
        case.position,
        RelativeBias(case.bias.bank[:, ::-1].astype(mx.float32), windowed=False),
        None,
    )
    actual = case.run(attend_in_blocks)
    assert actual.dtype == mx.bfloat16
    assert mx.abs(actual.astype(mx.float32) - wide.run(attend_at_once)).max().item() < 0.05


@pytest.mark.parametrize("start", [0, 10, 600, 1024, 5000, 33333])
def test_the_masked_keys_do_not_grow_with_the_context(start: int) -> None:
    bank = mx.zeros((D_REL, EXTENT))
    near = near_start(0, start, RelativeBias(bank, windowed=False))
    assert near % blockwise.KEY_BLOCK == 0 or near < blockwise.KEY_BLOCK
    assert start - near < EXTENT + blockwise.KEY_BLOCK
    assert near <= max(0, start - EXTENT + 1)
    assert start - near_start(0, start, RelativeBias(bank, windowed=True)) < EXTENT + ALIGN


@pytest.mark.parametrize("chunk", [1, 5, 64, 512])
def test_a_sliding_layer_reads_its_window(chunk: int) -> None:
    """The view holds the window of the first query, the queries, and less than two alignments more."""
    window, cache = 256, KVCache(256)
    rows = mx.zeros((1, 1, chunk, 8))
    for end in range(chunk, 3000, chunk):
        view = cache.append(rows, rows)
        assert view.first <= max(0, end - chunk - window + 1)
        assert view.keys.shape[2] <= window + chunk + 2 * ALIGN
        assert view.first + view.keys.shape[2] == align_up(end)


def test_few_rows_and_many_rows_give_the_same_hidden_states() -> None:
    """A whole model, with far keys in play: the tiny extent is 16."""
    loaded = load_model(TINY)
    backbone = Backbone(loaded.config, loaded.params, mx.float32)
    ids = [(7 * i * i + 3 * i) % 250 for i in range(1300)]

    def hidden(chunk: int) -> mx.array:
        rows: list[mx.array] = []
        for _ in Target(backbone).prefill(ids, chunk, lambda hidden, _ids: rows.append(hidden)):
            pass
        return mx.concatenate(rows, axis=1)

    difference = mx.abs(hidden(AT_ONCE_ROWS) - hidden(512)).max(axis=-1)
    # The random routers flip an expert in a row now and then.
    assert mx.mean((difference < 1e-3).astype(mx.float32)).item() > 0.99


@pytest.mark.slow
def test_memory_of_a_long_prefill_is_that_of_its_blocks() -> None:
    case = make(512, 16384)
    mx.eval(case.q, case.r, case.view.keys, case.view.values)

    def peak(attend: Callable[..., mx.array]) -> int:
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(case.run(attend))
        return mx.get_peak_memory() - before

    assert peak(attend_in_blocks) < 32 * HEADS * blockwise.QUERY_BLOCK * blockwise.KEY_BLOCK * 4
    assert peak(attend_at_once) > HEADS * 512 * 16384 * 4


def test_exp_is_as_exact_as_float32() -> None:
    x = np.concatenate([np.linspace(-87, 0, 5001), [-np.inf, 0.0, -200.0]]).astype(np.float32)
    y = np.array(exp(mx.array(x)), dtype=np.float64)
    reference = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y[:5001], reference[:5001], rtol=8e-6)
    assert y[5001:].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_silu_keeps_its_dtype_and_its_limits(dtype: mx.Dtype) -> None:
    x = mx.array([-200.0, -20.0, -1.0, 0.0, 0.5, 30.0, 200.0], dtype)
    wide = np.array(x.astype(mx.float32), dtype=np.float64)
    y = silu(x)
    assert y.dtype == dtype
    rtol = 1e-5 if dtype == mx.float32 else 0.02
    np.testing.assert_allclose(np.array(y.astype(mx.float32)), wide / (1 + np.exp(-wide)), rtol=rtol, atol=1e-30)


@pytest.mark.parametrize("keys", [7, 300])
def test_the_softmax_of_many_scores_is_that_of_few(keys: int) -> None:
    """Both ways round the same; scores far apart and masked ones neither overflow nor count."""
    x = 40.0 * mx.random.normal((2, 10, keys), key=mx.random.key(0))
    x = mx.where(mx.arange(keys) % 5 == 4, -mx.inf, x)
    values = mx.random.normal((2, keys, 16), key=mx.random.key(1))
    wide = np.array(x, dtype=np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    expected = powers / powers.sum(axis=-1, keepdims=True) @ np.array(values, dtype=np.float64)
    np.testing.assert_allclose(np.array(softmax_product(x, values)), expected, rtol=1e-4, atol=1e-5)


def test_the_tiny_geometry_has_far_keys() -> None:
    assert ModelConfig.from_directory(TINY).text.global_attention.extent == 16

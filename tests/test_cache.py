"""Caches: what they keep, how far they go back, and that they do not grow without need."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from engine.cache import ALIGN, ROLLBACK_ROWS, Cache, ConvCache, KVCache, LayerCache
from tests.support import PROMPT, cache_distance, prefilled, run, tiny


def rows(start: int, count: int) -> mx.array:
    """Keys whose value is their position."""
    return mx.broadcast_to(mx.arange(start, start + count, dtype=mx.float32)[None, None, :, None], (1, 2, count, 4))


def visible(cache: KVCache, view_first: int, keys: mx.array) -> list[int]:
    """Positions that the view holds, as its values tell them, up to the end of the sequence."""
    return [int(v) for v in keys[0, 0, :, 0].tolist()[: cache.offset - view_first]]


@pytest.mark.parametrize("window", [None, 8, 100])
def test_views_hold_every_key_in_the_window(window: int | None) -> None:
    cache, position = KVCache(window), 0
    rng = np.random.default_rng(0)
    while position < 700:
        count = int(rng.choice([1, 1, 1, 5, 9, 130]))
        view = cache.append(rows(position, count), rows(position, count))
        assert view.first % ALIGN == view.keys.shape[2] % ALIGN == 0
        held = visible(cache, view.first, view.keys)
        assert held == list(range(view.first, position + count))
        assert view.first <= max(0, position - (window or position + 1) + 1)
        position += count
        back = int(rng.integers(0, min(count, 9)))
        cache.trim(back)
        position -= back


def test_a_windowed_cache_does_not_grow_with_the_context() -> None:
    cache, sizes = KVCache(100), []
    for position in range(0, 4000, 5):
        cache.append(rows(position, 5), rows(position, 5))
        assert cache.keys is not None
        sizes.append(cache.keys.shape[2])
    assert max(sizes) <= 100 + ROLLBACK_ROWS + 2 * ALIGN + 256
    assert max(sizes[-100:]) == max(sizes[100:200])


def test_a_model_s_sliding_layers_stay_bounded_while_global_ones_grow() -> None:
    target = prefilled([5, 9, 30, 77] * 500, chunk=64)
    per_layer = [sum(a.nbytes for a in layer.kv.arrays) for layer in target.cache.layers]
    sliding = tiny().config.text.sliding
    geometry = tiny().config.text.sliding_attention
    bound = (geometry.window + ROLLBACK_ROWS + 2 * ALIGN + 256 + 64) * geometry.kv_heads * geometry.head_dim * 8
    assert all(size <= bound for size, local in zip(per_layer, sliding, strict=True) if local)
    assert all(size > 2000 * 2 * 16 * 8 - 1 for size, local in zip(per_layer, sliding, strict=True) if not local)
    conv_rows = [conv.inputs.shape[1] for layer in target.cache.layers for conv in layer.convs]
    assert max(conv_rows) <= 2 * (3 + ROLLBACK_ROWS) + 64


@pytest.mark.parametrize("window", [8, 40, 100])
def test_a_window_can_be_cut_back_by_the_rows_it_promises_also_when_it_has_just_moved(window: int) -> None:
    cache, moved = KVCache(window), 0
    for position in range(900):
        base = cache.base
        cache.append(rows(position, 1), rows(position, 1))
        if cache.base == base:
            continue
        moved += 1
        copied = KVCache(window)
        copied.paste(cache.copy())
        for held in (copied, cache):
            held.trim(ROLLBACK_ROWS)
            start = position + 1 - ROLLBACK_ROWS
            view = held.append(rows(start, ROLLBACK_ROWS), rows(start, ROLLBACK_ROWS))
            assert view.first <= start - window + 1
            assert visible(held, view.first, view.keys) == list(range(view.first, position + 1))
    assert moved > 1


def test_trimming_too_far_is_refused_and_changes_nothing() -> None:
    cache = KVCache(8)
    for position in range(0, 600, 3):
        cache.append(rows(position, 3), rows(position, 3))
    with pytest.raises(ValueError, match="cannot cut 500 rows"):
        cache.trim(500)
    assert cache.offset == 600
    conv = ConvCache(3)
    conv.extend(mx.zeros((1, 2, 4)))
    with pytest.raises(ValueError, match="cannot cut 3 inputs"):
        conv.trim(3)
    conv.trim(2)
    assert conv.state(4).shape == (1, 3, 4)


def test_conv_state_after_a_cut_is_the_inputs_before_it() -> None:
    conv = ConvCache(3)
    conv.extend(mx.arange(4, dtype=mx.float32).reshape(1, 4, 1))
    conv.extend(mx.arange(4, 9, dtype=mx.float32).reshape(1, 5, 1))
    conv.trim(4)
    assert conv.state(1).flatten().tolist() == [2, 3, 4]
    assert conv.extend(mx.full((1, 1, 1), 50.0)).flatten().tolist() == [2, 3, 4, 50]


def test_a_restart_forgets_and_starts_on_an_aligned_row() -> None:
    cache = LayerCache(None, 4)
    cache.kv.append(rows(0, 5), rows(0, 5))
    cache.restart(2 * ALIGN)
    view = cache.kv.append(rows(2 * ALIGN, 3), rows(2 * ALIGN, 3))
    assert (view.first, cache.offset) == (2 * ALIGN, 2 * ALIGN + 3)
    with pytest.raises(ValueError, match="restarts at a multiple"):
        cache.restart(3)


def test_a_window_that_reaches_before_a_restart_can_be_cut_back() -> None:
    cache = KVCache(8)
    cache.restart(2 * ALIGN)
    cache.append(rows(2 * ALIGN, 5), rows(2 * ALIGN, 5))
    cache.trim(3)
    assert cache.offset == 2 * ALIGN + 2
    with pytest.raises(ValueError, match="cannot cut 3 rows"):
        cache.trim(3)


def test_snapshots_outlive_what_happens_after_them() -> None:
    """A rewind after a long detour equals never having made it."""
    ids = run(120).ids
    straight = prefilled(ids)
    detour = prefilled(ids[:80])
    snapshot = detour.cache.snapshot()
    for token in [3, 9, 27] * 100:
        detour.forward(mx.array([token]))
    mx.eval(detour.cache.arrays)
    detour.cache.rewind(snapshot)
    detour.ids = list(ids[:80])
    for _ in detour.prefill(ids, 512, lambda hidden, ids: None):
        pass
    assert cache_distance(detour, straight) < 1e-4


def test_marks_survive_a_block_and_a_single_row() -> None:
    target = prefilled(PROMPT)
    reference = prefilled([*PROMPT, 1, 2, 3])
    mark = target.mark()
    target.forward(mx.array([9, 9, 9, 9]))
    target.restore(mark)
    target.forward(mx.array([1, 2, 3]))
    assert cache_distance(target, reference) < 1e-4


def test_a_snapshot_of_all_keys_is_gone_after_a_restart() -> None:
    """A windowed cache brings its keys along in the snapshot; one that keeps all rows in place cannot."""
    for window, there in ((None, False), (8, True)):
        layer = LayerCache(window, 4)
        layer.kv.append(rows(0, 5), rows(0, 5))
        snapshot = layer.snapshot()
        assert layer.can_rewind(snapshot)
        layer.restart(2 * ALIGN)
        assert layer.can_rewind(snapshot) is there
        if there:
            layer.rewind(snapshot)
            kept = layer.kv.rows()
            assert kept is not None
            assert kept[0][0, 0, :, 0].tolist() == [0, 1, 2, 3, 4]
        else:
            with pytest.raises(ValueError, match="gone"):
                layer.rewind(snapshot)
            assert layer.offset == 2 * ALIGN


def test_an_empty_cache_has_no_rows_and_no_size() -> None:
    layer = LayerCache(None, 4)
    cache = Cache([layer])
    assert layer.kv.rows() is None
    assert (cache.offset, cache.nbytes) == (0, 0)
    layer.kv.append(rows(0, 3), rows(0, 3))
    assert cache.nbytes == sum(array.nbytes for array in cache.arrays) > 0


def test_a_mark_is_gone_back_to_without_a_copy() -> None:
    cache = Cache([LayerCache(8, 4), LayerCache(None, 4)])
    for layer in cache.layers:
        layer.kv.append(rows(0, 5), rows(0, 5))
        layer.mlp_conv.extend(mx.arange(5, dtype=mx.float32).reshape(1, 5, 1))
    marks = cache.mark()
    for layer in cache.layers:
        layer.kv.append(rows(5, 4), rows(5, 4))
        layer.mlp_conv.extend(mx.ones((1, 4, 1)))
    cache.restore(marks)
    assert cache.offset == 5
    assert [layer.mlp_conv.state(1).flatten().tolist() for layer in cache.layers] == [[2, 3, 4]] * 2


def test_a_long_call_s_inputs_are_let_go_of_but_for_those_a_cut_may_need() -> None:
    conv = ConvCache(3)
    conv.compact()
    assert list(conv.arrays) == []
    conv.extend(mx.arange(500, dtype=mx.float32).reshape(1, 500, 1))
    conv.trim(2)
    conv.compact()
    (kept,) = conv.arrays
    assert kept.shape[1] == 3 + ROLLBACK_ROWS
    conv.trim(ROLLBACK_ROWS)
    assert conv.state(1).flatten().tolist() == [463, 464, 465]
    conv.compact()
    assert conv.arrays == (kept,)


def test_a_windowed_snapshot_before_the_first_row_holds_none() -> None:
    layer = LayerCache(8, 4)
    empty = layer.snapshot()
    assert list(empty.arrays) == []
    layer.kv.append(rows(0, 3), rows(0, 3))
    layer.rewind(empty)
    assert layer.offset == 0
    assert layer.kv.rows() is None


def test_a_snapshot_holds_no_more_inputs_than_a_cut_may_need() -> None:
    layer = LayerCache(8, 4)
    layer.mlp_conv.extend(mx.arange(500, dtype=mx.float32).reshape(1, 500, 1))
    layer.kv.append(rows(0, 500), rows(0, 500))
    assert max(array.shape[1] for array in layer.snapshot().arrays if array.ndim == 3) == 3 + ROLLBACK_ROWS


def test_layers_are_cut_together() -> None:
    cache = Cache([LayerCache(8, 4), LayerCache(None, 4)])
    for layer in cache.layers:
        layer.kv.append(rows(0, 9), rows(0, 9))
        for conv in layer.convs:
            conv.extend(mx.arange(9, dtype=mx.float32).reshape(1, 9, 1))
    cache.trim(4)
    assert [layer.offset for layer in cache.layers] == [5, 5]
    assert all(conv.state(1).flatten().tolist() == [2, 3, 4] for layer in cache.layers for conv in layer.convs)

"""The source of our CUDA kernels, run by an emulator: right results, and every row as if it were alone."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest

from engine.cache import KeyView, KVCache, align_down
from engine.model.blockwise import attend_at_once
from engine.model.cuda import attention, compiler
from engine.model.cuda.attention import RowAttention
from engine.model.cuda.products import multiply, multiply_experts
from engine.model.relative_bias import RelativeBias
from tests.cuda_emulator import COMPILER, Emulator

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler, or this is not Linux"),
    pytest.mark.usefixtures("emulated"),
]

BF16_STEP = 2**-8


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    emulator = Emulator(tmp_path_factory.mktemp("kernels"))
    compiler.compiled.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "_compile", emulator.compile)
        patch.setattr(compiler, "_capability", lambda: (9, 0))
        patch.setattr(mx.fast, "precompiled_cuda_kernel", emulator.start)
        yield
    compiler.compiled.cache_clear()


def normal(*shape: int) -> mx.array:
    return mx.random.normal(shape).astype(mx.bfloat16)


def distance(found: mx.array, wanted: mx.array) -> float:
    """The norm of the difference over the norm of what is wanted."""
    found, wanted = found.astype(mx.float32), wanted.astype(mx.float32)
    return float((mx.linalg.norm(found - wanted) / mx.linalg.norm(wanted)).item())


def same_bits(a: mx.array, b: mx.array) -> bool:
    return a.shape == b.shape and bool(mx.array_equal(a, b).item())


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float32])
def test_products_with_plain_matrices(dtype: mx.Dtype) -> None:
    for inputs, outputs in ((32, 40), (264, 17)):
        weight, x = normal(outputs, inputs).astype(dtype), normal(1, 16, inputs).astype(dtype)
        alone = [multiply(x[:, i : i + 1], (weight,)) for i in range(16)]
        wanted = x.astype(mx.float32) @ weight.astype(mx.float32).T
        for rows in (3, 9, 16):
            found = multiply(x[:, :rows], (weight,))
            assert distance(found, wanted[:, :rows]) < (BF16_STEP if dtype == mx.bfloat16 else 1e-5)
            assert same_bits(found, mx.concatenate(alone[:rows], axis=1))


@pytest.mark.parametrize(("bits", "group"), [(2, 32), (3, 64), (4, 32), (4, 64), (5, 64), (6, 64), (8, 32)])
def test_products_with_packed_matrices(bits: int, group: int) -> None:
    codes, scales, biases = mx.quantize(normal(24, 192), group_size=group, bits=bits)
    weight = mx.dequantize(
        codes, scales.astype(mx.float32), biases.astype(mx.float32), group_size=group, bits=bits, dtype=mx.float32
    )
    x = normal(1, 8, 192)
    found = multiply(x, (codes, scales, biases), bits, group)
    assert distance(found, x.astype(mx.float32) @ weight.T) < BF16_STEP
    assert same_bits(found[:, 7:], multiply(x[:, 7:], (codes, scales, biases), bits, group))


def test_products_with_experts() -> None:
    codes, scales, biases = mx.quantize(normal(5, 24, 128), group_size=64, bits=4)
    weight = mx.dequantize(codes, scales, biases, group_size=64, bits=4).astype(mx.float32)
    x, experts = normal(3, 128), mx.array([4, 0, 2, 2, 1, 3], mx.uint32)
    found = multiply_experts(x, (codes, scales, biases), experts, 4, 64)
    wanted = (weight[experts] @ mx.repeat(x, 2, axis=0).astype(mx.float32)[..., None])[..., 0]
    assert distance(found, wanted) < 2 * BF16_STEP  # of which the rounded matrix has its part
    assert same_bits(found[2:4], multiply_experts(x[1:2], (codes, scales, biases), experts[2:4], 4, 64))


@pytest.mark.parametrize(
    ("head_dim", "group", "kv_heads", "d_rel", "window"),
    [(64, 3, 2, 16, None), (128, 4, 1, 20, 100), (32, 12, 1, 5, None)],
)
def test_attention(head_dim: int, group: int, kv_heads: int, d_rel: int, window: int | None) -> None:
    """Within a chunk and across several, after a cut, past the window, with rows shared among blocks and together."""
    extent, heads = window or 40, group * kv_heads
    bias = RelativeBias(normal(d_rel, extent), windowed=window is not None)
    exact = RelativeBias(bias.bank[:, ::-1].astype(mx.float32), windowed=window is not None)
    attend, cache = RowAttention(head_dim, group, d_rel, bias), KVCache(window)
    for rows, cut in ((3, 1), (100, 0), (9, 8), (200, 0), (5, 0)):
        position = cache.offset
        q, r = normal(1, rows, heads, head_dim) * 8, normal(1, rows, heads, d_rel) / 4  # no key outweighs all others
        view = cache.append(normal(1, kv_heads, rows, head_dim), normal(1, kv_heads, rows, head_dim))
        if rows <= 16:
            floats = KeyView(view.keys.astype(mx.float32), view.values.astype(mx.float32), view.first)
            wanted = attend_at_once(
                q.swapaxes(1, 2).astype(mx.float32),
                r.swapaxes(1, 2).astype(mx.float32),
                floats,
                position=position,
                bias=exact,
                tau=None,
                scale=1 / head_dim,
            )
            found = attend(q, r, cache, view.first)
            assert distance(found, wanted.swapaxes(1, 2).reshape(1, rows, -1)) < BF16_STEP
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(attention, "_BLOCKS", 1)
                assert same_bits(found, attend(q, r, cache, view.first))
            end = cache.offset
            for i in (0, rows // 2):
                # As if the later rows had not come.
                cache.offset = own = position + i + 1
                first = cache.base if window is None else max(cache.base, align_down(max(0, own - window)))
                assert same_bits(found[:, i : i + 1], attend(q[:, i : i + 1], r[:, i : i + 1], cache, first))
            cache.offset = end
        cache.trim(cut)

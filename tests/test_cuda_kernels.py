"""Our CUDA kernels, as far as a machine without one can tell: what they are started with, and who uses them.

Stand-ins compute what a kernel is to compute, block by block, from the arguments that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.cache import KVCache
from engine.model.blockwise import attend_at_once
from engine.model.cuda import attention, compiler, products
from engine.model.cuda.attention import RowAttention
from engine.model.linear import Dense, Joined, Packed, Quantization
from engine.model.relative_bias import RelativeBias
from tests.support import tiny

TOLERANCE = 1e-4


class StandIn:
    """A kernel by name, its constants known."""

    def __init__(self, name: str, source: str, **constants: Any) -> None:
        self.name, self.source, self.constants = name, source, constants

    def __call__(
        self,
        inputs: list[mx.array],
        scalars: list[int],
        *,
        blocks: tuple[int, int, int],
        threads: int,
        outputs: list[tuple[tuple[int, ...], mx.Dtype]],
    ) -> list[mx.array]:
        compute = chunks if self.name == "attention_chunks" else merged if self.name == "attention_merge" else product
        arrays = compute(self, [np.array(a.astype(mx.float32)) for a in inputs], scalars, blocks, threads)
        for array, (shape, _) in zip(arrays, outputs, strict=True):
            assert array.shape == shape
        return [
            mx.array(array.astype(np.float32)).astype(dtype) for array, (_, dtype) in zip(arrays, outputs, strict=True)
        ]


def product(
    kernel: StandIn, inputs: list[np.ndarray], scalars: list[int], blocks: tuple[int, int, int], threads: int
) -> list[np.ndarray]:
    rows, weight = inputs[0], inputs[1]
    width, outputs, count = scalars
    assert (rows.shape[1], weight.shape[-2]) == (width, outputs)
    assert "BITS" not in kernel.constants or kernel.constants["BITS"] == 0
    if kernel.name == "product_f32":
        assert blocks[2] * kernel.constants["ROWS"] >= count > (blocks[2] - 1) * kernel.constants["ROWS"]
        assert blocks[0] * (threads // 32) >= outputs
    else:
        assert threads == 128  # 4 warps, as the source has it
        assert "WARPS = 4" in kernel.source
        assert blocks[0] * 16 >= outputs
        assert kernel.constants["TILES"] * 8 >= count
    return [rows @ weight.T]


def chunks(
    kernel: StandIn, inputs: list[np.ndarray], scalars: list[int], blocks: tuple[int, int, int], threads: int
) -> list[np.ndarray]:
    q, r, keys, values, bank = inputs
    length, position, first, base, capacity, extent, per_block = scalars
    constants, (parts, groups, depth) = kernel.constants, blocks
    per, size, head_dim = constants["HEADS"], constants["CHUNK"], constants["D"]
    assert (threads, keys.shape[2], bank.shape[1]) == (2 * size, capacity, extent)
    assert depth * per_block >= length > (depth - 1) * per_block
    assert per_block <= constants["ROWS"]
    most, total = (np.full((length, groups * per, parts), np.nan) for _ in range(2))
    summed = np.full((length, groups * per, parts, head_dim), np.nan)
    for part, head, row in np.ndindex(parts, groups * per, length):
        own, begin = position + row, (first // size + part) * size
        reach = own - extent if constants["WINDOWED"] else -1
        seen = list(range(max(begin, first, reach + 1), min(begin + size, own + 1)))
        if not seen:
            continue  # what nobody reads
        group, of_buffer = head // per, [key - base for key in seen]
        scores = keys[0, group, of_buffer] @ q[0, row, head] / head_dim
        for i, key in enumerate(seen):
            if own - key < extent:
                scores[i] += r[0, row, head] @ bank[:, extent - 1 - (own - key)]
        most[row, head, part] = scores.max()
        weights = np.exp(scores - scores.max())
        total[row, head, part] = weights.sum()
        summed[row, head, part] = weights @ values[0, group, of_buffer]
    return [most, total, summed]


def merged(
    kernel: StandIn, inputs: list[np.ndarray], scalars: list[int], blocks: tuple[int, int, int], threads: int
) -> list[np.ndarray]:
    most, total, summed = inputs
    position, first, extent, parts = scalars
    (heads, length, _), constants = blocks, kernel.constants
    assert (length, heads, parts) == most.shape
    assert threads == constants["SLICES"] * constants["D"]
    out = np.empty((1, length, heads, summed.shape[3]))
    for row, head in np.ndindex(length, heads):
        own = position + row
        low = max(first, own - extent + 1) if constants["WINDOWED"] else first
        begin, end = (key // constants["CHUNK"] - first // constants["CHUNK"] for key in (low, own))
        seen = slice(begin, end + 1)
        shares = np.exp(most[row, head, seen] - most[row, head, seen].max())
        out[0, row, head] = shares @ summed[row, head, seen] / (shares @ total[row, head, seen])
    return [out.reshape(1, length, -1)]


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (products, attention):
        monkeypatch.setattr(module, "compiled", StandIn)
    for module in ("linear", "cuda.attention"):
        monkeypatch.setattr(f"engine.model.{module}.available", lambda: True)


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("window", [None, 100, 256])
@pytest.mark.parametrize("group", [2, 16])
def test_attention_of_few_rows_is_that_of_the_mask(window: int | None, group: int) -> None:
    """From an empty cache, across chunks, past the window, after a cut, and after the buffer has moved."""
    mx.random.seed(3)
    heads = 2 * group

    def normal(*shape: int) -> mx.array:
        return mx.random.normal(shape).astype(mx.bfloat16).astype(mx.float32)

    bias = RelativeBias(normal(5, window or 40), windowed=window is not None)
    attend = RowAttention(64, group, 5, bias)
    cache = KVCache(window)
    for rows, cut in ((1, 0), (5, 2), (60, 0), (3, 0), (9, 8), (200, 0), (2, 1), (90, 0), (300, 0), (16, 5), (4, 0)):
        q, r = normal(1, rows, heads, 64) * 8, normal(1, rows, heads, 5)
        position = cache.offset
        view = cache.append(normal(1, 2, rows, 64), normal(1, 2, rows, 64))
        if rows <= products.MOST_ROWS:
            found = attend(q, r, cache, view.first)
            q, r = q.swapaxes(1, 2), r.swapaxes(1, 2)
            wanted = attend_at_once(q, r, view, position=position, bias=bias, tau=None, scale=1 / 64)
            wanted = wanted.swapaxes(1, 2).reshape(1, rows, -1)
            assert mx.abs(found - wanted.astype(mx.bfloat16)).max().item() < 0.02  # a bit of bfloat16
        if cut:
            cache.trim(cut)


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 16])
def test_a_plain_matrix_gives_few_rows_to_our_kernel(
    rows: int, dtype: mx.Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def watched(name: str, source: str, **constants: Any) -> Callable[..., list[mx.array]]:
        started.append(name)
        return StandIn(name, source, **constants)

    monkeypatch.setattr(products, "compiled", watched)
    matrix = Dense(mx.random.normal((100, 64)).astype(dtype))
    x = mx.random.normal((1, rows, 64)).astype(dtype)
    wanted = x @ matrix.weight.T
    assert mx.abs(matrix(x) - wanted).max().item() < (TOLERANCE if dtype == mx.float32 else 0.2)
    assert len(started) == 1
    many = mx.random.normal((1, products.MOST_ROWS + 1, 64)).astype(dtype)
    assert matrix(many).shape == (1, 17, 100)
    assert matrix(x.astype(mx.float16)).shape == (1, rows, 100)  # not stored as the rows are
    assert len(started) == 1


@pytest.mark.usefixtures("on_gpu")
def test_only_what_our_kernels_compute_is_called_row_invariant() -> None:
    weight = mx.random.normal((64, 128))

    def packed(bits: int, mode: str = "affine", dtype: mx.Dtype = mx.bfloat16) -> Packed:
        group = 64 if mode == "affine" else 32
        codes, scales, *biases = mx.quantize(weight.astype(dtype), group_size=group, bits=bits, mode=mode)
        return Packed(codes, scales, biases[0] if biases else None, Quantization(group, bits, mode))

    plain = Dense(weight.astype(mx.bfloat16))
    assert plain.row_invariant
    assert all(packed(bits).row_invariant for bits in (2, 3, 4, 5, 6, 8))
    assert Joined([plain, packed(4)]).row_invariant
    for other in (
        packed(4, "mxfp4"),
        packed(4, dtype=mx.float16),
        Dense(weight[:, :12]),
        Dense(weight.astype(mx.float16)),
    ):
        assert not other.row_invariant
        assert not Joined([plain, other]).row_invariant
    assert attention.takes(64, 4, mx.bfloat16)
    assert attention.takes(64, 64, mx.bfloat16)
    assert not attention.takes(64, 65, mx.bfloat16)
    assert not attention.takes(96, 4, mx.bfloat16)
    assert not attention.takes(512, 4, mx.bfloat16)
    assert not attention.takes(64, 4, mx.float32)


def test_nothing_is_claimed_without_cuda() -> None:
    assert not compiler.available()
    assert not tiny().backbone.row_invariant
    assert not any(layer.plain.row_invariant for layer in tiny().backbone.layers)


def test_kernels_are_named_by_all_that_they_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX loads a kernel once per name."""
    seen: list[str] = []

    def compile_nothing(source: str, architecture: str) -> bytes:
        seen.append(source)
        return b""

    monkeypatch.setattr(compiler, "_compile", compile_nothing)
    monkeypatch.setattr(compiler, "_capability", lambda: (9, 0))
    source = 'extern "C" __global__ void NAME(T* out) { *out = WIDTH; }'
    kernels = [
        compiler.compiled("test", source, WIDTH=1, T=mx.float32),
        compiler.compiled("test", source, WIDTH=2, T=mx.float32),
        compiler.compiled("test", source, WIDTH=1, T=mx.bfloat16),
        compiler.compiled("test", source + " ", WIDTH=1, T=mx.float32),
    ]
    assert len({kernel.name for kernel in kernels}) == 4
    assert compiler.compiled("test", source, WIDTH=1, T=mx.float32) is kernels[0]
    for kernel, text in zip(kernels, seen, strict=True):
        assert f"void {kernel.name}(" in text
    assert "using T = bf16;" in seen[2]
    assert "#define WIDTH 2" in seen[1]

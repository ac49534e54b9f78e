"""What the machine can do: bytes per second from memory, operations per second by number of rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import mlx.core as mx

from engine.bench.cost import Work
from engine.model.fused.products import few_rows
from engine.model.linear import Dense

_BANDWIDTH_ARRAY = 8 << 20
"""Bytes of one array of the working set, the size of a large matrix."""

_RATE_PRODUCTS = 16
"""Products per measurement of the matmul rate, all with the same matrix, which then stays in the cache."""

_PASSES = 4
"""Passes per measurement of a whole device, so that launching them hardly counts."""
_WIDE = 4096


@dataclass(frozen=True, slots=True)
class Machine:
    bandwidth: float
    """Bytes per second while a working set of a step's size is read: the fastest of the ways tried."""
    ways: dict[str, float]
    """Bytes per second by way of reading."""
    rates: dict[int, float]
    """Operations per second of a product with a matrix in the cache, by rows."""

    def seconds(self, work: Work, rows: int) -> float:
        """The least time for `work`: that of its bytes or of its operations, whichever is longer."""
        return max(work.nbytes / self.bandwidth, work.ops / self.rates[rows])


def measure_machine(nbytes: float, hidden: int, rows: Sequence[int], dtype: mx.Dtype, repeats: int = 5) -> Machine:
    """Measure in this process, with its BLAS and threads.

    Args:
        nbytes: size of the working set.
        hidden: inputs of the matrices; their outputs are as many as make a large one.
        rows: numbers of rows to measure the matmul rate for.
    """
    outputs = max(64, _BANDWIDTH_ARRAY // (hidden * dtype.size) // 64 * 64)
    count = max(1, round(nbytes / (outputs * hidden * dtype.size)))
    matrices = [Dense(mx.random.normal((outputs, hidden)).astype(dtype)) for _ in range(count)]
    mx.eval([matrix.weight for matrix in matrices])
    read = sum(matrix.nbytes for matrix in matrices)
    tiled = [few_rows(matrix) for matrix in matrices]
    x = mx.random.normal((1, hidden)).astype(dtype)
    ways = {
        "product of one row": read / seconds(lambda: [matrix(x) for matrix in matrices], repeats),
        "product of one row in tiles": read / seconds(lambda: [product(x) for product in tiled], repeats),
        "maximum": read / seconds(lambda: [matrix.weight.max() for matrix in matrices], repeats),
    }
    rates = {count: _rate(count, hidden, dtype, repeats) for count in rows}
    return Machine(max(ways.values()), ways, rates)


def _rate(rows: int, hidden: int, dtype: mx.Dtype, repeats: int) -> float:
    side = min(hidden, 512)
    matrix = Dense(mx.random.normal((side, side)).astype(dtype))
    xs = [mx.random.normal((rows, side)).astype(dtype) for _ in range(_RATE_PRODUCTS)]
    mx.eval(matrix.weight, xs)
    best = min(seconds(lambda way=way: [way(x) for x in xs], repeats) for way in (matrix, few_rows(matrix)))
    return 2.0 * rows * side * side * _RATE_PRODUCTS / best


def measure_device(dtype: mx.Dtype, *, nbytes: int, side: int, repeats: int) -> Machine:
    """Bandwidth over an array of `nbytes` and the rate of a square product, whichever is the best of a few ways.

    Args:
        nbytes: well above the processor's caches.
        side: of the matrices multiplied.
    """
    columns = _WIDE if nbytes >= 1 << 24 else 64
    read = Work(nbytes * _PASSES)
    wide = mx.random.normal((nbytes // (columns * dtype.size), columns), dtype=dtype)
    x = mx.random.normal((1, columns)).astype(dtype)
    a, b = (mx.random.normal((side, side)).astype(dtype) for _ in range(2))
    mx.eval(wide, x, a, b)
    ways = {
        "maximum": read.nbytes / seconds(lambda: [wide.max() for _ in range(_PASSES)], repeats),
        "copy": 2 * read.nbytes / seconds(lambda: [mx.abs(wide) for _ in range(_PASSES)], repeats),
        "product of one row": read.nbytes / seconds(lambda: [x @ wide.T for _ in range(_PASSES)], repeats),
    }
    rate = 2.0 * side**3 * _PASSES / seconds(lambda: [a @ b for _ in range(_PASSES)], repeats)
    return Machine(max(ways.values()), ways, {1: rate})


def seconds(compute: Callable[[], Sequence[mx.array]], repeats: int, after: Callable[[], None] | None = None) -> float:
    """Median time to evaluate the arrays that `compute` builds; building them is not counted.

    Args:
        after: called after every evaluation, outside the measured time.
    """
    times: list[float] = []
    for _ in range(repeats + 1):
        arrays = compute()
        began = time.perf_counter()
        mx.eval(arrays)
        times.append(time.perf_counter() - began)
        if after is not None:
            after()
    return median(times[1:])

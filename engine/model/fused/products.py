"""Matrix products of a few rows on the CPU.

OpenBLAS has kernels for small products that do not copy the matrix into panels first; with up to 16 rows that copy
costs more than the product. They are chosen when rows x outputs <= 1200 (for a transposed matrix) and rows x outputs x
inputs <= 100^3 (`sgemm_small_matrix_permit` of the SkylakeX kernels). A large matrix multiplied tile by tile, as one
batched product over a view, therefore takes a half to a third of the time of the whole product.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from engine.model.linear import Dense, Projection

FEW_ROWS = 16
"""Most rows of a product that is tiled."""
_MOST_OUTPUTS = 1200
_MOST_WORK = 1_000_000
_LEAST_TILE = 16

Product = Callable[[mx.array], mx.array]


def tile_height(outputs: int, inputs: int) -> int | None:
    """Rows of a matrix [outputs, inputs] per tile, a divisor of `outputs`; None where tiles do not pay."""
    most = min(outputs, _MOST_OUTPUTS // FEW_ROWS, _MOST_WORK // (FEW_ROWS * inputs))
    return next((height for height in range(most, _LEAST_TILE - 1, -1) if outputs % height == 0), None)


def few_rows(matrix: Projection) -> Product:
    """The product of rows [L, in], L <= `FEW_ROWS`, with a matrix -> [L, out]."""
    if not isinstance(matrix, Dense) or matrix.weight.dtype != mx.float32 or mx.default_device() != mx.cpu:
        return matrix
    outputs, inputs = matrix.shape
    height = tile_height(outputs, inputs)
    if height is None:
        return matrix
    tiles = matrix.weight.reshape(-1, height, inputs).swapaxes(1, 2)
    mx.eval(tiles)

    def product(x: mx.array) -> mx.array:
        parts = x[None] @ tiles
        return parts.swapaxes(0, 1).reshape(x.shape[0], outputs)

    return product


def any_rows(matrix: Projection, *, fused: bool = True) -> Product:
    """The product of rows [1, L, in] with a matrix -> [1, L, out], by `few_rows` where they are few.

    Args:
        fused: False always takes the whole product.
    """
    few = few_rows(matrix)
    if not fused or few is matrix:
        return matrix

    def product(x: mx.array) -> mx.array:
        return matrix(x) if x.shape[1] > FEW_ROWS else few(x.squeeze(0))[None]

    return product

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


def tile_height(outputs: int, inputs: int, rows: int = FEW_ROWS) -> int | None:
    """Rows of a matrix [outputs, inputs] per tile, a divisor of `outputs`; None where tiles do not pay."""
    most = min(outputs, _MOST_OUTPUTS // rows, _MOST_WORK // (rows * inputs))
    return next((height for height in range(most, _LEAST_TILE - 1, -1) if outputs % height == 0), None)


def few_rows(matrix: Projection) -> Product:
    """The product of rows [L, in], L <= `FEW_ROWS`, with a matrix -> [L, out]."""
    if not isinstance(matrix, Dense) or matrix.weight.dtype != mx.float32 or mx.default_device() != mx.cpu:
        return matrix
    outputs, inputs = matrix.shape
    heights = [tile_height(outputs, inputs, rows) for rows in (1, FEW_ROWS)]
    if heights[1] is None:
        return matrix
    # The taller the tiles the better they stream, and one row allows tall ones.
    single, several = (matrix.weight.reshape(-1, height or outputs, inputs).swapaxes(1, 2) for height in heights)
    if single.shape[0] == 1:
        single = single.squeeze(0)
    mx.eval(single, several)

    def product(x: mx.array) -> mx.array:
        if x.shape[0] == 1:
            return (x @ single).reshape(1, outputs)
        return (x[None] @ several).swapaxes(0, 1).reshape(x.shape[0], outputs)

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

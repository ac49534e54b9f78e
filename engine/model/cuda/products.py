"""Products of a few rows with a matrix on CUDA, in an order of sums that knows nothing of the other rows.

MLX has kernels for one row and leaves several to cuBLAS or to tiles, chosen by their number: the same row then rounds
differently alone and within a block. Here a block of threads computes 16 outputs of all rows on tensor cores, one row
being a column of eight that may stand empty. Each of its warps takes every fourth slab of the inputs in ascending
order, and the warps' sums are added in theirs. Weights are read from memory once, for one row as for sixteen (experts
once per route, the float32 router once per three rows), and the LM head takes as long for nine rows as for one.
"""

from __future__ import annotations

import mlx.core as mx

from engine.model.cuda.compiler import Kernel, compiled
from engine.model.cuda.product_source import FLOAT, TENSOR

MOST_ROWS = 16
"""Rows that these kernels are made for."""

_OUTPUTS, _COLUMNS, _THREADS = 16, 8, 128
_FLOAT_ROWS = 3
"""Rows that share the reading of a float32 matrix. That is the router's; whole models are bfloat16 on a GPU."""


def multiply(x: mx.array, weights: tuple[mx.array, ...], bits: int = 0, group: int = 0) -> mx.array:
    """Up to `MOST_ROWS` rows [..., in] times a matrix [out, in] -> [..., out], each row as if it were alone.

    Args:
        x: bfloat16, or float32 with a plain matrix; a multiple of 8 inputs.
        weights: the matrix in the dtype of `x`; or codes, scales and biases of an affinely packed one.
        bits, group: of a packed one.
    """
    rows = x.reshape(-1, x.shape[-1])
    count, inputs, outputs = rows.shape[0], rows.shape[1], weights[0].shape[-2]
    if x.dtype == mx.float32:
        kernel = compiled("product_f32", FLOAT, ROWS=_FLOAT_ROWS)
        per_block, depth = _THREADS // 32, -(-count // _FLOAT_ROWS)
    else:
        kernel = _tensor(weights, -(-count // _COLUMNS), bits, group, experts=False)
        per_block, depth = _OUTPUTS, 1
    out = kernel(
        [rows, *weights],
        [inputs, outputs, count],
        blocks=(-(-outputs // per_block), 1, depth),
        threads=_THREADS,
        outputs=[((count, outputs), x.dtype)],
    )[0]
    return out.reshape(*x.shape[:-1], outputs)


def multiply_experts(
    x: mx.array, weights: tuple[mx.array, ...], experts: mx.array, bits: int = 0, group: int = 0
) -> mx.array:
    """Rows [R, in], each with P / R experts, times the experts' matrices [E, out, in] -> [P, out].

    Args:
        experts: uint32 [P].
        x, weights, bits, group: as in `multiply`, in bfloat16.
    """
    pairs, inputs, outputs = experts.shape[0], x.shape[1], weights[0].shape[-2]
    return _tensor(weights, 1, bits, group, experts=True)(
        [x, *weights, experts],
        [inputs, outputs, pairs // x.shape[0]],
        blocks=(-(-outputs // _OUTPUTS), 1, pairs),
        threads=_THREADS,
        outputs=[((pairs, outputs), mx.bfloat16)],
    )[0]


def _tensor(weights: tuple[mx.array, ...], tiles: int, bits: int, group: int, *, experts: bool) -> Kernel:
    packing: dict[str, int | mx.Dtype] = {"GROUP": group, "S": weights[1].dtype} if bits else {}
    name = f"product_{bits}bit" if bits else "product"
    return compiled(name, TENSOR, TILES=tiles, BITS=bits, EXPERTS=int(experts), **packing)

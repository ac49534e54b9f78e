"""Matrices of a checkpoint, plain or quantized, behind one interface.

A matrix has shape [..., out, in]; experts stack theirs in a leading axis. `m(x)` is x @ m.T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.model.cuda.compiler import TYPES, available
from engine.model.cuda.products import MOST_ROWS, multiply, multiply_experts
from engine.model.device import on_cuda

_GATHER_SLICE = 64
"""Routes gathered at a time where no gather kernel takes the dtype (bounds the copied weights)."""

MOST_ROUTES = 128
"""Routes that our kernel for packed experts takes on CUDA: eight for each of `MOST_ROWS` rows."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How MLX packed a matrix; `mode` is one of affine, mxfp4, mxfp8, nvfp4."""

    group_size: int
    bits: int
    mode: str = "affine"


class Dense:
    """A matrix stored as it is multiplied."""

    __slots__ = ("weight",)

    def __init__(self, weight: mx.array) -> None:
        self.weight = weight

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.weight.shape)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        return (self.weight,)

    @property
    def row_invariant(self) -> bool:
        """Whether each of up to `MOST_ROWS` rows gives the bits that it gives alone: on CUDA, with our own kernels."""
        plain = self.weight.ndim == 2 and self.weight.dtype in TYPES
        return plain and self.weight.shape[-1] % 8 == 0 and available()

    def __call__(self, x: mx.array) -> mx.array:
        """[..., in] -> [..., out]."""
        if _are_few(x) and x.dtype == self.weight.dtype and self.row_invariant:
            return multiply(x, self.arrays)
        return x @ self.weight.swapaxes(-1, -2)

    def take(self, ids: mx.array, dtype: mx.Dtype) -> mx.array:
        """Rows `ids` [...] -> [..., in]."""
        return self.weight[ids].astype(dtype)

    def gather(self, x: mx.array, experts: mx.array, *, ascending: bool = False) -> mx.array:
        """x [R, 1, in] times the matrix of each row's expert [R] -> [R, 1, out].

        Args:
            ascending: the experts are in order, so that a kernel may read each of them once for all its rows.
        """
        weight = self.weight.swapaxes(-1, -2)
        if x.dtype == mx.float32 or mx.default_device() == mx.gpu:
            return mx.gather_mm(x, weight, rhs_indices=experts, sorted_indices=ascending)
        # The CPU's gather_mm takes float32 only: copy the experts' matrices, a few routes at a time.
        parts = [
            x[i : i + _GATHER_SLICE] @ weight[experts[i : i + _GATHER_SLICE]]
            for i in range(0, x.shape[0], _GATHER_SLICE)
        ]
        return mx.concatenate(parts) if len(parts) > 1 else parts[0]

    def expert(self, index: int | slice) -> Dense:
        """The matrix [out, in] of one expert, or those of a range."""
        return Dense(self.weight[index])

    def dequantize(self, dtype: mx.Dtype) -> mx.array:
        return self.weight.astype(dtype)


class Packed:
    """A matrix in one of MLX's quantized formats."""

    __slots__ = ("biases", "quantization", "scales", "weight")

    def __init__(self, weight: mx.array, scales: mx.array, biases: mx.array | None, quantization: Quantization) -> None:
        self.weight = weight
        self.scales = scales
        self.biases = biases
        self.quantization = quantization

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.weight.shape[:-1], self.weight.shape[-1] * 32 // self.quantization.bits)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays)

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        parts = (self.weight, self.scales)
        return parts if self.biases is None else (*parts, self.biases)

    @property
    def row_invariant(self) -> bool:
        """See `Dense.row_invariant`; in bfloat16."""
        return self.quantization.mode == "affine" and self.scales.dtype in TYPES and available()

    def __call__(self, x: mx.array) -> mx.array:
        q = self.quantization
        if on_cuda():
            if not _are_few(x):
                # Twice as fast for 512 rows as multiplying by the packed matrix is, half as fast for 24.
                return x @ self._expand(self.weight, self.scales, self.biases, x.dtype, exact=False).swapaxes(-1, -2)
            if self.row_invariant and x.dtype == mx.bfloat16:
                return multiply(x, self.arrays, q.bits, q.group_size)
        y = mx.quantized_matmul(
            x, self.weight, self.scales, self.biases, transpose=True, group_size=q.group_size, bits=q.bits, mode=q.mode
        )
        return y.astype(x.dtype)

    def take(self, ids: mx.array, dtype: mx.Dtype) -> mx.array:
        biases = None if self.biases is None else self.biases[ids]
        return self._expand(self.weight[ids], self.scales[ids], biases, dtype)

    def gather(self, x: mx.array, experts: mx.array, *, ascending: bool = False) -> mx.array:
        """See `Dense.gather`."""
        q = self.quantization
        if x.shape[0] <= MOST_ROUTES and x.dtype == mx.bfloat16 and self.row_invariant:
            return multiply_experts(x[:, 0], self.arrays, experts, q.bits, q.group_size)[:, None]
        y = mx.gather_qmm(
            x,
            self.weight,
            self.scales,
            self.biases,
            rhs_indices=experts,
            transpose=True,
            group_size=q.group_size,
            bits=q.bits,
            mode=q.mode,
            sorted_indices=ascending,
        )
        return y.astype(x.dtype)

    def expert(self, index: int) -> Packed:
        biases = None if self.biases is None else self.biases[index]
        return Packed(self.weight[index], self.scales[index], biases, self.quantization)

    def dequantize(self, dtype: mx.Dtype) -> mx.array:
        return self._expand(self.weight, self.scales, self.biases, dtype)

    def _expand(
        self, weight: mx.array, scales: mx.array, biases: mx.array | None, dtype: mx.Dtype, *, exact: bool = True
    ) -> mx.array:
        """
        Args:
            exact: compute in float32, as packed values are; otherwise in `dtype`, as CUDA's kernels for several rows.
        """
        q, within = self.quantization, mx.float32 if exact else dtype
        if biases is not None:
            # The expansion is computed in the scales' dtype.
            scales, biases = scales.astype(within), biases.astype(within)
        wide = mx.dequantize(weight, scales, biases, group_size=q.group_size, bits=q.bits, mode=q.mode, dtype=within)
        return wide.astype(dtype)


class Joined:
    """Matrices over the same input, one below the other, that no single array can hold (mixed formats)."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Dense | Packed]) -> None:
        self.parts = tuple(parts)

    @property
    def shape(self) -> tuple[int, ...]:
        first = self.parts[0].shape
        return (*first[:-2], sum(part.shape[-2] for part in self.parts), first[-1])

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        return tuple(array for part in self.parts for array in part.arrays)

    @property
    def row_invariant(self) -> bool:
        """See `Dense.row_invariant`."""
        return all(part.row_invariant for part in self.parts)

    def __call__(self, x: mx.array) -> mx.array:
        """[..., in] -> [..., out]."""
        return mx.concatenate([part(x) for part in self.parts], axis=-1)

    def gather(self, x: mx.array, experts: mx.array, *, ascending: bool = False) -> mx.array:
        """x [R, 1, in] times the matrices of each row's expert [R] -> [R, 1, out]; see `Dense.gather`."""
        return mx.concatenate([part.gather(x, experts, ascending=ascending) for part in self.parts], axis=-1)

    def expert(self, index: int) -> Joined:
        return Joined([part.expert(index) for part in self.parts])


Matrix = Dense | Packed
Projection = Dense | Packed | Joined
"""What a layer multiplies its rows by."""


def _are_few(x: mx.array) -> bool:
    return x.size <= MOST_ROWS * x.shape[-1]


def stack(parts: Sequence[Matrix]) -> Projection:
    """Matrices [..., out_i, in] as one [..., sum of out_i, in], evaluated, so that one product serves all of them."""
    joint: Projection
    if all(isinstance(part, Dense) for part in parts) and len({part.arrays[0].dtype for part in parts}) == 1:
        joint = Dense(mx.concatenate([part.arrays[0] for part in parts], axis=-2))
    elif all(isinstance(part, Packed) for part in parts) and len({_format(part) for part in parts}) == 1:
        first = parts[0]
        assert isinstance(first, Packed)
        arrays = [mx.concatenate(list(same), axis=-2) for same in zip(*(part.arrays for part in parts), strict=True)]
        joint = Packed(arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None, first.quantization)
    else:
        joint = Joined(parts)
    mx.eval(joint.arrays)
    return joint


def _format(matrix: Matrix) -> object:
    assert isinstance(matrix, Packed)
    return matrix.quantization, tuple(array.dtype for array in matrix.arrays)

"""Parameters with random values, made on the device in the form in which layers read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import ceil, prod, sqrt

import mlx.core as mx

from engine.model.linear import Dense, Matrix, Packed, Quantization
from engine.model.params import Parameter, arrays_of, lay_out
from engine.weights.packing import read_declared
from engine.weights.recipe import quantize
from engine.weights.targets import Target

_PART = 1 << 27
"""Values drawn at a time: bounds the float32 that they are drawn in, and keeps every kernel within 32-bit indices."""


def random_parameters(
    targets: Iterable[Target], dtype: mx.Dtype, quantization: dict[str, object] | None, seed: int
) -> dict[str, Parameter]:
    """Seeded parameters, layer by layer, so that no more than one layer exists in two forms.

    Matrices keep the norm of what they multiply, norms and scales are ones: activations stay finite.

    Args:
        dtype: of matrices and of arrays that are not always float32.
        quantization: block of a config; says which matrices are packed, and how.
    """
    declared, key = read_declared(quantization), mx.random.key(seed)
    params: dict[str, Parameter] = {}
    for _, group in groupby((t for t in targets if not t.optional), key=lambda target: _owner(target.name)):
        layer: dict[str, Parameter] = {}
        for target in group:
            key, own = mx.random.split(key)
            packing = declared.of(target.name) if target.kind == "matrix" else None
            layer[target.name] = _parameter(target, dtype, packing, own)
            mx.eval(arrays_of(layer[target.name]))
        lay_out(layer)
        params.update(layer)
        mx.clear_cache()
    return params


def _owner(name: str) -> str:
    """The layer or MTP block of a parameter, or its own name."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] in ("layers", "mtp") else name


def _parameter(target: Target, dtype: mx.Dtype, packing: Quantization | None, key: mx.array) -> Parameter:
    if target.kind == "matrix":
        return _matrix(target.shape, dtype, packing, key)
    kept = mx.float32 if target.kind == "float32" else dtype
    if len(target.shape) == 1:
        return mx.ones(target.shape, kept)
    return mx.random.normal(target.shape, scale=target.shape[-1] ** -0.5, key=key).astype(kept)


def _matrix(shape: Sequence[int], dtype: mx.Dtype, packing: Quantization | None, key: mx.array) -> Matrix:
    """[..., out, in] of variance 1 / in."""
    if packing is not None and packing.mode == "affine":
        return _affine(shape, dtype, packing, key)
    dense = _dense(shape, dtype, key)
    return dense if packing is None else quantize(dense.weight, packing)


def _dense(shape: Sequence[int], dtype: mx.Dtype, key: mx.array) -> Dense:
    """Drawn in parts along the leading axis."""
    rest = tuple(shape[1:])
    height = max(1, _PART // prod(rest))
    keys = mx.random.split(key, ceil(shape[0] / height))
    parts: list[mx.array] = []
    for i, low in enumerate(range(0, shape[0], height)):
        drawn = (min(height, shape[0] - low), *rest)
        parts.append(mx.random.normal(drawn, scale=shape[-1] ** -0.5, key=keys[i]).astype(dtype))
        mx.eval(parts[-1])
    return Dense(parts[0] if len(parts) == 1 else mx.concatenate(parts))


def _affine(shape: Sequence[int], dtype: mx.Dtype, packing: Quantization, key: mx.array) -> Packed:
    """Random codes under one scale: nothing is drawn in full and packed afterwards."""
    words = (*shape[:-1], shape[-1] * packing.bits // 32)
    codes = mx.random.split(key, prod(words) // 2).reshape(words)  # keys are random words themselves
    highest = 2**packing.bits - 1
    step = sqrt(12 / (highest * (highest + 2) * shape[-1]))
    groups = (*shape[:-1], shape[-1] // packing.group_size)
    scales, biases = (mx.full(groups, value, dtype) for value in (step, -step * highest / 2))
    return Packed(codes, scales, biases, packing)

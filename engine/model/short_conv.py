"""The depthwise causal convolution over time that follows k, v, the attention and the MLP branch."""

from __future__ import annotations

import mlx.core as mx

from engine.cache import ConvCache


class ShortConv:
    """y_t = u_t + sum_k w[:, k] * u_(t - taps + k), with zeros before the sequence, in float32.

    The last tap multiplies the current input. The inner residual `u_t` is part of the operator; the
    layer adds its own.

    Args:
        weight: float32 [channels, kernel].
    """

    def __init__(self, weight: mx.array) -> None:
        self.taps = [weight[:, k] for k in range(weight.shape[1])]

    def __call__(self, x: mx.array, cache: ConvCache) -> mx.array:
        """[1, L, C] -> [1, L, C] in the dtype of `x`; the inputs join `cache`."""
        length = x.shape[1]
        inputs = cache.extend(x.astype(mx.float32))
        y = inputs[:, cache.taps : cache.taps + length]
        for k, tap in enumerate(self.taps):
            y = y + inputs[:, k : k + length] * tap
        return y.astype(x.dtype)

"""The depthwise causal convolution over time that follows k and v, the attention and the MLP branch."""

from __future__ import annotations

import mlx.core as mx

from engine.cache import ConvCache


class ShortConv:
    """y_t = u_t + sum_k w[:, k] * u_(t - taps + k), with zeros before the sequence, in float32.

    The last tap multiplies the current input. The inner residual `u_t` is part of the operator, and of the last tap
    here; the layer adds its own.

    Args:
        weight: float32 [channels, kernel].
    """

    def __init__(self, weight: mx.array) -> None:
        channels, taps = weight.shape
        residual = mx.concatenate([mx.zeros((taps - 1, channels)), mx.ones((1, channels))])
        self.weight = mx.contiguous(weight.T) + residual
        mx.eval(self.weight)

    def __call__(self, x: mx.array, cache: ConvCache) -> mx.array:
        """[1, L, C] -> [1, L, C] in the dtype of `x`; the inputs join `cache`."""
        y, inputs = self.apply(x, cache.state(x.shape[-1]))
        cache.replace(inputs)
        return y

    def apply(self, x: mx.array, past: mx.array) -> tuple[mx.array, mx.array]:
        """[1, L, C] and the float32 inputs before them [1, taps, C] -> the result, and past and new inputs."""
        length, channels = x.shape[1:]
        inputs = mx.concatenate([past, x.astype(mx.float32)], axis=1)
        # Overlapping windows [1, L, kernel, C] as a view: one product and one sum in place of a pair per tap.
        shape, strides = (1, length, self.weight.shape[0], channels), (0, channels, channels, 1)
        windows = mx.as_strided(inputs, shape, strides)
        return (windows * self.weight).sum(axis=2).astype(x.dtype), inputs

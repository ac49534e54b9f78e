"""Which equivalent of a layer computes a few rows here."""

from __future__ import annotations

import mlx.core as mx

from engine.cache import LayerCache
from engine.model.fused import cpu_layer, gpu_layer
from engine.model.fused.products import FEW_ROWS
from engine.model.layer import DecoderLayer


class Layer:
    """A decoder layer that computes up to `FEW_ROWS` rows the fast way, where there is one, and more the plain way.

    Args:
        fused: False takes the plain way always.
    """

    def __init__(self, plain: DecoderLayer, *, fused: bool) -> None:
        self.plain = plain
        self.few = few_row_layer(plain) if fused else None

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        """[1, L, H] -> [1, L, H]; keys and values join the cache."""
        if self.few is None or x.shape[1] > FEW_ROWS:
            return self.plain(x, cache)
        return self.few(x, cache)


def few_row_layer(plain: DecoderLayer) -> cpu_layer.CPULayer | gpu_layer.CompiledLayer | None:
    """The fast equivalent of a layer, or None where there is none."""
    if mx.default_device() == mx.gpu:
        return gpu_layer.CompiledLayer(plain)
    return cpu_layer.CPULayer(plain) if cpu_layer.suits(plain) else None

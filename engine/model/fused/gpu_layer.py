"""`DecoderLayer` for a few rows on a GPU, where every kernel launch costs more than most of them compute.

All that does not touch the keys is compiled into two functions of fixed shape per number of rows: norms, projections
and the k and v convolution in front of the attention; output projection, convolutions, router and MLP
behind it. The arithmetic is the plain layer's own.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from engine.cache import LayerCache
from engine.model.attention import Projected
from engine.model.layer import DecoderLayer

_Arrays = tuple[mx.array, ...]


class CompiledLayer:
    """Computes [1, L, H] -> [1, L, H] as `layer` does; weights are shared with it."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.layer = layer
        self._before: Callable[..., _Arrays] = mx.compile(self._project)
        self._after: Callable[..., _Arrays] = mx.compile(self._finish)

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        """[1, L, H] -> [1, L, H]; keys and values join the cache."""
        attn = self.layer.attn
        tau = attn.tau(cache.offset, x.shape[1])
        past = cache.kv_conv.state(2 * attn.kv_width)
        rows = Projected(*(self._before(x, past) if tau is None else self._before(x, past, tau)))
        cache.kv_conv.replace(rows.inputs)
        attended = attn.attend(rows, tau, cache.kv)
        pasts = (conv.state(x.shape[-1]) for conv in (cache.attn_conv, cache.mlp_conv))
        x, attn_inputs, mlp_inputs = self._after(attended, x, *pasts, self.layer.mlp.scale)
        cache.attn_conv.replace(attn_inputs)
        cache.mlp_conv.replace(mlp_inputs)
        return x

    def _project(self, x: mx.array, past: mx.array, tau: mx.array | None = None) -> _Arrays:
        layer = self.layer
        return layer.attn.project(mx.fast.rms_norm(x, layer.attn_norm, layer.eps), past, tau)

    def _finish(
        self, attended: mx.array, x: mx.array, attn_past: mx.array, mlp_past: mx.array, scale: mx.array
    ) -> _Arrays:
        layer = self.layer
        y, attn_inputs = layer.attn_conv.apply(layer.attn.o_proj(attended), attn_past)
        x = x + y
        y, mlp_inputs = layer.mlp_conv.apply(layer.mlp(mx.fast.rms_norm(x, layer.mlp_norm, layer.eps), scale), mlp_past)
        return x + y, attn_inputs, mlp_inputs

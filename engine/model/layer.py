"""A decoder layer: residual arithmetic around attention, MLP and two short convolutions."""

from __future__ import annotations

import mlx.core as mx

from engine.cache import LayerCache
from engine.config import TextConfig
from engine.model.attention import Attention
from engine.model.mlp import DenseMLP, MoE
from engine.model.params import Params, array
from engine.model.short_conv import ShortConv


class DecoderLayer:
    """x + S(attention(norm x)), then x + S(mlp(norm x)), S being a short convolution."""

    def __init__(self, config: TextConfig, params: Params, name: str, *, sliding: bool, dense: bool) -> None:
        self.eps = config.rms_norm_eps
        self.attn_norm, self.mlp_norm = array(params, f"{name}.attn_norm"), array(params, f"{name}.mlp_norm")
        self.attn = Attention(config, params, f"{name}.attn", sliding)
        self.mlp = DenseMLP(params, f"{name}.mlp") if dense else MoE(config, params, f"{name}.mlp")
        self.attn_conv = ShortConv(array(params, f"{name}.attn_conv"))
        self.mlp_conv = ShortConv(array(params, f"{name}.mlp_conv"))

    @property
    def row_invariant(self) -> bool:
        """See `engine.model.linear.Dense.row_invariant`: norms, convolutions and sums over experts are as well."""
        return self.attn.row_invariant and self.mlp.row_invariant

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        """[1, L, H] -> [1, L, H]."""
        attended = self.attn(mx.fast.rms_norm(x, self.attn_norm, self.eps), cache)
        x = x + self.attn_conv(attended, cache.attn_conv)
        mixed = self.mlp(mx.fast.rms_norm(x, self.mlp_norm, self.eps))
        return x + self.mlp_conv(mixed, cache.mlp_conv)


def layer_cache(config: TextConfig, sliding: bool) -> LayerCache:
    """An empty cache for a layer of that kind."""
    return LayerCache(config.attention(sliding).window, config.conv_kernel)

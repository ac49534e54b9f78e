"""The decoder: embedding, layers, final norm, LM head. Residual arithmetic only; batch size 1."""

from __future__ import annotations

import mlx.core as mx

from engine.cache import Cache, LayerCache
from engine.config import ModelConfig, TextConfig
from engine.model.attention import Attention
from engine.model.mlp import DenseMLP, MoE
from engine.model.params import Params, array, matrix
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

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        """[1, L, H] -> [1, L, H]."""
        attended = self.attn(mx.fast.rms_norm(x, self.attn_norm, self.eps), cache)
        x = x + self.attn_conv(attended, cache.attn_conv)
        mixed = self.mlp(mx.fast.rms_norm(x, self.mlp_norm, self.eps))
        return x + self.mlp_conv(mixed, cache.mlp_conv)


def layer_cache(config: TextConfig, sliding: bool) -> LayerCache:
    """An empty cache for a layer of that kind."""
    return LayerCache(config.attention(sliding).window, config.conv_kernel)


class Backbone:
    """The target model. Hidden states are those before the final norm unless said otherwise.

    Args:
        params: canonical names, see `engine.model.params`.
        dtype: of the activations; float32 or bfloat16.
    """

    def __init__(self, config: ModelConfig, params: Params, dtype: mx.Dtype) -> None:
        text = config.text
        self.config, self.dtype = text, dtype
        self.embedding, self.lm_head = matrix(params, "embed"), matrix(params, "lm_head")
        self.embed_norm = array(params, "embed_norm") if text.embed_norm else None
        self.norm = array(params, "norm")
        self.layers = [
            DecoderLayer(text, params, f"layers.{i}", sliding=sliding, dense=dense)
            for i, (sliding, dense) in enumerate(zip(text.sliding, text.dense, strict=True))
        ]

    def make_cache(self) -> Cache:
        return Cache([layer_cache(self.config, sliding) for sliding in self.config.sliding])

    def embed(self, tokens: mx.array, normed: bool = True) -> mx.array:
        """Ids [1, L] -> [1, L, H]; `normed` applies the embedding norm."""
        x = self.embedding.take(tokens, self.dtype)
        if normed and self.embed_norm is not None:
            x = mx.fast.rms_norm(x, self.embed_norm, self.config.rms_norm_eps)
        return x

    def __call__(self, tokens: mx.array, cache: Cache) -> mx.array:
        """Ids [1, L] that follow what is in `cache` -> hidden [1, L, H]."""
        x = self.embed(tokens)
        for layer, layer_state in zip(self.layers, cache.layers, strict=True):
            x = layer(x, layer_state)
        return x

    def final_norm(self, hidden: mx.array) -> mx.array:
        return mx.fast.rms_norm(hidden, self.norm, self.config.rms_norm_eps)

    def project(self, hidden: mx.array) -> mx.array:
        """LM head: normed hidden [1, L, H] -> float32 logits [1, L, unpadded vocabulary]."""
        logits = self.lm_head(hidden / self.config.mup_multiplier)
        return logits[..., : self.config.unpadded_vocab_size].astype(mx.float32)

    def logits(self, hidden: mx.array) -> mx.array:
        """[1, L, H] -> float32 [1, L, unpadded vocabulary]."""
        return self.project(self.final_norm(hidden))

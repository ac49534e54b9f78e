"""The decoder: embedding, layers, final norm, LM head. Batch size 1."""

from __future__ import annotations

import mlx.core as mx

from engine.cache import Cache
from engine.config import ModelConfig
from engine.model.fused.choice import Layer
from engine.model.fused.norm import any_norm
from engine.model.fused.products import FEW_ROWS, any_rows
from engine.model.layer import DecoderLayer, layer_cache
from engine.model.params import Params, array, matrix

LAYERS_AHEAD = 3
"""After so many layers of a few rows the device starts on them, while the host describes the next ones."""


class Backbone:
    """The target model. Hidden states are those before the final norm unless said otherwise.

    Args:
        params: canonical names, see `engine.model.params`.
        dtype: of the activations; float32 or bfloat16.
        fused: compute a few rows with `engine.model.fused` where it can; False computes everything the plain way.
    """

    def __init__(self, config: ModelConfig, params: Params, dtype: mx.Dtype, *, fused: bool = True) -> None:
        text = config.text
        self.config, self.dtype = text, dtype
        self.fused = fused
        self.embedding, self.lm_head = matrix(params, "embed"), matrix(params, "lm_head")
        self.norm, eps = array(params, "norm"), text.rms_norm_eps
        self.final_norm = any_norm(self.norm, eps, fused=fused)
        """Rows [1, L, H] -> [1, L, H]."""
        self._embed_norm = any_norm(array(params, "embed_norm"), eps, fused=fused) if text.embed_norm else None
        self._score = any_rows(self.lm_head, fused=fused)
        self.layers = [
            Layer(DecoderLayer(text, params, f"layers.{i}", sliding=sliding, dense=dense), fused=fused)
            for i, (sliding, dense) in enumerate(zip(text.sliding, text.dense, strict=True))
        ]
        parts = [self.lm_head, *(layer.plain for layer in self.layers)]
        self.row_invariant = dtype == mx.bfloat16 and all(part.row_invariant for part in parts)
        """Whether a row of a block of up to `FEW_ROWS` rows gives the bits that it gives alone, in its logits and in
        what it leaves in the caches. Claimed where our own CUDA kernels compute all products and the attention, whose
        sums do not depend on other rows. That MLX's kernels for the rest do not either is measured: `inkstand parity`.
        """

    def make_cache(self) -> Cache:
        return Cache([layer_cache(self.config, sliding) for sliding in self.config.sliding])

    def embed(self, tokens: mx.array, normed: bool = True) -> mx.array:
        """Ids [1, L] -> [1, L, H]; `normed` applies the embedding norm."""
        x = self.embedding.take(tokens, self.dtype)
        return x if self._embed_norm is None or not normed else self._embed_norm(x)

    def __call__(self, tokens: mx.array, cache: Cache) -> mx.array:
        """Ids [1, L] that follow what is in `cache` -> hidden [1, L, H]."""
        x = self.embed(tokens)
        few = tokens.shape[1] <= FEW_ROWS
        for i, (layer, layer_state) in enumerate(zip(self.layers, cache.layers, strict=True), 1):
            x = layer(x, layer_state)
            if few and i % LAYERS_AHEAD == 0:
                mx.async_eval(x)
        return x

    def project(self, hidden: mx.array) -> mx.array:
        """LM head: normed hidden [1, L, H] -> float32 logits [1, L, unpadded vocabulary]."""
        logits = self._score(hidden / self.config.mup_multiplier)
        return logits[..., : self.config.unpadded_vocab_size].astype(mx.float32)

    def logits(self, hidden: mx.array) -> mx.array:
        """[1, L, H] -> float32 [1, L, unpadded vocabulary]."""
        return self.project(self.final_norm(hidden))

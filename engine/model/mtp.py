"""The multi-token-prediction head: small decoder blocks that guess the tokens after the next one.

Block j reads, on row p, a hidden state of row p and token p + 1 + j:

    h = input_proj(concat(hidden_norm(hidden), embed_norm(embed(token))))
    g = decoder_layer(h)                     (dense MLP, its own KV and convolution caches)
    logits = lm_head(norm(g) / mup)

Embedding, final norm and LM head are the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from engine.cache import LayerCache
from engine.config import MTPConfig
from engine.model.backbone import Backbone
from engine.model.draft_head import DraftScores, Shortlist, Subset, suits
from engine.model.fused.choice import Layer
from engine.model.fused.norm import Norm, fits
from engine.model.fused.products import FEW_ROWS, any_rows
from engine.model.layer import DecoderLayer, layer_cache
from engine.model.linear import Dense
from engine.model.params import Params, array, matrix


@dataclass(frozen=True, slots=True)
class Wiring:
    """How a head is attached to its target; the default is how the released heads were trained."""

    hidden: Literal["post_norm", "pre_norm"] = "post_norm"
    """The trunk's hidden after or before its final norm."""
    embedding: Literal["normed", "raw"] = "normed"
    """The embedding side goes through the target's embedding norm before the block's own, or not."""
    readout: Literal["final_norm", "direct"] = "final_norm"
    """Logits read the block's output through the target's final norm, or directly."""


class MTPBlock:
    """One depth of the head."""

    def __init__(self, backbone: Backbone, params: Params, name: str, sliding: bool) -> None:
        self.config, self.sliding = backbone.config, sliding
        self.embed_norm, self.hidden_norm = array(params, f"{name}.embed_norm"), array(params, f"{name}.hidden_norm")
        weights = mx.stack([self.hidden_norm, self.embed_norm])[None]
        self._norms = Norm(weights, self.config.rms_norm_eps) if backbone.fused and fits(weights) else None
        """Both at once, for a few rows."""
        self.input_proj = matrix(params, f"{name}.input_proj")
        self._project = any_rows(self.input_proj, fused=backbone.fused)
        layer = DecoderLayer(backbone.config, params, f"{name}.block", sliding=sliding, dense=True)
        self.layer = Layer(layer, fused=backbone.fused)

    def __call__(self, embedded: mx.array, hidden: mx.array, cache: LayerCache) -> mx.array:
        """Embedded tokens and hidden states [1, L, H] -> [1, L, H]."""
        if self._norms is not None and hidden.shape[1] <= FEW_ROWS:
            sides = self._norms(mx.stack([hidden.squeeze(0), embedded.squeeze(0)], axis=1)).flatten(1)[None]
        else:
            eps = self.config.rms_norm_eps
            normed = [mx.fast.rms_norm(hidden, self.hidden_norm, eps), mx.fast.rms_norm(embedded, self.embed_norm, eps)]
            sides = mx.concatenate(normed, axis=-1)
        return self.layer(self._project(sides), cache)


class MTPHead:
    """All depths of a head, attached to a backbone.

    Args:
        config: depths and their kinds.
        params: `mtp.*` in canonical names.
        wiring: see `Wiring`.
    """

    def __init__(self, backbone: Backbone, config: MTPConfig, params: Params, wiring: Wiring | None = None) -> None:
        self.backbone, self.wiring = backbone, wiring or Wiring()
        self.blocks = [MTPBlock(backbone, params, f"mtp.{j}", sliding) for j, sliding in enumerate(config.sliding)]
        self.chain_norm = array(params, "mtp.chain_norm") if "mtp.chain_norm" in params else None
        self.scores: DraftScores | None = None
        """Scores drafts in place of the target's LM head."""

    def reduce(self, ids: Sequence[int] | None) -> None:
        """Score drafts for the token `ids` alone, see `engine.model.draft_head`; None scores all."""
        vocabulary = self.backbone.config.unpadded_vocab_size
        self.scores = None if ids is None else Subset(self.backbone.lm_head, ids, vocabulary)

    def shorten(self) -> None:
        """Score drafts by a shortlist where that pays, see `engine.model.draft_head`."""
        lm_head, vocabulary = self.backbone.lm_head, self.backbone.config.unpadded_vocab_size
        if isinstance(lm_head, Dense) and suits(vocabulary, lm_head.shape[1], lm_head.weight.dtype):
            self.scores = Shortlist(lm_head, vocabulary)

    @property
    def depths(self) -> int:
        return len(self.blocks)

    def rewired(self, wiring: Wiring) -> MTPHead:
        """The same head with another wiring."""
        other = MTPHead.__new__(MTPHead)
        other.backbone, other.wiring, other.blocks, other.chain_norm, other.scores = (
            self.backbone,
            wiring,
            self.blocks,
            self.chain_norm,
            self.scores,
        )
        return other

    def make_caches(self) -> list[LayerCache]:
        return [layer_cache(self.backbone.config, block.sliding) for block in self.blocks]

    def trunk(self, hidden: mx.array) -> mx.array:
        """What depth 0 reads of the target's pre-norm hidden [1, L, H]."""
        return self.backbone.final_norm(hidden) if self.wiring.hidden == "post_norm" else hidden

    def advance(self, depth: int, tokens: mx.array, hidden: mx.array, cache: LayerCache) -> mx.array:
        """Run block `depth` on ids [1, L] and the previous depth's rows [1, L, H] -> its rows [1, L, H].

        The result is what the next depth reads and what `logits` reads out; where the checkpoint has a
        chain norm it has been applied.
        """
        embedded = self.backbone.embed(tokens, normed=self.wiring.embedding == "normed")
        out = self.blocks[depth](embedded, hidden, cache)
        if self.chain_norm is not None:
            out = mx.fast.rms_norm(out, self.chain_norm, self.backbone.config.rms_norm_eps)
        return out

    def logits(self, out: mx.array) -> mx.array:
        """[1, L, H] -> float32 [1, L, unpadded vocabulary]; minus infinity for ids that drafts do not score."""
        if self.wiring.readout == "final_norm":
            out = self.backbone.final_norm(out)
        if self.scores is not None:
            return self.scores(out / self.backbone.config.mup_multiplier)
        return self.backbone.project(out)

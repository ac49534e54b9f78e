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
from engine.model.fused import block_input
from engine.model.fused.block_input import BlockInput
from engine.model.fused.choice import Layer
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
        self.backbone, self.config, self.sliding = backbone, backbone.config, sliding
        self.embed_norm, self.hidden_norm = array(params, f"{name}.embed_norm"), array(params, f"{name}.hidden_norm")
        self.input_proj = matrix(params, f"{name}.input_proj")
        self._project = any_rows(self.input_proj, fused=backbone.fused)
        layer = DecoderLayer(backbone.config, params, f"{name}.block", sliding=sliding, dense=True)
        self.layer = Layer(layer, fused=backbone.fused)
        self.few: BlockInput | None = None
        """Reads a few rows, where that is faster."""

    def tabulate(self, embedded: mx.array) -> None:
        """Compute what the block makes of every id, whose embedding is `embedded` [V, H] as the target reads it."""
        assert isinstance(self.input_proj, Dense)
        eps = self.config.rms_norm_eps
        self.few = BlockInput(self.input_proj, self.hidden_norm, self.embed_norm, embedded, eps)

    def __call__(self, tokens: mx.array, hidden: mx.array, cache: LayerCache, *, normed: bool = True) -> mx.array:
        """Ids [1, L] and hidden states [1, L, H] -> [1, L, H].

        Args:
            normed: the tokens' embedding goes through the target's norm, see `Wiring`.
        """
        if normed and self.few is not None and tokens.shape[1] <= FEW_ROWS:
            return self.layer(self.few(tokens, hidden), cache)
        eps, embedded = self.config.rms_norm_eps, self.backbone.embed(tokens, normed)
        sides = [mx.fast.rms_norm(hidden, self.hidden_norm, eps), mx.fast.rms_norm(embedded, self.embed_norm, eps)]
        return self.layer(self._project(mx.concatenate(sides, axis=-1)), cache)


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
        if backbone.fused and all(isinstance(block.input_proj, Dense) for block in self.blocks):
            self._tabulate()
        self.chain_norm = array(params, "mtp.chain_norm") if "mtp.chain_norm" in params else None
        self.scores: DraftScores | None = None
        """Scores drafts in place of the target's LM head."""

    def _tabulate(self) -> None:
        config = self.backbone.config
        if block_input.suits(config.vocab_size, config.hidden_size, self.depths, self.backbone.dtype):
            embedded = self.backbone.embed(mx.arange(config.vocab_size)[None]).squeeze(0)
            for block in self.blocks:
                block.tabulate(embedded)

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
        out = self.blocks[depth](tokens, hidden, cache, normed=self.wiring.embedding == "normed")
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

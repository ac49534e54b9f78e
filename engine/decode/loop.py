"""The decode loop: plain steps and speculative rounds over one target."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from engine.cache import Mark
from engine.decode.acceptance import Verdict, chance_in_hindsight, judge, tie_margin
from engine.decode.depth import LOOKED_AT
from engine.decode.drafter import Draft, Drafter
from engine.decode.sampler import Sampler
from engine.decode.target import Target
from engine.events import FinishReason
from engine.model.fused.products import FEW_ROWS
from engine.values import to_floats, to_int, to_ints

Rollback = Literal["trim", "replay"]
StopCheck = Callable[[int], FinishReason | None]
"""Called once per token, in order; a reason ends the generation with that token."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one target forward committed."""

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    """Drafts among `tokens`."""
    near_ties: int
    seconds: float
    finish: FinishReason | None
    forwards: int = 1
    """Of the target, started in that time: plain steps that are queued ahead begin with two and end with none."""
    hindsight: tuple[float, ...] = ()
    """How likely a first draft would have stood at each of the latest tokens before these, where that was asked."""


class DecodeLoop:
    """Extends `target.ids` token by token or round by round.

    Greedy rounds emit what plain steps would. Where kernels round by the number of rows, every decision whose
    two best logits lie closer than that is taken again from a forward of its row alone.

    Args:
        drafter: None for plain decoding only.
        rollback: "trim" cuts the caches after a rejection; "replay" restores them to before the round
            and runs the accepted rows again.
        stop: consulted for every token before it counts as emitted.
    """

    def __init__(
        self, target: Target, drafter: Drafter | None, sampler: Sampler, rollback: Rollback, stop: StopCheck
    ) -> None:
        self.target, self.drafter, self.sampler, self.stop = target, drafter, sampler, stop
        self.rollback: Rollback = rollback
        self._ahead: _Ahead | None = None
        self._drawn: deque[mx.array] = deque(maxlen=LOOKED_AT)
        """Distributions [1, V] that the latest plain tokens were drawn from, none of them when greedy."""

    def first(self, logits: mx.array) -> Step:
        """The token that the prefill's last logits [1, V] give."""
        began = time.perf_counter()
        token, _ = self.sampler.pick(logits)
        kept, finish = self._emit([to_int(token)])
        return Step(kept, 0, 0, 0, time.perf_counter() - began, finish)

    def plain(self, *, more: bool = False, hindsight: int = 0) -> Step:
        """One row, one token.

        Args:
            hindsight: tell how that many drafts would have fared that the latest plain steps were spared, at most
                `LOOKED_AT`. They are computed beside this step's forward, before the one that is queued.
            more: a plain step is likely to follow. Its forward is queued before this one's token is read, so that the
                device need not wait for the host; `finish` or a round takes it back if it was not wanted.
        """
        began = time.perf_counter()
        forwards = self._ahead is None
        now = self._ahead or self._launch(mx.array(self.target.ids[-1:], mx.int32))
        chances = self._hindsight(hindsight) if hindsight else None
        # Penalties count tokens that the host has read.
        more = more and not self.sampler.options.penalised
        self._ahead = self._launch(now.token) if more else None
        kept, finish = self._emit([to_int(now.token)])
        self._observe(now.hidden)
        if now.distribution is not None:
            self._drawn.append(now.distribution)
        known = () if chances is None else tuple(to_floats(chances))
        return Step(kept, 0, 0, 0, time.perf_counter() - began, finish, forwards + more, known)

    def _hindsight(self, count: int) -> mx.array | None:
        """For the latest tokens [n], n at most `count`, the chance that a first draft would have stood there."""
        assert self.drafter is not None
        count = count if self.sampler.greedy else min(count, len(self._drawn))
        logits = self.drafter.hindsight(self.target.ids, count) if count else None
        if logits is None:
            return None
        tokens = mx.array(self.target.ids[-logits.shape[0] :], mx.int32)
        scores = self.sampler.scores(logits, tokens, committed=True)
        if self.sampler.greedy:
            chances = (mx.argmax(scores, axis=-1).astype(mx.int32) == tokens).astype(mx.float32)
        else:
            drawn = mx.concatenate([*self._drawn][-tokens.size :])
            chances = chance_in_hindsight(drawn, self.sampler.probabilities(scores), tokens)
        mx.async_eval(chances, self.drafter.arrays)
        return chances

    def finish(self) -> None:
        """Take back what was queued ahead; the caches then hold all of `target.ids` but the last."""
        if self._ahead is not None:
            self.target.trim(1)
            self._ahead = None

    def _launch(self, token: mx.array) -> _Ahead:
        """Start the forward of one token [1]."""
        hidden = self.target.forward(token)
        picked, distribution = self.sampler.pick(self.target.logits(hidden))
        mx.async_eval(picked, hidden, self.target.cache.arrays)
        return _Ahead(picked, hidden, None if self.drafter is None else distribution)

    def round(self, drafts: int, *, more: bool = False) -> Step:
        """Propose `drafts` >= 1 tokens, verify them in one forward, keep what stands and one token more.

        Args:
            more: another round is likely to follow. Its first draft is computed while the host reads this round.
        """
        assert self.drafter is not None
        began = time.perf_counter()
        self.finish()
        self._drawn.clear()
        target, ids = self.target, self.target.ids
        draft = self.drafter.propose(ids, drafts, self.sampler)
        before = target.mark()
        block = mx.concatenate([mx.array(ids[-1:], mx.int32), draft.tokens])
        hidden = target.forward(block)
        alike = target.backbone.row_invariant and block.shape[0] <= FEW_ROWS
        verdict = judge(target.logits(hidden), draft, self.sampler, margins=not alike)
        mx.async_eval(verdict.arrays, draft.tokens, hidden, target.cache.arrays, self.drafter.arrays)
        # Penalties count tokens that the host has read, and a replay computes the rows again.
        more = more and self.rollback == "trim" and not self.sampler.options.penalised
        if more:
            self.drafter.look_ahead(hidden, verdict.following(draft.tokens), verdict.accepted, self.sampler)
        mx.eval(verdict.arrays, draft.tokens)

        decided = self._decide(block, draft, hidden, verdict)
        kept, finish = self._emit([*to_ints(draft.tokens)[: decided.accepted], decided.token])
        accepted = min(decided.accepted, len(kept))
        hidden = self._roll_back(before, block, decided, len(kept))
        whole = decided.after_block is None and len(kept) == decided.accepted + 1
        self.drafter.settle(accepted, ahead=more and whole)
        self._observe(hidden)
        return Step(kept, drafts, accepted, decided.near_ties, time.perf_counter() - began, finish)

    def _decide(self, block: mx.array, draft: Draft, hidden: mx.array, verdict: Verdict) -> _Decision:
        accepted = to_int(verdict.accepted)
        chosen = to_ints(verdict.chosen)
        if verdict.margins is None or verdict.tops is None:
            return _Decision(accepted, chosen[accepted], hidden, 0)
        dtype, ties = self.target.backbone.dtype, 0
        for row, (margin, top) in enumerate(zip(to_floats(verdict.margins), to_floats(verdict.tops), strict=True)):
            if row > accepted:
                break
            if margin >= tie_margin(top, dtype):
                continue
            ties += 1
            after_block = self.target.mark()
            self.target.trim(block.shape[0] - row)
            alone = self.target.forward(block[row : row + 1])
            scores = self.sampler.scores(self.target.logits(alone), draft.tokens[:row] if row else None)
            token = to_int(mx.argmax(scores, axis=-1))
            if token != chosen[row]:
                mx.eval(alone, self.target.cache.arrays)
                rows = mx.concatenate([hidden[:, :row], alone], axis=1)
                return _Decision(row, token, rows, ties, after_block)
            self.target.restore(after_block)
        return _Decision(accepted, chosen[accepted], hidden, ties)

    def _emit(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Commit `tokens` up to the one that ends the generation."""
        kept: list[int] = []
        finish: FinishReason | None = None
        for token in tokens:
            kept.append(token)
            finish = self.stop(token)
            if finish is not None:
                break
        self.target.ids.extend(kept)
        self.sampler.commit(kept)
        return tuple(kept), finish

    def _roll_back(self, before: Sequence[Mark], block: mx.array, decided: _Decision, rows: int) -> mx.array:
        """Leave the first `rows` rows of the block in the caches; their hidden [1, rows, H]."""
        surplus = decided.hidden.shape[1] - rows
        if surplus and decided.after_block is not None:
            # The answer ends before the row that was computed again; convolutions kept the inputs of that row alone.
            self.target.restore(decided.after_block)
            surplus = block.shape[0] - rows
        if self.rollback == "trim" or not surplus:
            self.target.trim(surplus)
            return decided.hidden[:, :rows]
        self.target.restore(before)
        hidden = self.target.forward(block[:rows])
        mx.eval(hidden, self.target.cache.arrays)
        return hidden

    def _observe(self, hidden: mx.array) -> None:
        if self.drafter is not None:
            self.drafter.extend(hidden, self.target.ids)


@dataclass(frozen=True, slots=True)
class _Decision:
    """How many drafts stand, the token after them, the hidden rows now in the caches."""

    accepted: int
    token: int
    hidden: mx.array
    near_ties: int
    after_block: Sequence[Mark] | None = None
    """Where the caches stood before the last of these rows was computed again, since a near-tie was decided otherwise
    than the verify block had it; None where what that said stands."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A forward on its way: its token [1], its hidden row [1, 1, H], and what the token is drawn from, [1, V]."""

    token: mx.array
    hidden: mx.array
    distribution: mx.array | None

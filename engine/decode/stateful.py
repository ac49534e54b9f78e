"""The default drafter: every depth keeps its history over the whole sequence.

Depth d is block d. With t the tokens, h the trunk's hidden and P its last processed row,

    g_d(p) = block_d(g_(d-1)(p), token t_(p+1+d)),  g_(-1) = h,   draft d = argmax readout(g_d(P))

so a row of depth d is final once t_(p+1+d) is committed. After a round that accepted A of its drafts,
the rows of depth d up to P + min(0, A - d) stand; the later ones were fed rejected tokens and are
computed again, at each depth from its own first invalid row on. The outputs of a depth are logged, so
a deeper one that was idle catches up without running the shallower ones again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.cache import ALIGN, LayerCache, Snapshot, align_up
from engine.decode.drafter import Draft
from engine.decode.row_log import RowLog
from engine.decode.sampler import Sampler
from engine.model.mtp import MTPHead

PRIME_ROWS = 1024
"""A depth that fell further behind is primed over the last rows only: a sliding block looks back over its
window, and the bias of a global one reaches no further."""


@dataclass(frozen=True, slots=True)
class _State:
    caches: tuple[Snapshot, ...]
    logs: tuple[RowLog, ...]


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Depth 0 of a proposal that was begun before the round in front of it was read."""

    out: mx.array
    """Its rows [1, L, H], those after the last draft that stands worthless."""
    token: mx.array
    distribution: mx.array | None


class StatefulDrafter:
    """Drafts with an `MTPHead`, one block per depth; implements `Drafter`."""

    def __init__(self, head: MTPHead) -> None:
        self.head = head
        self.caches: list[LayerCache] = head.make_caches()
        self._logs = [RowLog(PRIME_ROWS + ALIGN) for _ in range(head.depths)]
        """Entry d: what depth d reads; entry 0 is the trunk's pre-norm hidden."""
        self._wanted = head.depths
        self._proposed = 0
        self._ahead: _Ahead | None = None

    @property
    def max_drafts(self) -> int:
        return self.head.depths

    def prepare(self, drafts: int) -> None:
        self._wanted = min(drafts, self.head.depths)

    def extend(self, hidden: mx.array, ids: Sequence[int]) -> None:
        self._logs[0].append(hidden)
        if not self._wanted:
            return
        behind = self._logs[0].end - min(cache.offset for cache in self.caches[: self._wanted])
        # Rows wait in the log until the next proposal, unless the log would lose them before.
        if behind > PRIME_ROWS // 2:
            self.catch_up(ids)

    def catch_up(self, ids: Sequence[int]) -> None:
        for depth in range(self._wanted):
            # The newest row is left to the next proposal, which drafts from its output.
            end = min(self._logs[0].end, len(ids)) - 1 - depth
            if end > self.caches[depth].offset:
                self._advance(depth, end, ids, [])
        mx.eval(self.arrays)
        for cache in self.caches:
            cache.compact()

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler) -> Draft:
        tokens: list[mx.array] = []
        distributions: list[mx.array] = []
        ahead, self._ahead = self._ahead, None
        if ahead is not None and self.caches[0].offset == len(ids) - 1:  # no plain step came between
            tokens.append(ahead.token)
            distributions += [] if ahead.distribution is None else [ahead.distribution]
        for depth in range(len(tokens), count):
            out = self._advance(depth, len(ids) - 1, ids, tokens)
            drafts = mx.concatenate(tokens) if tokens else None
            token, distribution = sampler.pick(self.head.logits(out[:, -1:])[0], drafts)
            mx.async_eval(token)  # the device drafts while the host describes what follows
            tokens.append(token)
            if distribution is not None:
                distributions.append(distribution)
        self._proposed = count
        return Draft(mx.concatenate(tokens), mx.concatenate(distributions) if distributions else None)

    def hindsight(self, ids: Sequence[int], count: int) -> mx.array | None:
        end = min(self._logs[0].end, len(ids) - 1) - 1
        if end <= self.caches[0].offset:
            return None
        return self.head.logits(self._advance(0, end, ids, [])[:, -count:])[0]

    def _advance(self, depth: int, end: int, ids: Sequence[int], drafts: list[mx.array]) -> mx.array:
        """Run `depth` from its first invalid row to row `end` - 1 and return the outputs of those rows."""
        cache, log = self.caches[depth], self._logs[depth]
        if cache.offset < log.start:
            cache.restart(align_up(log.start))
        start = cache.offset
        hidden = log.rows(start, end)
        if depth == 0:
            hidden = self.head.trunk(hidden)
        known = mx.array([ids[start + depth + 1 : end + depth + 1]], mx.int32)
        missing = end - start - known.shape[1]
        if missing:
            known = mx.concatenate([known, *(draft[None] for draft in drafts[len(drafts) - missing :])], axis=1)
        out = self.head.advance(depth, known, hidden, cache)
        if depth + 1 < len(self._logs):
            following = self._logs[depth + 1]
            if following.end != start:  # this depth was primed anew
                following.restart(start)
            following.append(out)
        return out

    def look_ahead(self, hidden: mx.array, following: mx.array, last: mx.array, sampler: Sampler) -> None:
        out = self.head.advance(0, following[None], self.head.trunk(hidden), self.caches[0])
        token, distribution = sampler.pick(self.head.logits(mx.take(out, last[None], axis=1))[0])
        mx.async_eval(token, out, list(self.caches[0].arrays))
        self._ahead = _Ahead(out, token, distribution)

    def settle(self, accepted: int, *, ahead: bool = False) -> None:
        if self._ahead is not None:
            out, kept = self._ahead.out, accepted + 1 if ahead else 0
            self.caches[0].trim(out.shape[1] - kept)
            if not kept:
                self._ahead = None
            elif len(self._logs) > 1:
                self._logs[1].append(out[:, :kept])
        for depth in range(accepted + 1, self._proposed):
            cache = self.caches[depth]
            # After a prompt shorter than the head is deep there are fewer rows than that.
            cache.trim(min(depth - accepted, cache.offset))
            if depth + 1 < len(self._logs):
                self._logs[depth + 1].truncate(cache.offset)
        self._proposed = 0

    @property
    def arrays(self) -> list[mx.array]:
        held = [array for cache in self.caches for array in cache.arrays]
        return held + [array for log in self._logs for array in log.arrays[-1:]]

    def snapshot(self) -> _State:
        return _State(tuple(cache.snapshot() for cache in self.caches), tuple(log.copy() for log in self._logs))

    def rewind(self, snapshot: _State) -> None:
        self._logs = [log.copy() for log in snapshot.logs]
        self._proposed, self._ahead = 0, None
        for cache, saved in zip(self.caches, snapshot.caches, strict=True):
            if cache.can_rewind(saved):
                cache.rewind(saved)
            else:
                # The keys of that time were dropped when the depth was primed anew: prime it from the log.
                cache.restart(0)

    def reset(self) -> None:
        self._proposed, self._ahead = 0, None
        for cache in self.caches:
            cache.restart(0)
        for log in self._logs:
            log.restart(0)

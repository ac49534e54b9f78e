"""The simpler published schedule, kept for comparison.

Block 0 follows the committed sequence: row p reads the trunk's hidden of row p and token p + 1, and its
last row gives the seed of the next round. The further drafts of a round chain block min(r, n - 1), r
counting from 0, on the previous output; whatever they appended to the caches is taken back, so the
deeper blocks start each round without history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.cache import ALIGN, LayerCache, Mark, Snapshot, align_up
from engine.decode.drafter import Draft
from engine.decode.row_log import RowLog
from engine.decode.sampler import Sampler
from engine.decode.stateful import PRIME_ROWS
from engine.model.mtp import MTPHead


@dataclass(frozen=True, slots=True)
class _State:
    cache: Snapshot
    log: RowLog
    seed: mx.array | None


class ChainedDrafter:
    """Drafts with an `MTPHead` in the chained schedule; implements `Drafter`."""

    def __init__(self, head: MTPHead) -> None:
        self.head = head
        self.caches: list[LayerCache] = head.make_caches()
        self._log = RowLog(PRIME_ROWS + ALIGN)
        self._marks: list[Mark] | None = None
        self._seed: mx.array | None = None
        """Block 0's output at the last committed row."""
        self._wanted = 1

    @property
    def max_drafts(self) -> None:
        return None

    def prepare(self, drafts: int) -> None:
        self._wanted = drafts

    def extend(self, hidden: mx.array, ids: Sequence[int]) -> None:
        self._log.append(hidden)
        if self._wanted and self._log.end - self.caches[0].offset > PRIME_ROWS // 2:
            self.catch_up(ids)

    def catch_up(self, ids: Sequence[int]) -> None:
        if self._wanted:
            self._follow(ids, min(self._log.end, len(ids) - 1))
            mx.eval(self.arrays)
            self.caches[0].compact()

    def hindsight(self, ids: Sequence[int], count: int) -> mx.array | None:
        out = self._follow(ids, min(self._log.end, len(ids) - 1) - 1)
        return None if out is None else self.head.logits(out[:, -count:])[0]

    def _follow(self, ids: Sequence[int], end: int) -> mx.array | None:
        """Run block 0 over the committed rows it has not seen, up to row `end` - 1; what it gives there, if any."""
        cache = self.caches[0]
        if cache.offset < self._log.start:
            cache.restart(align_up(self._log.start))
        start = cache.offset
        if start >= end:
            return None
        hidden = self.head.trunk(self._log.rows(start, end))
        out = self.head.advance(0, mx.array([ids[start + 1 : end + 1]], mx.int32), hidden, cache)
        self._seed = out[:, -1:]
        return out

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler) -> Draft:
        self._follow(ids, len(ids) - 1)
        assert self._seed is not None
        self._marks = [cache.mark() for cache in self.caches]
        tokens: list[mx.array] = []
        distributions: list[mx.array] = []
        out = self._seed
        for step in range(count):
            if step:
                block = min(step - 1, self.head.depths - 1)
                out = self.head.advance(block, tokens[-1][None], out, self.caches[block])
            drafts = mx.concatenate(tokens) if tokens else None
            token, distribution = sampler.pick(self.head.logits(out)[0], drafts)
            mx.async_eval(token)  # see `StatefulDrafter.propose`
            tokens.append(token)
            if distribution is not None:
                distributions.append(distribution)
        return Draft(mx.concatenate(tokens), mx.concatenate(distributions) if distributions else None)

    def look_ahead(self, hidden: mx.array, following: mx.array, last: mx.array, sampler: Sampler) -> None:
        """Nothing is started: this schedule is here to be compared, not to be fast."""

    def settle(self, accepted: int, *, ahead: bool = False) -> None:
        if self._marks is not None:
            for cache, mark in zip(self.caches, self._marks, strict=True):
                cache.restore(mark)
        self._marks = None

    @property
    def arrays(self) -> list[mx.array]:
        held = [array for cache in self.caches for array in cache.arrays] + self._log.arrays[-1:]
        return held if self._seed is None else [*held, self._seed]

    def snapshot(self) -> _State:
        return _State(self.caches[0].snapshot(), self._log.copy(), self._seed)

    def rewind(self, snapshot: _State) -> None:
        self._log, self._seed, self._marks = snapshot.log.copy(), snapshot.seed, None
        cache = self.caches[0]
        if cache.can_rewind(snapshot.cache):
            cache.rewind(snapshot.cache)
        else:
            cache.restart(0)

    def reset(self) -> None:
        self._seed = self._marks = None
        self._log.restart(0)
        for cache in self.caches:
            cache.restart(0)

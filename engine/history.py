"""Earlier states of a session's caches, so that a changed or repeated last turn does not start from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.cache import Snapshot
from engine.decode.drafter import Drafter
from engine.decode.target import Target


@dataclass(frozen=True, slots=True)
class Boundary:
    """The state after `ids`: convolution states and sliding windows are copies, global keys are not."""

    ids: tuple[int, ...]
    rows: int
    """Rows processed: all of `ids`, or all but the last."""
    target: tuple[Snapshot, ...]
    drafter: Any
    logits: mx.array | None
    """Logits [1, V] of the last row where `rows` covers all of `ids`."""


class Boundaries:
    """The most recent boundaries of one sequence, oldest first.

    Args:
        limit: boundaries kept. Each costs the sliding windows of all layers.
    """

    def __init__(self, limit: int = 4) -> None:
        self._limit = limit
        self._kept: list[Boundary] = []

    def record(self, target: Target, drafter: Drafter | None, logits: mx.array | None) -> None:
        """Keep the present state, unless it is the newest one kept."""
        ids = tuple(target.ids)
        if not ids or (self._kept and self._kept[-1].ids == ids):
            return
        snapshot = target.cache.snapshot()
        mx.eval([array for layer in snapshot for array in layer.arrays])
        boundary = Boundary(ids, target.position, snapshot, drafter.snapshot() if drafter else None, logits)
        self._kept = [*self._kept, boundary][-self._limit :]

    def rewind(self, target: Target, drafter: Drafter | None, ids: Sequence[int]) -> Boundary | None:
        """Take the sequence back to the latest boundary that `ids` begin with; None when there is none.

        Later boundaries are dropped, as the global keys they rely on are about to be overwritten.
        """
        while self._kept:
            boundary = self._kept[-1]
            ready = boundary.rows < len(ids) or boundary.logits is not None
            if ready and boundary.ids == tuple(ids[: len(boundary.ids)]):
                target.cache.rewind(boundary.target)
                target.ids = list(boundary.ids)
                if drafter is not None:
                    drafter.rewind(boundary.drafter)
                return boundary
            self._kept.pop()
        return None

    def clear(self) -> None:
        self._kept.clear()

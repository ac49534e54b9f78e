"""Where the time of a round goes besides drafting and verifying: cutting back, bookkeeping, the session around it.

Measured from outside, by a target and a drafter that time their own calls: the decode loop carries no hooks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.bench.contestants import Case
from engine.bench.speed import Progress
from engine.cache import Mark
from engine.decode.drafter import Draft, Drafter
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.decode.target import Target
from engine.errors import HeadError
from engine.events import Failed, RoundDone
from engine.model.backbone import Backbone
from engine.session import Engine, Session


class Clock:
    """Adds up the seconds spent inside `with clock:`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *failure: object) -> None:
        self.seconds += time.perf_counter() - self._began


class TimedTarget(Target):
    """A target that times marks, cuts and restores."""

    def __init__(self, backbone: Backbone, clock: Clock) -> None:
        super().__init__(backbone)
        self._clock = clock

    def mark(self) -> tuple[Mark, ...]:
        with self._clock:
            return super().mark()

    def restore(self, mark: Sequence[Mark]) -> None:
        with self._clock:
            super().restore(mark)

    def trim(self, rows: int) -> None:
        with self._clock:
            super().trim(rows)


class TimedDrafter:
    """A drafter that times what is not drafting; implements `Drafter`."""

    def __init__(self, drafter: Drafter, clock: Clock) -> None:
        self._drafter, self._clock = drafter, clock

    @property
    def max_drafts(self) -> int | None:
        return self._drafter.max_drafts

    def prepare(self, drafts: int) -> None:
        self._drafter.prepare(drafts)

    def extend(self, hidden: mx.array, ids: Sequence[int]) -> None:
        with self._clock:
            self._drafter.extend(hidden, ids)

    def catch_up(self, ids: Sequence[int]) -> None:
        self._drafter.catch_up(ids)

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler) -> Draft:
        return self._drafter.propose(ids, count, sampler)

    def hindsight(self, ids: Sequence[int], count: int) -> mx.array | None:
        return self._drafter.hindsight(ids, count)

    def look_ahead(self, hidden: mx.array, following: mx.array, last: mx.array, sampler: Sampler) -> None:
        self._drafter.look_ahead(hidden, following, last, sampler)

    def settle(self, accepted: int, *, ahead: bool = False) -> None:
        with self._clock:
            self._drafter.settle(accepted, ahead=ahead)

    @property
    def arrays(self) -> list[mx.array]:
        return self._drafter.arrays

    def snapshot(self) -> Any:
        return self._drafter.snapshot()

    def rewind(self, snapshot: Any) -> None:
        self._drafter.rewind(snapshot)

    def reset(self) -> None:
        self._drafter.reset()


@dataclass(slots=True)
class RoundTimes:
    """Sums in seconds over rounds that drafted."""

    drafts: int
    rounds: int = 0
    whole: float = 0.0
    """From one round's end to the next one's, as the consumer of the events sees it."""
    rollback: float = 0.0
    """Marks, cuts and restores of the target; the drafter's taking note of what stood."""
    session: float = 0.0
    """Outside the loop: detokenizing, statistics, events."""

    @property
    def bookkeeping_share(self) -> float | None:
        """Of a round, 0 to 1: rollback and session."""
        return (self.rollback + self.session) / self.whole if self.whole else None

    def to_json(self) -> dict[str, Any]:
        count = max(1, self.rounds)
        return {
            "drafts": self.drafts,
            "rounds": self.rounds,
            "ms_per_round": 1e3 * self.whole / count,
            "rollback_ms": 1e3 * self.rollback / count,
            "session_ms": 1e3 * self.session / count,
            "bookkeeping_share": self.bookkeeping_share,
        }


def measure_rounds(
    engine: Engine, cases: Sequence[Case], drafts: Sequence[int], progress: Progress
) -> list[RoundTimes]:
    """Generate every case with every fixed number of drafts.

    Raises:
        HeadError: there is no MTP head.
    """
    if engine.head is None:
        raise HeadError(f"There is no MTP head to measure: {engine.head_reason}", "Name one with --draft-model.")
    found: list[RoundTimes] = []
    for i, count in enumerate(drafts):
        clock, times = Clock(), RoundTimes(count)
        drafter = TimedDrafter(StatefulDrafter(engine.head), clock)
        session = Session(engine, block_size=count + 1, drafter=drafter)
        session.target = TimedTarget(engine.backbone, clock)
        for done, case in enumerate(cases):
            progress((i + done / len(cases)) / len(drafts), f"{count} drafts: {case.name}")
            _follow(session, case, clock, times)
        found.append(times)
    return found


def _follow(session: Session, case: Case, clock: Clock, times: RoundTimes) -> None:
    session.reset()
    options, chats = case.options(0), session.engine.template is not None
    ended: float | None = None
    for event in session.continue_ids(case.ids, options) if chats else session.complete(case.text, options):
        if isinstance(event, Failed):
            raise event.error
        if not isinstance(event, RoundDone):
            continue
        now = time.perf_counter()
        if ended is not None and event.drafted:
            times.rounds += 1
            times.whole += now - ended
            times.session += now - ended - event.seconds
            times.rollback += clock.seconds
        ended, clock.seconds = now, 0.0

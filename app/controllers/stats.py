"""The figures of the panel: live while an answer streams, held between turns, read back for a stored answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge import Stamped
from app.store.figures import draft_from_json, stats_from_json
from app.store.records import Message, Round
from app.wording import number, truth, verdict
from engine.events import Cancelled as CancelledEvent
from engine.events import DraftStatus, Finished, PrefillProgress, RoundDone
from engine.stats import GenerationStats

WINDOW_S = 2.5
"""Span of the live rate: MTP emits in lumps, a shorter one would flicker."""
REFRESH_MS = 100
VERDICT_S = 2.0
"""The verdict changes at most every so many seconds, unless its tokens per round are no longer the headline's."""
PLAIN_ENOUGH = 3
"""Plain steps needed before their mean is used."""


@dataclass(frozen=True, slots=True)
class PanelState:
    """Everything the panel shows. None and empty where nothing was measured."""

    running: bool = False
    prefill: tuple[int, int] | None = None
    """(done, total) prompt tokens while the prompt is read."""
    stats: GenerationStats | None = None
    rate: float | None = None
    """Tokens per second: of the last seconds while it streams, of the whole turn after it."""
    ms_per_plain_step: float | None = None
    break_even: float | None = None
    verdict: str = ""
    truth: str = ""
    differs: bool = False
    depth: int | None = None
    """Drafts of the latest step while an answer streams; 0 is a plain one."""
    round_tokens: tuple[int, ...] = ()
    """Tokens of each round that carried a draft."""
    rates: tuple[tuple[float, float], ...] = ()
    """(seconds since the first token, tokens per second)."""
    memory: int | None = None
    context_used: int | None = None
    context: int | None = None


@dataclass(slots=True)
class PlainClock:
    """What plain steps cost, by how long the context was; a step grows dearer with it."""

    measured: list[tuple[str, int, float]] = field(default_factory=list[tuple[str, int, float]])
    """(model, tokens of context, milliseconds)."""

    def learn(self, model: str, stats: GenerationStats | None) -> None:
        if stats is not None and stats.ms_per_plain_step is not None and stats.plain_steps >= PLAIN_ENOUGH:
            entry = (model, stats.prompt_tokens + stats.completion_tokens, stats.ms_per_plain_step)
            if entry not in self.measured:
                self.measured.append(entry)

    def cost(self, model: str, stats: GenerationStats) -> float | None:
        """Milliseconds of a plain step in a context like this one: measured in this answer, or in one whose context
        was at most twice as long and at least half as long; the latest of the nearest."""
        if stats.ms_per_plain_step is not None and stats.plain_steps >= PLAIN_ENOUGH:
            return stats.ms_per_plain_step
        length = stats.prompt_tokens + stats.completion_tokens
        near = [
            (abs(length - tokens), -i, ms)
            for i, (name, tokens, ms) in enumerate(self.measured)
            if name == model and length / 2 <= tokens <= 2 * length
        ]
        return min(near)[2] if near else None


class StatsController(QObject):
    """Signal: changed(PanelState), at most ten times a second."""

    changed = Signal(object)

    def __init__(self, memory: Callable[[], int | None], *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._memory = memory
        self._now = now
        self._clock = PlainClock()
        self._model = ""
        self._recent: deque[tuple[float, int]] = deque()
        self._first: float | None = None
        self._rounds: list[int] = []
        self._rates: list[tuple[float, float]] = []
        self._draft: DraftStatus | None = None
        self._verdict_at = -VERDICT_S
        self.state = PanelState()
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self._refresh)

    def begin(self, model: str, context: int | None) -> None:
        """An answer starts; the last figures stay until it has its own."""
        self._model = model
        self._recent.clear()
        self._first = None
        self.state = replace(self.state, running=True, prefill=None, context=context, memory=self._memory())
        self._timer.start()
        self.changed.emit(self.state)

    def take(self, events: Sequence[Stamped]) -> None:
        """Events of the answer, as the bridge brings them."""
        for moment, event in events:
            match event:
                case PrefillProgress(done, total):
                    self.state = replace(self.state, prefill=(done, total))
                case DraftStatus():
                    self._draft = event
                case RoundDone():
                    self._take_round(moment, event)
                case Finished(generation) | CancelledEvent(generation):
                    self._draft = generation.draft
                    self.state = replace(self.state, stats=generation.stats)
                case _:
                    pass

    def _take_round(self, moment: float, event: RoundDone) -> None:
        if self._first is None:
            self._first = moment
            self._rounds, self._rates = [], []
        self._recent.append((moment, len(event.token_ids)))
        if event.drafted:
            self._rounds.append(event.accepted + 1)
        self.state = replace(self.state, stats=event.stats, prefill=None, depth=event.drafted)

    def end(self) -> None:
        """The answer has ended: whole-turn figures from here on."""
        self._timer.stop()
        stats = self.state.stats
        self._clock.learn(self._model, stats)
        rate = None if stats is None else stats.decode_tps
        self.state = replace(self.state, running=False, prefill=None, depth=None, rate=rate)
        self._refresh()

    def show(self, path: Sequence[Message], trace: Callable[[int], Sequence[Round]], context: int | None) -> None:
        """Figures of the last answer of a conversation that is opened, and what its plain steps cost."""
        answers = [m for m in path if m.role == "assistant" and m.stats]
        for message in answers[-40:]:
            self._clock.learn(message.model, stats_from_json(message.stats))
        if not answers:
            self._rounds, self._rates, self._draft = [], [], None
            self.state = PanelState(memory=self._memory(), context=context)
            self.changed.emit(self.state)
            return
        last = answers[-1]
        stats = stats_from_json(last.stats)
        rounds = trace(last.id)
        self._model, self._draft, self._first = last.model, draft_from_json(last.draft), None
        self._rounds = [one.accepted + 1 for one in rounds if one.drafted]
        self._rates = _rates(rounds)
        self._verdict_at = -VERDICT_S
        self.state = PanelState(stats=stats, rate=None if stats is None else stats.decode_tps, context=context)
        self._refresh()

    def learn(self, model: str, stats: GenerationStats | None) -> None:
        """Plain steps measured elsewhere, in a replay for example."""
        self._clock.learn(model, stats)
        if not self.state.running:
            self._refresh()

    def _refresh(self) -> None:
        now, state = self._now(), self.state
        stats = state.stats
        if state.running and self._first is not None:
            rate = self._live_rate(now)
            if rate is not None:
                self._rates.append((now - self._first, rate))
                state = replace(state, rate=rate)
        if stats is not None:
            plain = self._clock.cost(self._model, stats)
            per_round = stats.ms_per_round
            break_even = per_round / plain if per_round is not None and plain else None
            state = replace(state, ms_per_plain_step=plain, break_even=break_even)
            stale = not state.verdict.startswith(f"{number(stats.acceptance_length, 1)} ")
            if stale or now - self._verdict_at >= VERDICT_S or not state.running:
                auto = self._draft is not None and self._draft.auto
                state = replace(state, verdict=verdict(stats.acceptance_length, break_even, auto=auto))
                self._verdict_at = now
        line, differs = truth(self._draft, stats)
        used = None if stats is None else stats.prompt_tokens + stats.completion_tokens
        self.state = replace(
            state,
            truth=line,
            differs=differs,
            round_tokens=tuple(self._rounds[-400:]),
            rates=tuple(_thin(self._rates)),
            memory=self._memory(),
            context_used=used,
        )
        self.changed.emit(self.state)

    def _live_rate(self, now: float) -> float | None:
        while self._recent and self._recent[0][0] < now - WINDOW_S:
            self._recent.popleft()
        assert self._first is not None
        span = min(WINDOW_S, now - self._first)
        if span < 0.2 or not self._recent:
            return None
        return sum(count for _, count in self._recent) / span


def _thin(points: Sequence[tuple[float, float]], most: int = 300) -> Sequence[tuple[float, float]]:
    step = max(1, len(points) // most)
    return points[::step]


def _rates(rounds: Sequence[Round]) -> list[tuple[float, float]]:
    """The rate over time of a stored answer, from the time its rounds took."""
    result: list[tuple[float, float]] = []
    recent: deque[tuple[float, int]] = deque()
    elapsed, count = 0.0, 0
    for one in rounds:
        elapsed += one.ms / 1e3
        recent.append((elapsed, one.tokens))
        count += one.tokens
        while recent[0][0] < elapsed - WINDOW_S:
            count -= recent.popleft()[1]
        span = min(WINDOW_S, elapsed)
        if span >= 0.2:
            result.append((elapsed, count / span))
    return result

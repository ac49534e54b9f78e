"""Counters of one generation and the figures derived from them.

R = verify rounds that carried a draft, A = accepted drafts (without the bonus token), D = drafts verified.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """A snapshot; fields that nothing was measured for are None, never zero."""

    prompt_tokens: int
    """Tokens of the whole prompt, those already cached included."""
    cached_tokens: int
    """Prompt tokens that were in the session's caches and were not prefilled again."""
    completion_tokens: int
    ttft_s: float | None
    prefill_tps: float | None
    decode_tps: float | None
    """(N - 1) / (time of the last token - time of the first)."""
    rounds: int
    drafted: int
    accepted: int
    acceptance_length: float | None
    """1 + A / R, the bonus token included."""
    acceptance_rate: float | None
    """A / D."""
    per_position: tuple[float, ...] | None
    """Entry i: share of rounds that accepted more than i drafts."""
    plain_steps: int
    near_ties: int
    ms_per_round: float | None
    ms_per_plain_step: float | None
    rounds_by_depth: tuple[int, ...] | None = None
    """Entry i: rounds that carried i + 1 drafts."""

    def to_json(self) -> dict[str, Any]:
        """The `stats` object of `inkstand generate --json`."""
        names = ["ttft_s", "prefill_tps", "decode_tps", "rounds", "drafted", "accepted", "acceptance_length"]
        names += ["acceptance_rate", "per_position", "plain_steps", "near_ties", "ms_per_round", "rounds_by_depth"]
        values = {name: getattr(self, name) for name in names}
        for name in ("per_position", "rounds_by_depth"):
            values[name] = None if values[name] is None else list(values[name])
        return values


@dataclass(slots=True)
class StatsRecorder:
    """Accumulates what the decode loop reports. Times come from the caller (seconds, monotonic)."""

    prompt_tokens: int
    cached_tokens: int
    started: float
    completion_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    plain_steps: int = 0
    near_ties: int = 0
    prefill_seconds: float = 0.0
    """Time in forwards over the prompt."""
    _round_seconds: float = 0.0
    _plain_seconds: float = 0.0
    _first: float | None = None
    _last: float | None = None
    _reached: list[int] = field(default_factory=list[int])
    """Entry i: rounds that accepted more than i drafts."""
    _by_depth: list[int] = field(default_factory=list[int])

    def token_times(self, count: int, now: float) -> None:
        """`count` tokens were emitted at `now`."""
        if count and self._first is None:
            self._first = now
        if count:
            self._last = now
        self.completion_tokens += count

    def plain(self, seconds: float) -> None:
        """One forward of a single row without a draft."""
        self.plain_steps += 1
        self._plain_seconds += seconds

    def round(self, drafted: int, accepted: int, seconds: float) -> None:
        """One verify of `drafted` >= 1 drafts, of which `accepted` were emitted."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        self._round_seconds += seconds
        self._reached.extend([0] * (drafted - len(self._reached)))
        for i in range(accepted):
            self._reached[i] += 1
        self._by_depth.extend([0] * (drafted - len(self._by_depth)))
        self._by_depth[drafted - 1] += 1

    def snapshot(self) -> GenerationStats:
        """The figures so far."""
        ttft = None if self._first is None else self._first - self.started
        fresh = self.prompt_tokens - self.cached_tokens
        decode_tps = None
        if self._first is not None and self._last is not None and self._last > self._first:
            decode_tps = (self.completion_tokens - 1) / (self._last - self._first)
        return GenerationStats(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            ttft_s=ttft,
            prefill_tps=fresh / self.prefill_seconds if fresh and self.prefill_seconds else None,
            decode_tps=decode_tps,
            rounds=self.rounds,
            drafted=self.drafted,
            accepted=self.accepted,
            acceptance_length=1 + self.accepted / self.rounds if self.rounds else None,
            acceptance_rate=self.accepted / self.drafted if self.drafted else None,
            per_position=tuple(n / self.rounds for n in self._reached) if self.rounds else None,
            plain_steps=self.plain_steps,
            near_ties=self.near_ties,
            ms_per_round=1e3 * self._round_seconds / self.rounds if self.rounds else None,
            ms_per_plain_step=1e3 * self._plain_seconds / self.plain_steps if self.plain_steps else None,
            rounds_by_depth=tuple(self._by_depth) if self.rounds else None,
        )

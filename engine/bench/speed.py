"""Decoding speed of several contestants on the same texts, interleaved, and what it says about them.

Every repetition of a text runs all contestants one after the other, in turns forwards and backwards, so that a machine
that slows down slows all of them. Ratios are taken within a repetition; medians over repetitions, means over texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from engine.bench.contestants import PEER, PLAIN, Case, Contestant, Run

Progress = Callable[[float, str], None]
_WARM_UP_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Cell:
    """One contestant on one text, a run per repetition; no runs where it did not take part."""

    runs: tuple[Run, ...]

    @property
    def tps(self) -> float | None:
        return middle([run.decode_tps for run in self.runs])

    @property
    def tokens_per_round(self) -> float | None:
        return middle([run.tokens_per_round for run in self.runs])

    @property
    def near_ties(self) -> int:
        """Of the first repetition; greedy ones do not differ."""
        return self.runs[0].near_ties if self.runs else 0

    def over(self, other: Cell) -> float | None:
        """Median over repetitions of this speed over the other's in the same one."""
        pairs = zip(self.runs, other.runs, strict=False)
        return middle([a.decode_tps / b.decode_tps for a, b in pairs if a.decode_tps and b.decode_tps])

    def same_text(self, other: Cell) -> bool | None:
        """Whether all runs of both gave the same ids; None without runs."""
        if not self.runs or not other.runs:
            return None
        return len({run.token_ids for run in (*self.runs, *other.runs)}) == 1


@dataclass(frozen=True, slots=True)
class Summary:
    """One contestant over all greedy texts."""

    name: str
    tps: float | None
    """Mean over texts of the medians, as all means here."""
    over_plain: float | None
    worst: tuple[float, str] | None
    """Least ratio to plain, sampled texts included, and the text."""
    tokens_per_round: float | None
    near_ties: int
    equal: bool | None
    """Whether every greedy text is plain decoding's; None where there is nothing to compare."""
    over_peer: float | None
    """Over the peer's plain decoding."""
    over_peer_best: float | None
    """Over the peer with its best block size."""


@dataclass(frozen=True, slots=True)
class Speed:
    """The whole comparison."""

    cases: tuple[Case, ...]
    names: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    """By case and contestant."""

    def cell(self, case: Case, name: str) -> Cell:
        return self.cells.get((case.name, name), Cell(()))

    @property
    def greedy(self) -> list[Case]:
        return [case for case in self.cases if not case.temperature]

    @property
    def peer_best(self) -> str | None:
        """The peer with the block size that is fastest on the mean of the greedy texts."""
        peers = [name for name in self.names if name.startswith(PEER) and name != PEER]
        return max(peers, key=lambda name: self._mean_tps(name) or 0.0, default=None)

    def summaries(self) -> list[Summary]:
        return [self._summary(name) for name in self.names]

    def _mean_tps(self, name: str) -> float | None:
        return mean([self.cell(case, name).tps for case in self.greedy])

    def _over(self, name: str, other: str | None) -> float | None:
        if other is None or other not in self.names:
            return None
        return mean([self.cell(case, name).over(self.cell(case, other)) for case in self.greedy])

    def _summary(self, name: str) -> Summary:
        ratios = [(self.cell(case, name).over(self.cell(case, PLAIN)), case.name) for case in self.cases]
        equal = [self.cell(case, name).same_text(self.cell(case, PLAIN)) for case in self.greedy]
        compared = [value for value in equal if value is not None]
        return Summary(
            name=name,
            tps=self._mean_tps(name),
            over_plain=self._over(name, PLAIN),
            worst=min(((ratio, case) for ratio, case in ratios if ratio is not None), default=None),
            tokens_per_round=mean([self.cell(case, name).tokens_per_round for case in self.greedy]),
            near_ties=sum(self.cell(case, name).near_ties for case in self.greedy),
            equal=all(compared) if compared else None,
            over_peer=self._over(name, PEER),
            over_peer_best=self._over(name, self.peer_best),
        )

    def to_json(self) -> dict[str, Any]:
        """Texts with every run, and the summaries."""
        return {
            "cases": [
                {
                    "name": case.name,
                    "prompt": case.text,
                    "prompt_tokens": len(case.ids),
                    "temperature": case.temperature,
                    "contestants": {
                        name: {
                            "decode_tps": cell.tps,
                            "over_plain": cell.over(self.cell(case, PLAIN)),
                            "tokens_per_round": cell.tokens_per_round,
                            "equal": None if case.temperature else cell.same_text(self.cell(case, PLAIN)),
                            "runs": [run.to_json() for run in cell.runs],
                        }
                        for name in self.names
                        if (cell := self.cell(case, name)).runs
                    },
                }
                for case in self.cases
            ],
            "peer_best": self.peer_best,
            "summary": [_summary_json(summary) for summary in self.summaries()],
        }


def measure(
    contestants: Sequence[Contestant],
    cases: Sequence[Case],
    *,
    repetitions: int,
    warm_up: int = 1,
    progress: Progress,
) -> Speed:
    """Run everything.

    Args:
        warm_up: untimed runs of each contestant on the start of the first text, before anything is timed.
    """
    total, done = len(cases) * repetitions * len(contestants), 0
    first = replace(cases[0], max_tokens=min(_WARM_UP_TOKENS, cases[0].max_tokens))
    for turn in range(warm_up):
        for contestant in contestants:
            progress(0.0, f"Warming up: {contestant.name}")
            contestant.run(first, turn)
    runs: dict[tuple[str, str], list[Run]] = {}
    for case in cases:
        for repetition in range(repetitions):
            for contestant in contestants if repetition % 2 == 0 else contestants[::-1]:
                progress(done / total, f"{case.name}: {contestant.name}")
                done += 1
                run = contestant.run(case, repetition)
                if run is not None:
                    runs.setdefault((case.name, contestant.name), []).append(run)
    cells = {key: Cell(tuple(found)) for key, found in runs.items()}
    return Speed(tuple(cases), tuple(contestant.name for contestant in contestants), cells)


def middle(values: Sequence[float | None]) -> float | None:
    """Median of what was measured; None when nothing was."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of what was measured; None when nothing was."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _summary_json(summary: Summary) -> dict[str, Any]:
    worst = summary.worst
    return {
        "name": summary.name,
        "decode_tps": summary.tps,
        "over_plain": summary.over_plain,
        "worst_over_plain": None if worst is None else {"ratio": worst[0], "case": worst[1]},
        "tokens_per_round": summary.tokens_per_round,
        "near_ties": summary.near_ties,
        "equal": summary.equal,
        "over_peer": summary.over_peer,
        "over_peer_best": summary.over_peer_best,
    }

"""How the time of a forward grows with the context."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import mlx.core as mx

from engine.bench.speed import Progress
from engine.decode.target import PREFILL_CHUNK, Target
from engine.errors import PromptError
from engine.loaded import Engine


@dataclass(frozen=True, slots=True)
class ContextTimes:
    """Median seconds per forward, by context length and by rows (1: a plain step; more: a verify block)."""

    lengths: tuple[int, ...]
    rows: tuple[int, ...]
    seconds: dict[tuple[int, int], float]
    """By length and rows."""

    def ratio(self, length: int, rows: int) -> float:
        """To the first length."""
        return self.seconds[length, rows] / self.seconds[self.lengths[0], rows]

    def to_json(self) -> dict[str, Any]:
        return {
            "lengths": [
                {
                    "context": length,
                    "forwards": [
                        {"rows": rows, "ms": 1e3 * self.seconds[length, rows], "ratio": self.ratio(length, rows)}
                        for rows in self.rows
                    ],
                }
                for length in self.lengths
            ]
        }


def measure_context(
    engine: Engine, ids: Sequence[int], lengths: Sequence[int], *, rows: Sequence[int], repeats: int, progress: Progress
) -> ContextTimes:
    """Forwards with logits after each number of rows, in turns, so that all lengths meet the same machine.

    Args:
        ids: repeated until they are long enough; what they say does not matter.

    Raises:
        PromptError: a length that leaves no room in the model's context.
    """
    most = max(lengths) + max(rows)
    if most > engine.context:
        raise PromptError(
            f"A context of {max(lengths)} tokens and a forward were asked for; the model takes {engine.context}.",
            f"Name lengths up to {engine.context - max(rows)}.",
        )
    text = list(itertools.islice(itertools.cycle(ids), most))
    targets: dict[int, Target] = {}
    for done, length in enumerate(lengths):
        progress(0.5 * done / len(lengths), f"Reading {length} tokens")
        targets[length] = target = Target(engine.backbone)
        for _ in target.prefill(text[:length], PREFILL_CHUNK, _ignore):
            pass
    times: dict[tuple[int, int], list[float]] = {}
    for turn in range(repeats + 1):
        progress(0.5 + 0.5 * turn / (repeats + 1), "Timing")
        for length, target in targets.items():
            for count in rows:
                taken = _forward(target, text[length : length + count])
                if turn:
                    times.setdefault((length, count), []).append(taken)
    found = {key: median(values) for key, values in times.items()}
    return ContextTimes(tuple(lengths), tuple(rows), found)


def _forward(target: Target, tokens: Sequence[int]) -> float:
    """Seconds; leaves the target as it was."""
    mark = target.mark()
    began = time.perf_counter()
    hidden = target.forward(mx.array(list(tokens), mx.int32))
    mx.eval(mx.argmax(target.logits(hidden), axis=-1), target.cache.arrays)
    taken = time.perf_counter() - began
    target.restore(mark)
    return taken


def _ignore(hidden: mx.array, ids: Sequence[int]) -> None:
    """Stands in for a drafter."""

"""Runs of characters of a rendered text painted in a colour of their own: tints of rounds, marks of a search."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A run of characters, in document positions, with what the pointer learns there."""

    start: int
    end: int
    color: str
    tip: str


class SpanLayer:
    """Spans that ascend and do not overlap, found by position."""

    def __init__(self, spans: Sequence[Span] = ()) -> None:
        self.spans = spans
        self._starts = [span.start for span in spans]

    def at(self, position: int) -> Span | None:
        """The span that covers a position."""
        i = bisect_right(self._starts, position) - 1
        return self.spans[i] if i >= 0 and position < self.spans[i].end else None

    def since(self, position: int) -> Sequence[Span]:
        """The spans from the one on that may cover a position."""
        return self.spans[max(0, bisect_right(self._starts, position) - 1) :]

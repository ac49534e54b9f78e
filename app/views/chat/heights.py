"""Heights of all messages of a transcript: true ones of those that were shown, estimates of the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

FRAME = 90
"""What a message takes besides its text: name, footer, margins."""


def estimate(text: str, width: int, font_size: int) -> int:
    """Height of a message with `text` in a column of `width`, all in logical pixels."""
    lines = text.count("\n") + len(text) * 0.56 * font_size / max(200, width) + 1
    return round(FRAME + lines * 1.65 * font_size)


class Heights:
    """A list of heights with the space above the first and below the last."""

    def __init__(self, pad: int) -> None:
        self._pad = pad
        self._values: list[int] = []
        self._measured: list[bool] = []

    def reset(self, known: Sequence[int | None], estimates: Sequence[int]) -> None:
        """Start over; entry i is `known[i]` where that was measured, else `estimates[i]`."""
        self._values = [guess if true is None else true for true, guess in zip(known, estimates, strict=True)]
        self._measured = [true is not None for true in known]

    def append(self, guess: int) -> None:
        self._values.append(guess)
        self._measured.append(False)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, i: int) -> int:
        return self._values[i]

    def measured(self, i: int) -> int | None:
        """The true height, None where there is only an estimate."""
        return self._values[i] if self._measured[i] else None

    def measure(self, i: int, height: int) -> None:
        self._values[i], self._measured[i] = height, True

    def guess(self, i: int, height: int) -> None:
        self._values[i], self._measured[i] = height, False

    def outdate(self, i: int | None = None) -> None:
        """Make one height, or all, an estimate again."""
        if i is None:
            self._measured = [False] * len(self._values)
        else:
            self._measured[i] = False

    def rewrap(self, old: int, new: int) -> None:
        """The column's width changed: less room makes more lines."""
        self._values = [round(FRAME + (h - FRAME) * old / new) if h > FRAME else h for h in self._values]
        self.outdate()

    def tops(self) -> list[int]:
        """Where each message starts, and where the last one ends."""
        return list(accumulate(self._values, initial=self._pad))

    def in_sight(self, tops: Sequence[int], value: int, height: int) -> range:
        """The messages of which something shows between `value` and `value + height`."""
        first = max(0, bisect_right(tops, value, hi=len(self._values)) - 1)
        return range(first, bisect_right(tops, value + height, hi=len(self._values)))

"""A bounded log of hidden rows by position."""

from __future__ import annotations

from collections import deque

import mlx.core as mx


class RowLog:
    """Rows [1, L, H] of positions `start` .. `end` - 1, oldest first.

    Args:
        limit: rows kept; older ones are dropped with the array they came in.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.end = 0
        self._parts: deque[tuple[int, mx.array]] = deque()

    @property
    def start(self) -> int:
        """Position of the oldest row kept."""
        return self._parts[0][0] if self._parts else self.end

    def append(self, rows: mx.array) -> None:
        self._parts.append((self.end, rows))
        self.end += rows.shape[1]
        while len(self._parts) > 1 and self._parts[1][0] <= self.end - self.limit:
            self._parts.popleft()

    def truncate(self, end: int) -> None:
        """Drop the rows from position `end` on."""
        while self._parts and self._parts[-1][0] >= end:
            self._parts.pop()
        if self._parts:
            first, rows = self._parts[-1]
            if first + rows.shape[1] > end:
                self._parts[-1] = (first, rows[:, : end - first])
        self.end = end

    def restart(self, position: int) -> None:
        """Drop everything; the next row is `position`."""
        self._parts.clear()
        self.end = position

    def rows(self, start: int, end: int) -> mx.array:
        """[1, end - start, H].

        Raises:
            ValueError: the log does not hold all of them.
        """
        if not self.start <= start < end <= self.end:
            raise ValueError(f"rows {start} to {end} asked of a log that holds {self.start} to {self.end}")
        parts: list[mx.array] = []
        for first, rows in reversed(self._parts):  # the rows asked for are nearly always the newest
            if first + rows.shape[1] <= start:
                break
            if first < end:
                parts.append(rows[:, max(0, start - first) : end - first])
        return parts[0] if len(parts) == 1 else mx.concatenate(parts[::-1], axis=1)

    def copy(self) -> RowLog:
        """A log of its own over the same (immutable) arrays."""
        other = RowLog(self.limit)
        other.end, other._parts = self.end, deque(self._parts)
        return other

    @property
    def arrays(self) -> list[mx.array]:
        return [rows for _, rows in self._parts]

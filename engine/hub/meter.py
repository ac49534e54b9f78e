"""Smoothed rate and time left."""

from __future__ import annotations

import math

_HALF_LIFE = 5.0
"""Seconds after which a sample counts half."""
_MIN_SPAN = 0.05


class RateMeter:
    """Exponentially weighted bytes per second. Times in seconds, from one monotonic clock."""

    def __init__(self, now: float) -> None:
        self._last = now
        self._bytes = 0.0
        self._weight = 0.0
        self._pending = 0

    def add(self, count: int) -> None:
        """`count` bytes arrived since the last `sample`."""
        self._pending += count

    def sample(self, now: float) -> float | None:
        """Bytes per second up to `now`; None until anything was measured."""
        span = now - self._last
        if span >= _MIN_SPAN:
            decay = math.exp2(-span / _HALF_LIFE)
            self._bytes = self._bytes * decay + self._pending
            self._weight = self._weight * decay + span
            self._pending = 0
            self._last = now
        return self._bytes / self._weight if self._weight and self._bytes else None

    def eta(self, remaining: int, now: float) -> float | None:
        """Seconds until `remaining` bytes have arrived, or None while nothing moves."""
        rate = self.sample(now)
        return remaining / rate if rate and rate > 1 else None

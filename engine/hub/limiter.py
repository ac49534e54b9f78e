"""One bandwidth cap over all connections."""

from __future__ import annotations

import asyncio
import re
import time

from engine.errors import UserError

_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmg]?)(i?)(?:b(?:yte)?s?)?(?:/s)?\s*$", re.IGNORECASE)
_BURST = 0.1
"""Seconds of the cap that may be taken at once after an idle moment."""


class RateLimiter:
    """A token bucket. `rate` in bytes per second, None = no cap; may be changed while transfers run."""

    def __init__(self, rate: float | None = None) -> None:
        self.rate = rate
        self._ready = 0.0
        """Monotonic time at which everything granted so far is paid for."""

    async def take(self, count: int) -> None:
        """Returns once `count` bytes more are within the cap."""
        if not self.rate:
            return
        now = time.monotonic()
        self._ready = max(self._ready, now - _BURST) + count / self.rate
        if self._ready > now:
            await asyncio.sleep(self._ready - now)


def parse_rate(text: str) -> float:
    """Bytes per second of "500k", "20M", "1.5MB/s", "8MiB/s". k, M, G are powers of 1000, Ki, Mi, Gi of 1024.

    Raises:
        UserError: not a positive rate.
    """
    match = _RATE.match(text)
    value = 0.0
    if match and (match[2] or not match[3]):
        base = 1024 if match[3] else 1000
        value = float(match[1]) * base ** " kmg".index(match[2].lower() or " ")
    if value < 1:
        raise UserError(f"{text!r} is not a rate.", "Write bytes per second, for example 500k, 20M or 8MiB.")
    return value

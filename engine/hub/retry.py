"""When to try again: Retry-After if the server says, exponential back-off with jitter if it does not."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from engine.hub.responses import TransientError

_MAX_ATTEMPTS = 12
RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
_RATE_LIMIT = re.compile(r'"\w+"\s*;\s*r\s*=\s*(\d{1,9})\s*;\s*t\s*=\s*(\d{1,9})')


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Times in seconds."""

    first: float = 1.0
    ceiling: float = 30.0
    jitter: float = 0.25
    """Share by which a delay is lengthened at random, so that many clients do not come back at once."""
    give_up_after: float = 900.0
    """Longest time without one new byte; a wait that the server asked for does not count."""
    metadata_give_up_after: float = 15.0
    """The same for the short requests of a plan, where somebody is waiting for the answer."""
    longest_wait: float = 3600.0
    """A server that asks for more is told to the user instead."""
    longest_metadata_wait: float = 60.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after `failures` >= 1 failures in a row."""
        # The exponent is bounded: 2 ** 1100 does not fit a float.
        return min(self.ceiling, self.first * 2.0 ** min(failures - 1, 30)) * (1 + self.jitter * random.random())


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a response asks to wait: `Retry-After` (seconds or date), or the hub's `RateLimit` header.

    The latter is on every response of the hub, so it counts only where it says that nothing remains.

    Args:
        now: what a date is compared with; by default the response's own `Date`, since this machine's clock may be
            wrong by years, and that clock where it has none.
    """
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    if value:
        try:
            return max(0.0, (_date(value) - (now or _sent_at(headers))).total_seconds())
        except (ValueError, OverflowError):
            return None
    match = _RATE_LIMIT.search(headers.get("ratelimit", ""))
    if match and int(match[1]) == 0:
        return float(match[2])
    return None


def _sent_at(headers: Mapping[str, str]) -> datetime:
    try:
        return _date(headers["date"])
    except (KeyError, ValueError, OverflowError):
        return datetime.now(UTC)


def _date(text: str) -> datetime:
    """Raises ValueError, OverflowError."""
    date = parsedate_to_datetime(text)
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


class Patience:
    """Waits between attempts of one short request, and gives up."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._deadline = time.monotonic() + policy.metadata_give_up_after
        self._failures = 0

    async def wait(self, error: TransientError) -> None:
        """Sleeps as long as `error` asks. Raises the HubError behind it when that is too long."""
        self._failures += 1
        delay = self._policy.delay(self._failures) if error.wait is None else error.wait
        # A server may ask for a second's pause for ever.
        over = self._failures >= _MAX_ATTEMPTS or (error.wait is None and time.monotonic() + delay > self._deadline)
        if over or delay > self._policy.longest_metadata_wait or (error.patience and self._failures >= error.patience):
            raise error.shown from error
        if error.wait is not None:
            self._deadline += delay
        await asyncio.sleep(delay)

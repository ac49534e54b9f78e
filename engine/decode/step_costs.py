"""What a step costs by the drafts it carries, learnt from the steps that are run.

The clock is shared: a busy machine or a longer context slows every step alike, while what a round of k drafts costs in
plain steps hardly changes, and about linearly with k. So the logarithm of a step's seconds is taken for

    plain:  level + noise          k drafts:  level + line(k) + height + slope k + own(k) + noise

and level, height, slope and each width's own deviation are estimated by a Kalman filter (Kalman 1960). The level walks
quickly, height and slope slowly, and what a width has of its own fades, so that one that was measured in a bad moment
comes back to its neighbours' line without being run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FIRST_COST, FIRST_SLOPE = 1.2, 0.25
"""line(k), a round of k drafts before any was measured: so many plain steps, and so many more per draft."""
HEIGHT, SLOPE, OWN = 0.3, 0.1, 0.04
"""Standard deviations from it, of logarithms."""
WALK_LEVEL, WALK_HEIGHT, WALK_SLOPE = 0.06, 0.006, 0.002
"""Standard deviations of what a step changes."""
OWN_STEPS = 64
"""Steps after which a third is left of a width's own deviation."""
NOISE = 0.08
"""Standard deviation of one measurement."""
CREDIBLE = 2.5
"""Standard deviations that a measurement counts for at most: the machine has hiccups."""

_LEVEL, _HEIGHT, _SLOPE, _OWN = range(4)
"""Where the state holds what; a width's own deviations begin with the last."""


class StepCosts:
    """Seconds of a step by its drafts.

    Args:
        most: drafts per step at most.
    """

    def __init__(self, most: int) -> None:
        self._state = [0.0] * (_OWN + most)
        self._covariance = [[0.0] * (_OWN + most) for _ in self._state]
        for i, deviation in enumerate([0.0, HEIGHT, SLOPE, *[OWN] * most]):
            self._covariance[i][i] = deviation**2
        self._measured = [0] * (most + 1)
        self._seconds = self._expectations()

    def learn(self, drafts: int, seconds: float, *, settled: bool) -> None:
        """A step took `seconds`; `settled`: after the one before it had nothing to catch up with."""
        first, self._measured[drafts] = not self._measured[drafts], self._measured[drafts] + 1
        surprise = math.log(seconds) - self._expected(drafts)
        if sum(self._measured) == 1:
            self._state[_LEVEL], self._covariance[_LEVEL][_LEVEL] = surprise, 1.0
            self._seconds = self._expectations()
            return
        self._walk()
        if surprise > 0 and (first or not settled):
            # A first use, or a change, was paid for as well: the cost is below.
            self._seconds = self._expectations()
            return
        parts = _parts(drafts)
        shared = self._covariances_with(parts)
        variance = _weighted(parts, shared) + NOISE**2
        most = CREDIBLE * math.sqrt(variance)
        surprise = max(-most, min(most, surprise))
        for i, weight in enumerate(shared):
            gain = weight / variance
            self._state[i] += gain * surprise
            self._covariance[i] = [
                value - gain * other for value, other in zip(self._covariance[i], shared, strict=True)
            ]
        self._seconds = self._expectations()

    def _walk(self) -> None:
        covariance, kept = self._covariance, math.exp(-1.0 / OWN_STEPS)
        factors = [1.0] * _OWN + [kept] * (len(self._state) - _OWN)
        for i, row in enumerate(covariance):
            covariance[i] = [factors[i] * value * factor for value, factor in zip(row, factors, strict=True)]
        for i, deviation in ((_LEVEL, WALK_LEVEL), (_HEIGHT, WALK_HEIGHT), (_SLOPE, WALK_SLOPE)):
            covariance[i][i] += deviation**2
        for i in range(_OWN, len(self._state)):
            self._state[i] *= kept
            covariance[i][i] += OWN**2 * (1.0 - kept**2)

    def _expected(self, drafts: int) -> float:
        line = math.log(FIRST_COST + FIRST_SLOPE * drafts) if drafts else 0.0
        return line + _weighted(_parts(drafts), self._state)

    def _expectations(self) -> tuple[float, ...]:
        return tuple(math.exp(self._expected(drafts)) for drafts in range(len(self._measured)))

    def _covariances_with(self, parts: _Parts) -> list[float]:
        return [_weighted(parts, row) for row in self._covariance]

    @property
    def seconds(self) -> tuple[float, ...]:
        """Entry k: the cost of a step with k drafts; without any measurement, in plain steps."""
        return self._seconds

    def doubt(self, drafts: int, than: int) -> float:
        """Standard deviation of the logarithm of what a step with `drafts` costs in steps with `than`."""
        parts = (*_parts(drafts), *((i, -share) for i, share in _parts(than)))
        return math.sqrt(max(0.0, _weighted(parts, self._covariances_with(parts))))


_Parts = Sequence[tuple[int, float]]
"""Entries of the state, and how much of each."""


def _parts(drafts: int) -> _Parts:
    """What the cost of a step takes of the state."""
    if not drafts:
        return ((_LEVEL, 1.0),)
    return (_LEVEL, 1.0), (_HEIGHT, 1.0), (_SLOPE, float(drafts)), (_OWN + drafts - 1, 1.0)


def _weighted(parts: _Parts, values: Sequence[float]) -> float:
    return sum([share * values[i] for i, share in parts])

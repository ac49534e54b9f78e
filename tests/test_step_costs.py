"""Costs of steps by their drafts, learnt from a clock that is noisy, drifts and has hiccups."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest

from engine.decode.step_costs import FIRST_COST, FIRST_SLOPE, StepCosts

COSTS = [0.010, 0.016, 0.021, 0.027, 0.032]


def measured(
    steps: Iterable[int], *, pace: Callable[[int], float] = lambda step: 1.0, noise: float = 0.05, hiccups: float = 0.0
) -> StepCosts:
    rng, costs = random.Random(1), StepCosts(4)
    for step, drafts in enumerate(steps):
        seconds = COSTS[drafts] * pace(step) * rng.lognormvariate(0.0, noise)
        costs.learn(drafts, seconds * (8.0 if rng.random() < hiccups else 1.0), settled=True)
    return costs


def ratios(costs: StepCosts) -> list[float]:
    seconds = costs.seconds
    return [value / seconds[0] for value in seconds]


def test_before_any_measurement_a_round_costs_a_line_of_plain_steps() -> None:
    assert StepCosts(3).seconds == pytest.approx((1.0, *(FIRST_COST + FIRST_SLOPE * k for k in (1, 2, 3))))


def test_every_width_is_learnt() -> None:
    assert measured([0, 1, 2, 3, 4] * 20).seconds == pytest.approx(COSTS, rel=0.06)


def test_a_hiccup_counts_for_little() -> None:
    assert measured([0, 1, 2, 3, 4] * 40, hiccups=0.04).seconds == pytest.approx(COSTS, rel=0.12)


def test_widths_that_were_measured_tell_of_those_that_were_not() -> None:
    costs = measured([0, 0, 2, 2, 3, 3] * 10)
    assert ratios(costs)[4] == pytest.approx(COSTS[4] / COSTS[0], rel=0.15)
    assert ratios(costs)[1] == pytest.approx(COSTS[1] / COSTS[0], rel=0.15)


def test_a_machine_that_slows_down_slows_the_widths_that_are_not_run_too() -> None:
    """Plain steps are not preferred because they were last measured on an idle machine."""
    costs = measured([0, 4] * 15 + [4] * 30, pace=lambda step: 1.0 if step < 30 else 1.5)
    assert costs.seconds[4] == pytest.approx(1.5 * COSTS[4], rel=0.08)
    assert costs.seconds[0] == pytest.approx(1.5 * COSTS[0], rel=0.15)


def test_a_first_use_and_a_change_of_kind_are_upper_bounds() -> None:
    costs = measured([0] * 5)
    costs.learn(4, 1.0, settled=True)
    assert ratios(costs)[4] == pytest.approx(FIRST_COST + 4 * FIRST_SLOPE)
    costs.learn(4, 0.9, settled=False)
    assert ratios(costs)[4] == pytest.approx(FIRST_COST + 4 * FIRST_SLOPE)
    for _ in range(4):
        costs.learn(4, 0.011, settled=False)
    assert ratios(costs)[4] < 1.8


def test_doubt_shrinks_with_measurements_and_grows_again_with_time() -> None:
    fresh = measured([0] * 3).doubt(4, 0)
    seen = measured([0, 4] * 20)
    before = seen.doubt(4, 0)
    assert before < fresh / 4
    for _ in range(200):
        seen.learn(0, COSTS[0], settled=True)
    assert before < seen.doubt(4, 0) < fresh
    assert seen.doubt(2, 2) == 0.0
    assert seen.doubt(3, 4) == pytest.approx(seen.doubt(4, 3))


def test_thousands_of_steps_leave_it_sound() -> None:
    costs = measured([0, 1, 2, 3, 4] * 1000, pace=lambda step: 1.0 + 0.4 * math.sin(step / 300))
    assert ratios(costs) == pytest.approx([value / COSTS[0] for value in COSTS], rel=0.1)
    assert all(0 < costs.doubt(k, 0) < 0.1 for k in range(1, 5))

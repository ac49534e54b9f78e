"""The depth policy against simulated texts and clocks: near the best fixed choice, quick to follow, hard to mislead."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from engine.decode.depth import LOOKED_AT, OPENING, RARELY, RAREST, Acceptance, DepthPolicy

COSTS = {
    "traffic": [1.0, 1.4, 1.7, 2.0, 2.3],
    "cheap": [1.0, 1.25, 1.45, 1.65, 1.85],
    "dear": [1.0, 2.2, 2.9, 3.6, 4.3],
    "bent": [1.0, 1.15, 1.6, 2.4, 3.2],
    "eight": [1.0, *(1.2 + 0.12 * i for i in range(8))],
}
"""Seconds of a step by drafts, in plain steps."""
TEXTS = {
    "code": [0.93, 0.93, 0.92, 0.92],
    "easy": [0.8, 0.75, 0.7, 0.7],
    "half": [0.6, 0.5, 0.5, 0.4],
    "prose": [0.4, 0.3, 0.3, 0.3],
    "random": [0.05, 0.05, 0.05, 0.05],
    "cliff": [0.9, 0.9, 0.2, 0.2],
}
"""Share of drafts that stand, by position, each given the one before."""
CATCH_UP, TURN, LOOK = 0.3, 0.1, 0.2
"""What a round costs more after plain steps, a plain step after rounds, and one that is told of others in hindsight."""


def rates(shares: Sequence[float], costs: Sequence[float]) -> list[float]:
    """Tokens per second of each fixed number of drafts."""
    reach = itertools.accumulate(shares, lambda a, b: a * b, initial=1.0)
    tokens = itertools.accumulate(reach)
    return [t / c for t, c in zip(tokens, costs, strict=False)]


def shares_of(text: str, costs: Sequence[float]) -> list[float]:
    return (TEXTS[text] * 2)[: len(costs) - 1]


@dataclass
class Simulation:
    """Decodes with a policy; texts, clocks and luck are the caller's."""

    costs: Sequence[float]
    seed: int
    noise: float = 0.05
    outliers: float = 0.0
    pace: Callable[[int], float] = lambda tokens: 1.0
    """What all costs are multiplied with, by tokens so far."""
    answer: int = 250
    widths: list[int] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)
    """Of each step, the tokens that the policy asked for in hindsight."""
    foretold: list[bool] = field(default_factory=list)
    """Of each step, whether the policy foresaw another of its kind, plain or with drafts."""
    seconds: float = 0.0
    """Outliers left out: what they cost is no one's choice."""
    ideal: float = 0.0
    """Seconds of the best fixed number of drafts for each text."""
    expected: float = 0.0
    """Tokens that the rounds chosen emit on average: the luck of this run left out."""
    tokens: int = 0

    def __post_init__(self) -> None:
        self.policy = DepthPolicy(len(self.costs) - 1)
        self.policy.begin()
        self._rng = random.Random(self.seed)
        self._before: int | None = None

    def begin(self) -> Simulation:
        """Another answer starts."""
        self.policy.begin()
        self._before = None
        return self

    def read(self, text: str, tokens: int) -> Simulation:
        """Go on for `tokens` of `text`."""
        shares = shares_of(text, self.costs)
        each = rates(shares, self.costs)
        end = self.tokens + tokens
        while self.tokens < end:
            drafts = self.policy.choose(len(shares))
            self.foretold.append(self.policy.rounds_follow() if drafts else self.policy.plain_follows())
            looked = 0 if drafts else self.policy.hindsight()
            self.looks.append(looked)
            accepted = 0
            while accepted < drafts and self._rng.random() < shares[accepted]:
                accepted += 1
            pace = self.pace(self.tokens)
            took = self.costs[drafts] * pace * self._rng.lognormvariate(0.0, self.noise)
            if self._before is not None and (self._before > 0) != (drafts > 0):
                took += pace * (CATCH_UP if drafts else TURN)
            took += pace * LOOK * (looked > 0)
            self.seconds += took
            emitted = each[drafts] * self.costs[drafts]
            self.ideal += pace * emitted / max(each)
            self.expected += emitted
            if self._rng.random() < self.outliers:
                took *= 10
            self.policy.learn(drafts, accepted, took)
            if looked:
                self.policy.learn_hindsight([float(self._rng.random() < shares[0]) for _ in range(looked)])
            self.widths.append(drafts)
            self._before = drafts
            if self.tokens // self.answer != (self.tokens + accepted + 1) // self.answer:
                self.begin()
            self.tokens += accepted + 1
        return self


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", COSTS)
def test_a_steady_text_runs_close_to_the_best_fixed_choice(name: str, text: str) -> None:
    """Nowhere is it slower than 0.97 of plain steps. Bad luck may cost a run a little more."""
    runs = [Simulation(COSTS[name], seed).read(text, 2000) for seed in range(5)]
    shares = [run.ideal / run.seconds for run in runs]
    assert statistics.median(shares) > 0.93
    assert min(shares) > 0.91
    assert statistics.median(run.expected / run.seconds for run in runs) > 0.97


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("text", ["random", "code"])
def test_a_first_short_answer_pays_little_for_what_it_finds_out(name: str, text: str) -> None:
    runs = [Simulation(COSTS[name], seed).read(text, 250) for seed in range(12)]
    assert mean([run.ideal / run.seconds for run in runs]) > 0.92
    assert mean([run.expected / run.seconds for run in runs]) > 0.95


@pytest.mark.parametrize(("before", "after"), [("prose", "code"), ("code", "prose"), ("code", "random")])
@pytest.mark.parametrize("name", ["traffic", "cheap", "eight"])
def test_another_kind_of_text_is_followed_within_20_steps(name: str, before: str, after: str) -> None:
    shares = []
    for seed in range(21):
        simulation = Simulation(COSTS[name], seed).read(before, 400)
        steps = len(simulation.widths)
        while len(simulation.widths) < steps + 20:
            simulation.read(after, 1)
        ideal, seconds = simulation.ideal, simulation.seconds
        simulation.read(after, 150)
        shares.append((simulation.ideal - ideal) / (simulation.seconds - seconds))
    assert mean(shares) > 0.87


def steps(policy: DepthPolicy, count: int, stands: Callable[[int], bool]) -> list[int]:
    """What it chooses where all drafts of a step stand or none, the skipped ones seen in hindsight included."""
    widths: list[int] = []
    for step in range(count):
        drafts = policy.choose(4)
        looked = 0 if drafts else policy.hindsight()
        policy.learn(drafts, drafts if stands(step) else 0, COSTS["traffic"][drafts])
        if looked:
            policy.learn_hindsight([float(stands(step))] * looked)
        widths.append(drafts)
    return widths


def test_samples_of_a_high_temperature_begin_with_plain_steps_and_drafts_are_tried_soon() -> None:
    policy = DepthPolicy(4)
    policy.begin(0.0)
    steps(policy, 20, lambda _: True)
    policy.begin(1.5)
    widths = steps(policy, 12, lambda _: True)
    assert widths[0] <= 1
    assert widths[-1] == 4


def test_texts_that_take_turns_are_told_apart_by_what_they_usually_are() -> None:
    """A few drafts that fall in a text where most stand do not stop them for long."""
    policy = DepthPolicy(4)
    policy.begin()
    steps(policy, 300, lambda step: step % 40 >= 4)
    assert sum(width == 0 for width in steps(policy, 40, lambda step: step >= 4)) <= 8


@pytest.mark.parametrize("name", COSTS)
def test_hardly_a_draft_is_spent_on_a_text_whose_drafts_fall(name: str) -> None:
    """It is looked back on instead, ever less often; what rounds cost is measured again now and then."""
    run = Simulation(COSTS[name], 4, answer=10**9).read("random", 1200)
    assert mean([width > 0 for width in run.widths[60:]]) < 0.015
    looks = [step for step, looked in enumerate(run.looks) if looked]
    assert max(run.looks) == LOOKED_AT
    assert 1200 / RAREST - 2 < len(looks) < 1200 / RAREST + 6
    gaps = [after - before for before, after in itertools.pairwise(looks)]
    assert gaps[0] < gaps[1] < gaps[2] < gaps[3] <= RAREST + 3


def test_drafts_come_back_by_what_is_seen_in_hindsight() -> None:
    """Within the steps after which tokens are looked back on, a queued step, and no draft before."""
    policy = DepthPolicy(4)
    policy.begin()
    steps(policy, 60, lambda _: True)
    fell = steps(policy, 40, lambda _: False)
    assert sum(width > 0 for width in fell[-20:]) <= 1
    back = steps(policy, RARELY + 4, lambda _: True)
    assert back[-1] == 4
    assert not any(back[: LOOKED_AT // 2])


def test_an_answer_is_begun_as_the_last_one_was() -> None:
    """Openings are alike: drafts that stood there are made again, though they fell in all the rest."""
    policy = DepthPolicy(4)
    starts: list[list[int]] = []
    for _ in range(6):
        policy.begin(1.5)
        widths, tokens = [], 0
        while tokens < 120:
            width = steps(policy, 1, lambda _: tokens < OPENING)[0]  # noqa: B023
            tokens += 1 + width * (tokens < OPENING)
            widths.append(width)
        starts.append(widths)
    assert starts[0][0] == 0
    assert starts[-1][0] > 0
    assert not any(starts[-1][10:])


def test_later_drafts_are_expected_to_fall_short_with_the_first() -> None:
    """They are seen only where the first ones stand, and would be trusted for as long as those fall."""
    acceptance = Acceptance(4)
    for _ in range(200):
        acceptance.learn(4, 4)
    easy = acceptance.tokens()
    for _ in range(12):
        acceptance.learn(4, 0)
    hard = acceptance.tokens()
    assert easy[4] > 4.8
    first, second, third = (after - before for before, after in itertools.pairwise(hard[:4]))
    assert first < 0.5
    assert second < 0.6 * first
    assert third < 0.6 * second
    assert acceptance.tokens(usual=True)[4] > 4.0


def test_a_burst_of_drafts_that_fall_is_sat_out() -> None:
    """Where drafts pay a little on average, luck makes plain steps look better for a few rounds all the time."""
    runs = [Simulation(COSTS["traffic"], seed).read("half", 2000) for seed in range(8)]
    changes = [mean([(a > 0) != (b > 0) for a, b in itertools.pairwise(run.widths)]) for run in runs]
    assert mean(changes) < 0.022


def test_temperatures_are_told_apart() -> None:
    """What falls at a high temperature says nothing of greedy text, and is remembered for the next such answer."""
    policy = DepthPolicy(4)
    for temperature, stands in ((0.0, True), (1.5, False)) * 3:
        policy.begin(temperature)
        for _ in range(40):
            drafts = policy.choose(4)
            policy.learn(drafts, drafts if stands else 0, COSTS["traffic"][drafts])
    policy.begin(0.0)
    assert policy.choose(4) == 4
    policy.begin(1.5)
    assert policy.choose(4) == 0


@pytest.mark.parametrize("text", ["code", "easy", "prose", "random"])
@pytest.mark.parametrize(
    "clock",
    [
        {"outliers": 0.05},
        {"noise": 0.15, "outliers": 0.02},
        {"pace": lambda tokens: 1 + tokens / 1500},
        {"pace": lambda tokens: 2.5 if tokens // 60 % 3 == 1 else 1.0},
    ],
    ids=["outliers", "noise", "growing", "bursts"],
)
def test_a_restless_clock_misleads_it_little(clock: dict[str, object], text: str) -> None:
    runs = [Simulation(COSTS["traffic"], seed, **clock).read(text, 1500) for seed in range(8)]  # type: ignore[arg-type]
    assert mean([run.ideal / run.seconds for run in runs]) > 0.91


def test_a_hiccup_at_the_first_use_of_every_width_rules_none_out() -> None:
    policy, seen = DepthPolicy(4), set()
    policy.begin()
    for _ in range(60):
        drafts = policy.choose(4)
        policy.learn(drafts, drafts, COSTS["traffic"][drafts] * (1 if drafts in seen else 20))
        seen.add(drafts)
    assert policy.choose(4) == 4


def test_what_an_answer_learnt_helps_the_next() -> None:
    """A text where drafts fall starts the next answer with plain steps, one where they stand with drafts."""
    for text, drafting in (("random", False), ("code", True)):
        simulation = Simulation(COSTS["traffic"], 1).read(text, 249)
        simulation.policy.begin()
        assert (simulation.policy.choose(4) > 0) == drafting


@pytest.mark.parametrize(("between", "least"), [("prose", 0.98), ("random", 0.96)])
def test_an_answer_whose_drafts_fell_does_not_keep_the_next_from_them(between: str, least: float) -> None:
    shares: list[float] = []
    for seed in range(30):
        simulation = Simulation(COSTS["traffic"], seed, answer=10**9).read("easy", 1500)
        for _ in range(3):
            simulation.begin().read(between, 60).begin()
            seconds, ideal = simulation.seconds, simulation.ideal
            simulation.read("easy", 60)
            shares.append((simulation.ideal - ideal) / (simulation.seconds - seconds))
    assert mean(shares) > least
    assert sorted(shares)[len(shares) // 10] > 0.93


def test_the_time_of_a_step_whose_forward_was_queued_before_is_no_cost() -> None:
    """Else two plain steps of 10 ms, in which three forwards begin and end, seem to take 20 ms and 1 ms."""
    policy, widths = DepthPolicy(4), []
    queued = False
    for step in range(600):
        if step % 12 == 0:
            policy.begin()
        drafts = 0 if step % 12 < 2 else policy.choose(4)
        begins = not drafts and step % 12 == 0
        whole = bool(drafts) or begins == queued
        seconds = 0.01 * COSTS["traffic"][drafts] if whole else 0.02 if begins else 0.001
        policy.learn(drafts, min(drafts, 2), seconds, whole=whole)
        queued = begins
        widths.append(drafts)
    chosen = [width for step, width in enumerate(widths) if step % 12 >= 2 and step > 100]
    assert sum(width > 0 for width in chosen) > 0.9 * len(chosen)


def test_the_limit_holds_and_leaves_nothing_below_one() -> None:
    simulation = Simulation(COSTS["traffic"], 3).read("code", 200)
    for limit in (4, 3, 2, 1):
        assert 1 <= simulation.policy.choose(limit) <= limit
    assert simulation.policy.choose(0) == 0


@pytest.mark.parametrize("text", ["random", "code"])
def test_what_follows_is_foretold_so_that_it_can_be_queued(text: str) -> None:
    """After a plain step whether another one comes, after a round whether another round does."""
    simulation = Simulation(COSTS["traffic"], 2).read(text, 1000)
    follows = [(before > 0) == (after > 0) for before, after in itertools.pairwise(simulation.widths)]
    right = [told == came for told, came in zip(simulation.foretold, follows, strict=False)]
    assert mean(right) > 0.98


def test_plain_steps_are_measured_again_where_they_might_pay() -> None:
    widths = Simulation([1.0, 1.5, 2.1, 2.8, 3.6], 5, answer=10**6).read("half", 4000).widths
    assert sum(not width for width in widths[4:]) / len(widths) > 0.005
    easy = Simulation(COSTS["cheap"], 5, answer=10**6).read("code", 4000).widths
    assert sum(not width for width in easy[4:]) < 0.01 * len(easy)


def looking_back(most: int) -> DepthPolicy:
    """A policy whose latest plain step was told of others in hindsight and expects a plain one to follow."""
    policy = DepthPolicy(most)
    policy.begin()
    while True:
        drafts = policy.choose(most)
        looked = 0 if drafts else policy.hindsight()
        policy.learn(drafts, 0, COSTS["traffic"][drafts])
        if looked:
            policy.learn_hindsight([0.0] * looked)
            return policy


def test_rounds_of_a_fixed_block_after_a_look_back_are_measured_as_others() -> None:
    """That one step had rows to read for the look says nothing of those that nobody asked the policy for."""
    policy = looking_back(1)
    for _ in range(12):
        for drafts in (0, 0, 0, 1, 1, 1):
            policy.learn(drafts, drafts, 2.5 if drafts else 1.0)
    assert [policy.choose(1) for _ in range(2)] == [0, 0]


def test_no_plain_step_is_owed_after_rounds_of_a_fixed_block() -> None:
    """What was queued before them is long gone."""
    policy = looking_back(4)
    for _ in range(60):
        policy.learn(4, 4, COSTS["traffic"][4])
    assert policy.choose(4) == 4


def test_an_answer_that_ended_with_a_look_back_leaves_no_mark_on_the_next() -> None:
    """The policy is not told of the step that an answer ends with."""
    policy = looking_back(4)
    for _ in range(2 * RAREST):
        assert policy.choose(4) == 0
        if policy.hindsight():
            break
        policy.learn(0, 0, 1.0)
    assert policy.hindsight() > 0
    policy.begin()
    assert policy.hindsight() == 0
    assert not policy.plain_follows()

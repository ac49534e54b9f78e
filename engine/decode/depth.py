"""How many drafts a round carries: each takes the number that promises most tokens per second.

A round of k drafts emits 1 + p_1 + p_1 p_2 + ... + p_1 ... p_k tokens in expectation (Leviathan et al. 2023), p_i being
the share of drafts i that stand given that the one before stands, and takes the seconds that rounds of k took lately.
k = 0 is a plain step: one token, no draft. Both sides are measured while the answer runs, so nothing is tuned.

What this costs: a choice changes how fast an answer comes, never its greedy text, and with sampling never its
distribution. Which random draw meets which token does depend on the rounds, and these on the clock: with a seed, the
same text comes again only with a fixed number of drafts (or none).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

FIRST_SHARE = 0.6
"""What the first draft of a round is taken for before any was seen: a new text starts with drafts."""
PRIOR_WEIGHT = 2.0
"""Drafts that the expectation counts for, beside those that were seen."""
WINDOW = 64
"""Drafts remembered per position."""
CARRIED = 12
"""Of these, how many the next answer keeps."""
RECENT = (4, 5, 6, 8, 10, 13, 17, 22, 28)
"""Numbers of recent drafts that are compared with those before to find a change of text."""
RISE, FALL = 2.8, 3.7
"""Standard errors between the two that make a change. A rise seen by mistake costs a few rounds, a fall may stop drafts
for long."""

SAMPLES = 7
"""Recent steps of one width whose median is its cost."""
TRUSTED = 2
"""Samples of a width that make its cost known."""
BREAK_STEPS, BREAK_SAMPLES = 8, 2
"""A width that comes back after so many steps keeps so many old samples, so that a few new ones outvote them."""
STALE_STEPS = 64
"""After so many it keeps none: the context has grown, or the machine does something else."""
FIRST_SLOPE = 0.2
"""Cost of a draft in plain steps, before any was measured."""

BUDGET = 0.016
"""Share of the time that probes may lose."""
DEAREST = 5.0
"""Plain steps that a step counts for at most, where the time is accounted for."""
PLAIN_STEPS = 3
"""Steps of a probe of plain steps. The first pays for the change, so its time does not count."""
DRAFT_STEPS = 8
"""Rounds of a probe of drafts at most: it ends with the first that keeps none."""
FIRST_STEPS = 2
"""Plain steps that a policy begins with, to have something to compare with."""
PLAIN_EVERY = 128
"""Steps after which plain ones are measured again while drafts run."""
DRAFTS_EVERY = 8
"""Plain steps after which drafts are tried again."""
OTHERS_EVERY = 16
"""Rounds after which one of another width is tried that might pay."""
HOPE = 1.2
"""Advantage that a width next to the best one may turn out to have as long as it was never measured."""
STAY = 1.02
"""Advantage that a change between drafts and plain steps must promise."""


class Acceptance:
    """Share of drafts that stand, by position, each given that the one before stands.

    A share is the mean over a window that holds what was seen since the text last changed, so that it is steady in
    steady text and new within a few rounds of other text: as in ADWIN (Bifet and Gavaldà 2007) the older part goes
    where the newer one differs from it by more than chance. A change at one position holds for the deeper ones as well,
    which are reached less often. A position with little in its window takes after the one before it.
    """

    def __init__(self, most: int) -> None:
        self._round = 0
        self._seen: list[deque[tuple[int, bool]]] = [deque(maxlen=WINDOW) for _ in range(most)]
        """(round, whether the draft stood), by position."""

    def learn(self, drafted: int, accepted: int) -> None:
        """The first `accepted` of `drafted` drafts stood."""
        self._round += 1
        for i in range(min(drafted, accepted + 1)):
            self._seen[i].append((self._round, i < accepted))
        for i in range(min(drafted, accepted + 1)):
            since = _changed(self._seen[i])
            if since is not None:
                self._forget(i, since)
                break

    def _forget(self, position: int, before: int) -> None:
        for seen in self._seen[position:]:
            while seen and seen[0][0] < before:
                seen.popleft()

    def carry_over(self) -> None:
        """Another answer begins: what was seen in the last one counts for less."""
        for seen in self._seen:
            while len(seen) > CARRIED:
                seen.popleft()

    def shares(self) -> list[float]:
        """Entry i: the share of position i."""
        result: list[float] = []
        share = FIRST_SHARE
        for seen in self._seen:
            share = (sum(stood for _, stood in seen) + PRIOR_WEIGHT * share) / (len(seen) + PRIOR_WEIGHT)
            result.append(share)
        return result

    def tokens(self, hope_from: int | None = None) -> list[float]:
        """Entry k: tokens that a round of k drafts emits in expectation.

        Args:
            hope_from: positions from there on are taken one standard error better than they look.
        """
        result, reach = [1.0], 1.0
        for i, share in enumerate(self.shares()):
            hope = 0.0
            if hope_from is not None and i >= hope_from:
                hope = math.sqrt(share * (1 - share) / (len(self._seen[i]) + PRIOR_WEIGHT))
            reach *= min(1.0, share + hope)
            result.append(result[-1] + reach)
        return result


def _changed(seen: Sequence[tuple[int, bool]]) -> int | None:
    """The round from which on drafts stand more or less often than before, if there is one."""
    stood = [hit for _, hit in reversed(seen)]
    total, hits = len(stood), sum(stood)
    spread = hits / total * (1 - hits / total)
    for recent in RECENT:
        older = total - recent
        if older < RECENT[0]:
            break
        new = sum(stood[:recent])
        difference = new / recent - (hits - new) / older
        error = math.sqrt(spread * (1 / recent + 1 / older))
        if difference > RISE * error or -difference > FALL * error:
            return seen[older][0]
    return None


class StepCosts:
    """Seconds of a step by the drafts it carries: the median of the recent ones, and a line where none was measured."""

    def __init__(self, most: int) -> None:
        self._samples: list[deque[tuple[int, float]]] = [deque(maxlen=SAMPLES) for _ in range(most + 1)]
        """(step, seconds), by drafts."""
        self._bounds: list[float | None] = [None] * (most + 1)
        """The least that a step took which paid for a change of kind, by drafts: the cost is below it."""
        self._step = 0

    def learn(self, drafts: int, seconds: float, *, settled: bool) -> None:
        """A step took `seconds`; `settled`: the one before was of the same kind."""
        self._step += 1
        samples, bound = self._samples[drafts], self._bounds[drafts]
        if not settled:
            self._bounds[drafts] = seconds if bound is None else min(bound, seconds)
            if not samples or seconds >= self.seconds()[drafts]:
                return
        gap = self.age(drafts) or 0
        kept = 0 if gap > STALE_STEPS else BREAK_SAMPLES if gap > BREAK_STEPS else SAMPLES
        while len(samples) > kept:
            samples.popleft()
        samples.append((self._step, seconds))

    def age(self, drafts: int) -> int | None:
        """Steps since one with that many drafts was measured; None when it never was."""
        samples = self._samples[drafts]
        return self._step - samples[-1][0] if samples else None

    def seconds(self) -> list[float]:
        """Entry k: the cost of a step with k drafts; without any measurement, in plain steps."""
        medians = [self._median(drafts) for drafts in range(len(self._samples))]
        first, slope = self._line(medians)
        least = min((median for median in medians if median is not None), default=0.0)
        result: list[float] = []
        for k, (median, bound) in enumerate(zip(medians, self._bounds, strict=True)):
            guess = max(first + slope * k, least)
            if median is not None and (self._trusted(k) or not k):
                result.append(median)
                continue
            # A bound holds what the change cost, and a single sample what a first use prepares, or it is an outlier:
            # it must not rule the width out.
            seen = median if median is not None else bound
            result.append(guess if seen is None else min(seen, math.sqrt(guess * seen)))
        return result

    def _trusted(self, drafts: int) -> bool:
        return len(self._samples[drafts]) >= TRUSTED

    def _median(self, drafts: int) -> float | None:
        # The lower one of two, since steps are delayed and never hurried.
        ordered = sorted(seconds for _, seconds in self._samples[drafts])
        return ordered[(len(ordered) - 1) // 2] if ordered else None

    def _line(self, medians: Sequence[float | None]) -> tuple[float, float]:
        """Intercept and slope of the rounds' cost, which is about affine in their drafts; weighted least squares."""
        known = [
            (k, median, len(self._samples[k]))
            for k, median in enumerate(medians)
            if median is not None and k and self._trusted(k)
        ]
        plain = medians[0]
        if len(known) == 1 and plain is not None:
            known.append((0, plain, 1))
        if len(known) > 1:
            weight = sum(n for _, _, n in known)
            mean_k = sum(n * k for k, _, n in known) / weight
            mean = sum(n * seconds for _, seconds, n in known) / weight
            spread = sum(n * (k - mean_k) ** 2 for k, _, n in known)
            slope = max(0.0, sum(n * (k - mean_k) * (seconds - mean) for k, seconds, n in known) / spread)
            return mean - slope * mean_k, slope
        if known:
            k, seconds, _ = known[0]
            plain = seconds / (1.0 + FIRST_SLOPE * k)
        if plain is None:
            plain = 1.0
        return plain, FIRST_SLOPE * plain


class DepthPolicy:
    """Chooses the drafts of each round from what the ones before brought and took.

    Call `begin` for each answer, then `choose` and `learn` for each step.

    A probe is a step taken to learn: plain ones while drafts run, drafts while plain steps run, a deeper round where
    a deeper draft might pay but was not seen lately. What a probe lost against the best known choice is a debt, and
    none follows until `BUDGET` of the time has paid it off.

    What it knows of costs holds for the session; what it knows of the text fades from answer to answer.

    Args:
        most: drafts per round at most, at least 1.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._acceptance = Acceptance(most)
        self._costs = StepCosts(most)
        self._before: int | None = None
        """Drafts of the step before; None at the beginning of an answer."""
        self._alike = 0
        """Steps since a change between drafts and plain steps, or since a probe."""
        self._probe: _Probe | None = None
        self._best = 0
        """What the latest step would have been but for a probe."""
        self._debt = 0.0
        """Seconds."""

    def begin(self) -> None:
        """Another answer starts."""
        self._acceptance.carry_over()
        self._before = self._probe = None

    def choose(self, limit: int) -> int:
        """Drafts of the next step, 0 for a plain one, at most `limit`."""
        most = min(limit, self.most)
        if most <= 0:
            return 0
        if self._probe is not None:
            return min(self._probe.drafts, most)
        if self._costs.age(0) is None and self._alike < FIRST_STEPS:
            return 0
        costs = self._costs.seconds()
        rates = [tokens / seconds for tokens, seconds in zip(self._acceptance.tokens(), costs, strict=True)]
        deepest = max(range(1, most + 1), key=rates.__getitem__)
        drafts_pay = rates[deepest] > rates[0] * (STAY if self._before == 0 else 1 / STAY)
        best = self._best = deepest if drafts_pay else 0
        if self._debt <= 0:
            self._probe = self._new_probe(best, deepest, most, rates)
        return best if self._probe is None else self._probe.drafts

    def _new_probe(self, best: int, deepest: int, most: int, rates: Sequence[float]) -> _Probe | None:
        if best == 0:
            return _Probe(deepest, DRAFT_STEPS, rates[0]) if self._alike >= DRAFTS_EVERY else None
        age = self._costs.age(0)
        if age is None or age >= PLAIN_EVERY:
            return _Probe(0, PLAIN_STEPS, rates[best])
        if self._alike < OTHERS_EVERY:
            return None
        for other in (best - 1, best + 1):
            if 0 < other <= most and self._costs.age(other) is None and HOPE * rates[other] > rates[best]:
                return _Probe(other, 1, rates[best])
        hopes, costs = self._acceptance.tokens(hope_from=best), self._costs.seconds()
        deeper = max(range(best, most + 1), key=lambda k: hopes[k] / costs[k])
        return _Probe(deeper, 1, rates[best]) if deeper > best else None

    def plain_follows(self) -> bool:
        """Whether another plain step is likely to follow the one that `choose` just gave."""
        if self._probe is not None:
            return self._probe.drafts == 0 and self._probe.steps > 1
        return self._debt > 0 or self._alike + 1 < DRAFTS_EVERY

    def rounds_follow(self) -> bool:
        """Whether drafts are likely to follow the step that `choose` just gave."""
        if self._probe is not None and self._probe.steps > 1:
            return self._probe.drafts > 0
        return self._best > 0

    def learn(self, drafted: int, accepted: int, seconds: float) -> None:
        """A step was run: `accepted` of `drafted` drafts stood, and it took `seconds`."""
        if drafted > self.most or seconds <= 0:
            return
        settled = self._before is not None and (self._before > 0) == (drafted > 0)
        self._alike = self._alike + 1 if settled else 1
        self._acceptance.learn(drafted, accepted)
        self._costs.learn(drafted, seconds, settled=settled)
        self._before = drafted
        self._settle_debt(drafted, accepted, seconds)

    def _settle_debt(self, drafted: int, accepted: int, seconds: float) -> None:
        costs = self._costs.seconds()
        # A hiccup of the machine is no reason to stop looking.
        paid = min(seconds, 2 * costs[drafted], DEAREST * costs[0])
        self._debt = max(self._debt - BUDGET * paid, -costs[0])
        probe = self._probe
        if probe is None:
            return
        if drafted != probe.drafts:  # someone else chose
            self._probe = None
            return
        self._debt += paid - (accepted + 1) / probe.rate
        probe.steps -= 1
        # Drafts that fall at once have told enough.
        if probe.steps == 0 or (probe.drafts and not accepted):
            self._probe, self._alike = None, 0


@dataclass(slots=True)
class _Probe:
    drafts: int
    steps: int
    """Left of it."""
    rate: float
    """Tokens per second that the best known choice promised."""

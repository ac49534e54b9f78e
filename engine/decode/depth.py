"""How many drafts a round carries: each takes the number that promises most tokens per second.

A round of k drafts emits 1 + p_1 + p_1 p_2 + ... + p_1 ... p_k tokens in expectation (Leviathan et al. 2023), p_i being
the share of drafts i that stand given that the one before stands, and takes the seconds that `StepCosts` expects.
k = 0 is a plain step: one token, no draft. Both sides are measured while the answer runs, so the user tunes nothing.

What this costs: a choice changes how fast an answer comes, never its greedy text, and with sampling never its
distribution. Which random draw meets which token does depend on the rounds, and these on the clock: with a seed, the
same text comes again only with a fixed number of drafts (or none).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.decode.step_costs import StepCosts

FIRST_SHARE = 0.6
"""What a draft of greedy text is taken for before any was seen, so that drafts are tried. At temperature T it is
divided by 1 + T: samples meet each other less often."""
FAST, SLOW = 6, 100
"""Rounds after which a draft that was seen counts half, for what the text is like now and for what it usually is."""
PRIOR = 2.0
"""Drafts that `FIRST_SHARE`, or the position before, counts for beside the slow share."""
TRUST = 4.0
"""Drafts that the slow share counts for beside the fast one, which a change of text makes worthless: half as many where
they differ by one standard error, a tenth where by three."""
LEAST_SPREAD = 0.02
"""Of a share that has always been 0 or 1."""
CARRIED = 1.0
"""Drafts that what an answer was like at its end counts for in the next."""

BUDGET, HOPEFUL = 0.016, 0.15
"""Share of the time that probes may lose: at least the first, and so much of what drafts usually save."""
DEAREST = 5.0
"""Plain steps that a step counts for at most, where the time is accounted for."""
PLAIN_STEPS = 3
"""Steps of a probe of plain steps: the first starts two forwards and the last none, so that one is measured."""
DEEPER_STEPS = 2
"""Rounds of a probe of more drafts than usual, of which the first pays for the change as well."""
DRAFT_STEPS = 8
"""Rounds of a probe of drafts at most: it ends with the first that keeps none."""
FIRST_STEPS = 2
"""Plain steps that a policy begins with, to have something to compare with."""
DRAFTS_AFTER, DRAFTS_EVERY = 3, 24
"""Plain steps after which drafts are tried again, at first; twice as many after each failure, up to the second."""
WINNINGS = 0.2
"""Share of what drafts save over plain steps that probes may lose."""
CREDIT = 3.0
"""Plain steps that probes may be ahead of their budget."""
OTHERS_EVERY = 10
"""Rounds after which another width, or plain steps, are tried that might pay."""
STAY = 1.02
"""Advantage that a change between drafts and plain steps must promise."""
LOSSES, CLEAR_LOSS = 4, 1.2
"""Rounds in a row for which plain steps must promise more before drafts are left for them, and the advantage that needs
none: a few rounds whose drafts fall are a burst more often than another text."""


class Acceptance:
    """Share of drafts that stand, by position, each given that the one before stands.

    Text goes from one kind to another within a few rounds and comes back, so that few rounds must tell, and few tell
    little: a share is that of the last rounds, drawn towards that of many, and where those hold little towards the
    share of the position before.
    """

    def __init__(self, most: int, temperature: float = 0.0) -> None:
        self._first = FIRST_SHARE / (1.0 + temperature)
        self._fast, self._slow = ([_Share() for _ in range(most)] for _ in range(2))

    def learn(self, drafted: int, accepted: int) -> None:
        """The first `accepted` of `drafted` drafts stood."""
        if not drafted:
            return
        for shares, half_life in ((self._fast, FAST), (self._slow, SLOW)):
            for i, share in enumerate(shares):
                share.fade(0.5 ** (1.0 / half_life))
                if i < drafted and i <= accepted:
                    share.add(i < accepted)

    def carry_over(self) -> None:
        """Another answer begins: what the last one was like at its end counts for less."""
        for share in self._fast:
            if share.seen > CARRIED:
                share.fade(CARRIED / share.seen)

    def tokens(self, hope_from: int | None = None, *, usual: bool = False) -> list[float]:
        """Entry k: tokens that a round of k drafts emits in expectation.

        Args:
            hope_from: positions from there on are taken one standard error better than they look.
            usual: in all the rounds remembered, whatever the last ones were like.
        """
        result, reach = [1.0], 1.0
        for i, (share, error) in enumerate(self._estimates(usual=usual)):
            reach *= min(1.0, share + (error if hope_from is not None and i >= hope_from else 0.0))
            result.append(result[-1] + reach)
        return result

    def _estimates(self, *, usual: bool = False) -> list[tuple[float, float]]:
        """Shares and their standard errors, by position."""
        result: list[tuple[float, float]] = []
        before = self._first
        for fast, slow in zip(self._fast, self._slow, strict=True):
            share = slow.drawn_to(before, PRIOR)
            before = share if usual else fast.drawn_to(share, TRUST / (1.0 + fast.surprise(share)))
            result.append((before, math.sqrt(before * (1.0 - before) / (fast.seen + TRUST))))
        return result


@dataclass(slots=True)
class _Share:
    seen: float = 0.0
    stood: float = 0.0

    def add(self, stood: bool) -> None:
        self.seen += 1.0
        self.stood += stood

    def fade(self, factor: float) -> None:
        self.seen *= factor
        self.stood *= factor

    def surprise(self, share: float) -> float:
        """The squared distance from `share`, in standard errors."""
        spread = max(share * (1.0 - share), LEAST_SPREAD)
        return (self.stood - share * self.seen) ** 2 / (spread * self.seen) if self.seen else 0.0

    def drawn_to(self, share: float, weight: float) -> float:
        """The share that stood, with so many at `share` besides."""
        return (self.stood + weight * share) / (self.seen + weight)


class DepthPolicy:
    """Chooses the drafts of each round from what the ones before brought and took.

    Call `begin` for each answer, then `choose` and `learn` for each step.

    A probe is a step taken to learn: plain ones while drafts run, drafts while plain steps run, a deeper round where
    a deeper draft might pay but was not seen lately. What a probe lost against the best known choice is a debt, and
    none follows until a share of the time, and of what drafts save, has paid it off.

    What it knows of costs holds for the session; what it knows of the text fades from answer to answer.

    Args:
        most: drafts per round at most, at least 1.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._texts: dict[float, _Text] = {}
        self._text = _Text(Acceptance(most))
        self._costs = StepCosts(most)
        self._before: int | None = None
        """Drafts of the step before; None at the beginning of an answer."""
        self._steps = 0
        """Run so far."""
        self._alike = 0
        """Steps since a change between drafts and plain steps, or since a probe."""
        self._probe: _Probe | None = None
        self._best = 0
        """What the latest step would have been but for a probe."""
        self._losing = 0
        """Rounds in a row for which plain steps promised more."""

    def begin(self, temperature: float = 0.0) -> None:
        """Another answer starts, sampled at `temperature`, on which acceptance depends more than on anything else."""
        new = _Text(Acceptance(self.most, temperature))
        self._text = self._texts.setdefault(round(temperature, 1), new)
        self._text.acceptance.carry_over()
        self._before = self._probe = None
        # What one answer lost must not keep the next from trying, unless drafts never pay at this temperature.
        if self._usual_saving() > 0:
            self._text.debt, self._text.patience = min(self._text.debt, 0.0), DRAFTS_AFTER

    def _usual_saving(self) -> float:
        """What the best number of drafts saves in texts like this one, as a share of plain steps."""
        costs, usual = self._costs.seconds, self._text.acceptance.tokens(usual=True)
        return max(tokens * costs[0] / seconds for tokens, seconds in zip(usual, costs, strict=True)) - 1.0

    def choose(self, limit: int) -> int:
        """Drafts of the next step, 0 for a plain one, at most `limit`."""
        most = min(limit, self.most)
        if most <= 0:
            return 0
        if self._probe is not None:
            return min(self._probe.drafts, most)
        if self._steps < FIRST_STEPS:
            return 0
        costs = self._costs.seconds
        rates = [tokens / seconds for tokens, seconds in zip(self._text.acceptance.tokens(), costs, strict=True)]
        deepest = max(range(1, most + 1), key=rates.__getitem__)
        best = self._best = deepest if self._drafts_pay(rates[deepest] / rates[0]) else 0
        if self._text.debt <= 0:
            self._probe = self._new_probe(best, deepest, most, rates)
        return best if self._probe is None else self._probe.drafts

    def _drafts_pay(self, advantage: float) -> bool:
        """Whether drafts that promise `advantage` times the tokens of plain steps are the better choice now."""
        pay = advantage > (STAY if self._before == 0 else 1 / STAY)
        if pay:
            self._losing = 0
        elif self._before:
            self._losing += 1
        else:  # a probe has no such grace
            self._losing = LOSSES
        return self._losing < LOSSES and advantage > 1 / CLEAR_LOSS

    def _new_probe(self, best: int, deepest: int, most: int, rates: Sequence[float]) -> _Probe | None:
        if best == 0:
            return _Probe(deepest, DRAFT_STEPS, rates[0]) if self._alike >= self._text.patience else None
        if self._alike < OTHERS_EVERY:
            return None
        hopes, costs = self._text.acceptance.tokens(hope_from=best), self._costs.seconds
        hoped = [hopes[k] / costs[k] * math.exp(self._costs.doubt(k, best)) for k in range(most + 1)]
        other = max(range(most + 1), key=hoped.__getitem__)
        if other == best:
            return None
        return _Probe(other, PLAIN_STEPS if not other else DEEPER_STEPS if other > best else 1, rates[best])

    def plain_follows(self) -> bool:
        """Whether another plain step is likely to follow the one that `choose` just gave."""
        if self._probe is not None:
            return self._probe.drafts == 0 and self._probe.steps > 1
        return self._text.debt > 0 or self._alike + 1 < self._text.patience

    def rounds_follow(self) -> bool:
        """Whether drafts are likely to follow the step that `choose` just gave."""
        if self._probe is not None and self._probe.steps > 1:
            return self._probe.drafts > 0
        return self._best > 0

    def learn(self, drafted: int, accepted: int, seconds: float, *, whole: bool = True) -> None:
        """A step was run: `accepted` of `drafted` drafts stood, and it took `seconds`.

        Args:
            whole: that was the time of one forward, not of one more or less that was queued ahead.
        """
        if drafted > self.most or seconds <= 0:
            return
        alike = self._before is not None and (self._before > 0) == (drafted > 0)
        self._steps += 1
        self._alike = self._alike + 1 if alike else 1
        self._text.acceptance.learn(drafted, accepted)
        if whole:
            # Depths that were idle first read what they missed.
            self._costs.learn(drafted, seconds, settled=alike and drafted <= (self._before or 0))
        self._before = drafted
        self._settle_debt(drafted, accepted, seconds)

    def _settle_debt(self, drafted: int, accepted: int, seconds: float) -> None:
        costs = self._costs.seconds
        # A hiccup of the machine is no reason to stop looking.
        paid = min(seconds, 2 * costs[drafted], DEAREST * costs[0])
        won = max(0.0, (accepted + 1) * costs[0] - paid) if drafted else 0.0
        budget = BUDGET if drafted else max(BUDGET, HOPEFUL * self._usual_saving())
        self._text.debt = max(self._text.debt - budget * paid - WINNINGS * won, -CREDIT * costs[0])
        probe = self._probe
        if probe is None:
            return
        if drafted != probe.drafts:  # someone else chose
            self._probe = None
            return
        self._text.debt += paid - (accepted + 1) / probe.rate
        probe.steps -= 1
        # Drafts that fall at once have told enough.
        if probe.steps == 0 or (probe.drafts and not accepted):
            self._probe, self._alike = None, 0
        if probe.drafts and not self._best:
            self._text.patience = DRAFTS_AFTER if accepted else min(2 * self._text.patience, DRAFTS_EVERY)


@dataclass(slots=True)
class _Text:
    """What is known of the texts of one temperature."""

    acceptance: Acceptance
    debt: float = 0.0
    """Seconds; negative while probes have credit."""
    patience: int = DRAFTS_AFTER
    """Plain steps after which drafts are tried again."""


@dataclass(slots=True)
class _Probe:
    drafts: int
    steps: int
    """Left of it."""
    rate: float
    """Tokens per second that the best known choice promised."""

"""How many drafts a round carries: each takes the number that promises most tokens per second.

A round of k drafts emits 1 + p_1 + p_1 p_2 + ... + p_1 ... p_k tokens in expectation (Leviathan et al. 2023), p_i being
the share of drafts i that stand given that the one before stands, and takes the seconds that `StepCosts` expects.
k = 0 is a plain step: one token, no draft. Both sides are measured while the answer runs, so the user tunes nothing.

While plain steps run, no draft is spent on finding out whether drafts would stand: the head reads the tokens that came
in one go, which it must before it drafts again, and tells what its first draft would have been at each. That costs a
few hundredths of a plain step per token, where one round that fails costs most of a step.

What this costs: a choice changes how fast an answer comes, never its greedy text, and with sampling never its
distribution. Which random draw meets which token does depend on the rounds, and these on the clock: with a seed, the
same text comes again only with a fixed number of drafts (or none).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.decode.step_costs import StepCosts

FIRST_SHARE = 0.6
"""What a draft of greedy text is taken for before any was seen, so that drafts are tried. At temperature T it is
divided by 1 + T: samples meet each other less often."""
FAST, SLOW = 3, 100
"""Rounds after which a draft that was seen counts half, for what the text is like now and for what it usually is."""
PRIOR = 2.0
"""Drafts that `FIRST_SHARE`, or the position before, counts for beside the slow share."""
TRUST = 4.0
"""Drafts that the slow share counts for beside the fast one."""
OPENING, CARRIED = 8, 2.0
"""Tokens that an answer begins with, which are alike from answer to answer, and the drafts that what they were like
counts for at the beginning of the next."""

BUDGET = 0.016
"""Share of the time that probes may lose."""
CREDIT = 1.0
"""Plain steps that probes may be ahead of their budget."""
DEAREST = 5.0
"""Plain steps that a step counts for at most, where the time is accounted for."""
PLAIN_STEPS = 3
"""Steps of a probe of plain steps: the first starts two forwards and the last none, so that one is measured."""
DEEPER_STEPS = 2
"""Rounds of a probe of more drafts than usual, of which the first pays for the change as well."""
FIRST_STEPS = 2
"""Plain steps that a policy begins with, to have something to compare with."""
OTHERS_EVERY = 10
"""Rounds after which another width, or plain steps, are tried that might pay."""
FIRST_LOOK, LOOK_AGAIN, RARELY, RAREST = 3, 4, 16, 64
"""Plain steps after which the tokens that came are looked back on: at the beginning of an answer, and later; twice as
many after each time that speaks against drafts, up to the third, or where drafts do not pay as a rule the fourth."""
LOOKED_AT = 8
"""Tokens that a look back tells of at most, the latest."""
STAY = 1.02
"""Advantage that a change between drafts and plain steps must promise."""
LOSSES, CLEAR_LOSS = 2, 1.15
"""Rounds in a row for which plain steps must promise more before drafts are left for them, and the advantage that needs
but one: where drafts pay as a rule, a round that keeps none is bad luck more often than another text."""


class Acceptance:
    """Share of drafts that stand, by position, each given that the one before stands.

    Text goes from one kind to another within a few rounds and comes back, so that few rounds must tell, and few tell
    little: a share is that of the last rounds, drawn towards that of many, and where those hold little towards the
    share of the position before. Where the first drafts fall short of what is usual, later ones are not seen, and are
    expected to fall short as much.
    """

    def __init__(self, most: int, temperature: float = 0.0) -> None:
        self._first = FIRST_SHARE / (1.0 + temperature)
        self._fast, self._slow, self._opening = ([_Share() for _ in range(most)] for _ in range(3))

    def learn(self, drafted: int, accepted: int) -> None:
        """The first `accepted` of `drafted` drafts stood."""
        if drafted:
            self._add([1.0] * accepted + [0.0] * (drafted > accepted))

    def learn_hindsight(self, chances: Sequence[float]) -> None:
        """First drafts that nobody made, at tokens one after the other, would have stood with these chances."""
        for chance in chances:
            self._add([chance])

    def _add(self, stood: Sequence[float]) -> None:
        for shares, half_life in ((self._fast, FAST), (self._slow, SLOW)):
            for i, share in enumerate(shares):
                share.fade(0.5 ** (1.0 / half_life))
                if i < len(stood):
                    share.add(stood[i])

    def begin(self) -> None:
        """Another answer begins, probably as the last one did."""
        self._fast = [replace(share) for share in self._opening]

    def end_opening(self) -> None:
        """The answer has been begun."""
        self._opening = [replace(share) for share in self._fast]
        for share in self._opening:
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
        now = usually = self._first
        for fast, slow in zip(self._fast, self._slow, strict=True):
            shortfall = min(1.0, now / usually)
            usually = slow.drawn_to(usually, PRIOR)
            now = usually if usual else fast.drawn_to(usually * shortfall, TRUST)
            result.append((now, math.sqrt(now * (1.0 - now) / (fast.seen + TRUST))))
        return result


@dataclass(slots=True)
class _Share:
    seen: float = 0.0
    stood: float = 0.0

    def add(self, stood: float) -> None:
        self.seen += 1.0
        self.stood += stood

    def fade(self, factor: float) -> None:
        self.seen *= factor
        self.stood *= factor

    def drawn_to(self, share: float, weight: float) -> float:
        """The share that stood, with so many at `share` besides."""
        return (self.stood + weight * share) / (self.seen + weight)


class DepthPolicy:
    """Chooses the drafts of each round from what the ones before brought and took.

    Call `begin` for each answer, then `choose` and `learn` for each step.

    While drafts run, a probe is a step taken to learn: plain ones, or a deeper round where a deeper draft might pay but
    was not seen lately. What it lost against the best known choice is a debt, and none follows until a share of the
    time has paid it off. While plain steps run, looking back on the tokens tells enough.

    What it knows of costs holds for the session; what it knows of the text does so for each temperature.

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
        self._tokens = 0
        """Of this answer."""
        self._alike = 0
        """Steps since a change between drafts and plain steps, or since a probe."""
        self._unseen = 0
        """Plain steps that were not looked back on."""
        self._first_look = True
        """Whether no plain step of this answer was looked back on yet."""
        self._hindsight = self._plain_follows = False
        """Of the step that was chosen last."""
        self._just_looked = False
        self._probe: _Probe | None = None
        self._best = 0
        """What the latest step would have been but for a probe."""
        self._losing = 0
        """Rounds in a row for which plain steps promised more."""

    def begin(self, temperature: float = 0.0) -> None:
        """Another answer starts, sampled at `temperature`, on which acceptance depends more than on anything else."""
        new = _Text(Acceptance(self.most, temperature))
        self._text = self._texts.setdefault(round(temperature, 1), new)
        self._text.acceptance.begin()
        self._before = self._probe = None
        self._tokens = 0
        self._unseen, self._first_look, self._just_looked = 0, True, False
        self._hindsight = self._plain_follows = False
        # What one answer lost must not keep the next from trying, unless drafts never pay at this temperature.
        if self._usually_pay():
            self._text.debt, self._text.patience = min(self._text.debt, 0.0), LOOK_AGAIN

    def _usually_pay(self) -> bool:
        """Whether drafts are faster than plain steps in texts like this one, as a rule."""
        plain, *drafts = self._rates(usual=True)
        return max(drafts) > plain

    def _rates(self, *, usual: bool = False) -> list[float]:
        """Entry k: tokens per second that rounds of k drafts promise, in the text as it is now or as it usually is."""
        tokens, costs = self._text.acceptance.tokens(usual=usual), self._costs.seconds
        return [each / seconds for each, seconds in zip(tokens, costs, strict=True)]

    def choose(self, limit: int) -> int:
        """Drafts of the next step, 0 for a plain one, at most `limit`."""
        most = min(limit, self.most)
        if most <= 0:
            return 0
        if self._probe is not None:
            return min(self._probe.drafts, most)
        if self._steps < FIRST_STEPS:
            self._plain_follows = self._steps + 1 < FIRST_STEPS
            return 0
        rates = self._rates()
        deepest = max(range(1, most + 1), key=rates.__getitem__)
        best = self._best = deepest if self._drafts_pay(rates[deepest] / rates[0]) else 0
        due = self._text.debt <= 0 and (self._alike >= OTHERS_EVERY if best else self._just_looked)
        probe = self._new_probe(best, most, rates[best]) if due else None
        if self._plain_follows and (best or probe is not None):  # its forward has begun: let it be the last
            self._plain_follows = False
            return 0
        self._probe, self._just_looked = probe, False
        if probe is not None:
            return probe.drafts
        if not best:
            self._hindsight = self._unseen >= (FIRST_LOOK if self._first_look else self._text.patience)
            self._plain_follows = True
        return best

    def _drafts_pay(self, advantage: float) -> bool:
        """Whether drafts that promise `advantage` times the tokens of plain steps are the better choice now."""
        pay = advantage > (STAY if self._before == 0 else 1 / STAY)
        if pay:
            self._losing = 0
        elif self._before:
            self._losing += 1
        else:
            self._losing = LOSSES
        grace = LOSSES if self._usually_pay() else 1
        return self._losing < grace and advantage > 1 / CLEAR_LOSS

    def _new_probe(self, best: int, most: int, rate: float) -> _Probe | None:
        # After plain steps the first drafts are known in hindsight, and what rounds cost may not be.
        hopes, costs = self._text.acceptance.tokens(hope_from=best or None), self._costs.seconds
        hoped = [hopes[k] / costs[k] * math.exp(self._costs.doubt(k, best)) for k in range(most + 1)]
        other = max(range(most + 1), key=hoped.__getitem__)
        if other == best:
            return None
        return _Probe(other, PLAIN_STEPS if not other else DEEPER_STEPS if other > best else 1, rate)

    def hindsight(self) -> int:
        """Tokens that the plain step which `choose` just gave should be told of in hindsight, for `learn_hindsight`."""
        return min(self._unseen, LOOKED_AT) if self._hindsight else 0

    def plain_follows(self) -> bool:
        """Whether another plain step follows the one that `choose` just gave."""
        if self._probe is not None:
            return self._probe.drafts == 0 and self._probe.steps > 1
        return self._plain_follows

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
        # The next step may be asked of no `choose`: the drafter is switched off, or a block size is fixed.
        looked_back, self._hindsight = self._hindsight, False
        if drafted:
            self._plain_follows = False
        if drafted > self.most or seconds <= 0:
            return
        alike = self._before is not None and (self._before > 0) == (drafted > 0)
        self._steps += 1
        self._alike = self._alike + 1 if alike else 1
        self._text.acceptance.learn(drafted, accepted)
        opening, self._tokens = self._tokens < OPENING, self._tokens + accepted + 1
        if opening and self._tokens >= OPENING:
            self._text.acceptance.end_opening()
        if whole:
            # Depths that were idle first read what they missed, and so does the first for a look back.
            settled = alike and drafted <= (self._before or 0) and not looked_back
            self._costs.learn(drafted, seconds, settled=settled)
        self._unseen = 0 if drafted else self._unseen + 1
        self._before = drafted
        self._settle_debt(drafted, accepted, seconds)

    def learn_hindsight(self, chances: Sequence[float]) -> None:
        """The first drafts that the latest plain tokens were spared would have stood with these `chances`."""
        text = self._text
        text.acceptance.learn_hindsight(chances)
        self._unseen, self._first_look, self._just_looked = 1, False, True  # the step that told of them brought a token
        plain, *drafts = self._rates()
        pay, usually = max(drafts) > STAY * plain, self._usually_pay()
        if not pay:
            text.patience = min(2 * text.patience, RARELY if usually else RAREST)
        else:
            text.patience = LOOK_AGAIN if usually else max(LOOK_AGAIN, text.patience // 2)

    def _settle_debt(self, drafted: int, accepted: int, seconds: float) -> None:
        costs = self._costs.seconds
        # A hiccup of the machine is no reason to stop looking.
        paid = min(seconds, 2 * costs[drafted], DEAREST * costs[0])
        self._text.debt = max(self._text.debt - BUDGET * paid, -CREDIT * costs[0])
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


@dataclass(slots=True)
class _Text:
    """What is known of the texts of one temperature."""

    acceptance: Acceptance
    debt: float = 0.0
    """Seconds; negative while probes have credit."""
    patience: int = LOOK_AGAIN
    """Plain steps after which the tokens that came are looked back on."""


@dataclass(slots=True)
class _Probe:
    drafts: int
    steps: int
    """Left of it."""
    rate: float
    """Tokens per second that the best known choice promised."""

"""What first drafts would have been at tokens that plain steps brought, read in one go and without a trace."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import pytest

from engine.decode.acceptance import chance_in_hindsight
from engine.decode.chained import ChainedDrafter
from engine.decode.drafter import Drafter
from engine.decode.loop import DecodeLoop
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.decode.target import Target
from tests.support import PROMPT, TINY_VOCAB, ScriptedDrafter, tiny, tiny_head

GREEDY = GenerationOptions()
PENALISED = GenerationOptions(repetition_penalty=1.4, frequency_penalty=0.6, presence_penalty=0.3)
SAMPLED = GenerationOptions(temperature=1.0, seed=5)


def begun(drafter: Drafter, options: GenerationOptions, ids: Sequence[int] = PROMPT) -> DecodeLoop:
    target = Target(tiny().backbone)
    drafter.prepare(3)
    rows = list(target.prefill(list(ids), 512, drafter.extend))
    loop = DecodeLoop(target, drafter, Sampler(options, TINY_VOCAB, PROMPT), "trim", lambda token: None)
    loop.first(target.logits(rows[-1]))
    return loop


def first_draft(make: type[StatefulDrafter | ChainedDrafter], ids: Sequence[int], options: GenerationOptions) -> int:
    """What a drafter that has seen no more than `ids` proposes after them."""
    loop = begun(make(tiny_head()), options, ids[:-1])
    loop.target.ids[-1] = ids[-1]
    sampler = Sampler(options, TINY_VOCAB, PROMPT)
    sampler.commit(ids[len(PROMPT) :])
    assert loop.drafter is not None
    return int(loop.drafter.propose(ids, 1, sampler).tokens.item())


@pytest.mark.parametrize("make", [StatefulDrafter, ChainedDrafter])
@pytest.mark.parametrize("options", [GREEDY, PENALISED], ids=["greedy", "penalised"])
@pytest.mark.parametrize("more", [False, True], ids=["one by one", "queued ahead"])
def test_it_is_what_a_draft_would_have_been_at_each_token(
    make: type[StatefulDrafter | ChainedDrafter], options: GenerationOptions, more: bool
) -> None:
    loop = begun(make(tiny_head()), options)
    for _ in range(12):
        loop.plain(more=more)
    ids = list(loop.target.ids)
    told = loop.plain(hindsight=8).hindsight
    expected = [first_draft(make, ids[:at], options) == ids[at] for at in range(len(ids) - 8, len(ids))]
    assert told == tuple(map(float, expected))


@pytest.mark.parametrize("make", [StatefulDrafter, ChainedDrafter])
def test_drafts_that_would_have_stood_are_told_from_others(make: type[StatefulDrafter | ChainedDrafter]) -> None:
    """The random head is hardly ever right: its own drafts, forced upon the text, are."""
    loop = begun(make(tiny_head()), GREEDY)
    assert loop.drafter is not None
    forced = [False, True, True, False, True]
    for own in forced:
        loop.finish()
        ids = loop.target.ids
        draft = first_draft(make, ids, GREEDY)
        loop.plain()
        loop.target.ids[-1] = draft if own else (draft + 1) % TINY_VOCAB
    assert loop.plain(hindsight=len(forced)).hindsight == tuple(map(float, forced))


@pytest.mark.parametrize("make", [StatefulDrafter, ChainedDrafter])
@pytest.mark.parametrize("options", [GREEDY, PENALISED, SAMPLED], ids=["greedy", "penalised", "sampled"])
def test_it_changes_no_token_and_no_later_draft(
    make: type[StatefulDrafter | ChainedDrafter], options: GenerationOptions
) -> None:
    results: list[tuple[list[int], list[int]]] = []
    for look in (False, True):
        loop = begun(make(tiny_head()), options)
        accepted: list[int] = []
        for step in range(30):
            if step % 10 < 7:
                looks = look and step % 10 in (3, 5, 6)
                assert bool(loop.plain(more=step % 10 < 6, hindsight=4 * looks).hindsight) == looks
            else:
                accepted.append(loop.round(3, more=step % 10 < 9).accepted)
        results.append((loop.target.ids, accepted))
    assert results[0] == results[1]


def test_only_tokens_that_came_since_the_last_round_are_told_of() -> None:
    loop = begun(StatefulDrafter(tiny_head()), GREEDY)
    loop.round(2)
    assert loop.plain(hindsight=8).hindsight == ()
    assert len(loop.plain(hindsight=8).hindsight) <= 1
    for _ in range(3):
        loop.plain()
    assert len(loop.plain(hindsight=8).hindsight) == 4
    assert loop.plain().hindsight == ()


@pytest.mark.parametrize("make", [StatefulDrafter, ChainedDrafter])
def test_rows_that_the_head_has_read_are_not_told_of_again(make: type[StatefulDrafter | ChainedDrafter]) -> None:
    """As after many plain steps, when it reads them before the log would lose them."""
    loop = begun(make(tiny_head()), GREEDY)
    for _ in range(5):
        loop.plain()
    assert loop.drafter is not None
    loop.drafter.catch_up(loop.target.ids)
    assert loop.plain(hindsight=4).hindsight == ()
    assert len(loop.plain(hindsight=4).hindsight) <= 1


def test_a_drafter_that_cannot_tell_is_asked_in_vain() -> None:
    loop = begun(ScriptedDrafter(lambda position: 3), GREEDY)
    loop.plain()
    assert loop.plain(hindsight=4).hindsight == ()


def test_samples_are_judged_by_the_distributions_they_were_drawn_from() -> None:
    """The same chances as from the target's logits, computed again over the whole text."""
    loop = begun(StatefulDrafter(tiny_head()), SAMPLED)
    for _ in range(6):
        loop.plain(more=True)
    ids = list(loop.target.ids)
    told = loop.plain(hindsight=5).hindsight
    target = Target(tiny().backbone)
    drafter = StatefulDrafter(tiny_head())
    drafter.prepare(1)
    hidden: list[mx.array] = []
    for _ in target.prefill(ids, 512, lambda rows, known: (drafter.extend(rows, known), hidden.append(rows))[1]):
        pass
    sampler = Sampler(SAMPLED, TINY_VOCAB, PROMPT)
    p = sampler.probabilities(target.logits(mx.concatenate(hidden, axis=1)[:, -6:-1]))
    logits = drafter.hindsight(ids, 5)
    assert logits is not None
    expected = chance_in_hindsight(p, sampler.probabilities(logits), mx.array(ids[-5:], mx.int32))
    assert told == pytest.approx(expected.tolist(), abs=1e-4)
    assert len({round(chance, 3) for chance in told}) > 1


def test_penalties_are_those_of_the_time_before_each_token() -> None:
    logits = mx.random.normal((4, TINY_VOCAB), key=mx.random.key(0))
    output = [7, 9, 7, 11, 9]
    late = Sampler(PENALISED, TINY_VOCAB, PROMPT)
    late.commit(output)
    together = late.scores(logits, mx.array(output[1:], mx.int32), committed=True)
    for row in range(4):
        early = Sampler(PENALISED, TINY_VOCAB, PROMPT)
        early.commit(output[: 1 + row])
        assert mx.allclose(together[row], early.scores(logits[row : row + 1])[0], atol=1e-6)

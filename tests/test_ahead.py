"""Steps and drafts that are queued before the tokens in front of them are read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest

from engine.decode.acceptance import Verdict, judge
from engine.decode.drafter import Draft
from engine.decode.loop import DecodeLoop
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import PRIME_ROWS, StatefulDrafter
from engine.decode.target import Target
from engine.events import Cancelled, RoundDone
from engine.model.mtp import MTPHead
from engine.session import Session
from tests.support import PROMPT, TINY_VOCAB, cache_distance, prefilled, run, tiny, tiny_head


def begun(
    options: GenerationOptions,
    drafter: StatefulDrafter | None = None,
    prompt: Sequence[int] = PROMPT,
    depths: int = 3,
) -> DecodeLoop:
    """A loop over the prompt whose first token is out."""
    target = Target(tiny().backbone)
    if drafter is not None:
        drafter.prepare(depths)
    rows = list(target.prefill(prompt, 512, drafter.extend if drafter else lambda hidden, ids: None))
    loop = DecodeLoop(target, drafter, Sampler(options, TINY_VOCAB, prompt), "trim", lambda token: None)
    loop.first(target.logits(rows[-1]))
    return loop


@pytest.mark.parametrize(
    "options",
    [
        GenerationOptions(),
        GenerationOptions(temperature=1.0, seed=3),
        GenerationOptions(repetition_penalty=1.3, presence_penalty=0.5),
        GenerationOptions(temperature=0.8, frequency_penalty=0.4, seed=9),
    ],
    ids=["greedy", "sampled", "penalised", "both"],
)
def test_queueing_ahead_changes_no_token(options: GenerationOptions) -> None:
    results: list[list[int]] = []
    for more in (False, True):
        loop = begun(options)
        for _ in range(40):
            assert len(loop.plain(more=more).tokens) == 1
        loop.finish()
        results.append(loop.target.ids)
    assert results[0] == results[1]


def test_a_step_tells_how_many_forwards_its_time_holds() -> None:
    """Queued ahead, the first step starts two and the last none, so that neither is the cost of a step."""
    loop = begun(GenerationOptions(), StatefulDrafter(tiny_head()))
    steps = [loop.plain(more=more) for more in (True, True, True, False, False)]
    assert [step.forwards for step in steps] == [2, 1, 1, 0, 1]
    assert loop.round(2).forwards == 1
    penalised = begun(GenerationOptions(repetition_penalty=1.3))
    assert [penalised.plain(more=True).forwards for _ in range(2)] == [1, 1]


@pytest.mark.parametrize(
    "options",
    [GenerationOptions(), GenerationOptions(temperature=1.0, seed=3), GenerationOptions(repetition_penalty=1.3)],
    ids=["greedy", "sampled", "penalised"],
)
@pytest.mark.parametrize("widths", [[3], [1, 3, 2], [2, 0, 3, 0, 0, 1]], ids=["even", "uneven", "plain between"])
def test_looking_ahead_changes_no_token_and_no_draft(options: GenerationOptions, widths: list[int]) -> None:
    results: list[tuple[list[int], list[tuple[int, int]]]] = []
    for ahead in (False, True):
        drafter = StatefulDrafter(tiny_head())
        result = run(50, drafter=drafter, drafts=lambda step: widths[step % len(widths)], options=options, ahead=ahead)
        results.append((result.ids, [(step.drafted, step.accepted) for step in result.steps]))
        assert cache_distance(result.target, prefilled(result.ids[: result.target.position])) < 1e-4
    if options.greedy or 0 not in widths:  # a draft that was begun for nothing has used up a random number
        assert results[0] == results[1]


def test_a_draft_begun_ahead_is_the_one_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth 0 runs once per round, over the rows of the verify block."""
    head = tiny_head()
    loop = begun(GenerationOptions(), StatefulDrafter(head))
    calls: list[int] = []
    advance = type(head).advance

    def counted(self: MTPHead, depth: int, tokens: mx.array, *rest: Any) -> mx.array:
        if depth == 0:
            calls.append(tokens.shape[1])
        return advance(self, depth, tokens, *rest)

    monkeypatch.setattr(MTPHead, "advance", counted)
    for _ in range(5):
        loop.round(3, more=True)
    assert calls[1:] == [4] * 5


def test_a_near_tie_that_was_decided_otherwise_drops_what_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block says one token, a row of its own another: the draft begun after the first is not used."""
    reference = run(40)

    def judged(logits: mx.array, draft: Draft, sampler: Sampler, *, margins: bool) -> Verdict:
        verdict = judge(logits, draft, sampler, margins=margins)
        wrong = (verdict.chosen + 1) % TINY_VOCAB
        return replace(
            verdict, accepted=mx.zeros_like(verdict.accepted), chosen=wrong, margins=mx.zeros((logits.shape[0],))
        )

    monkeypatch.setattr("engine.decode.loop.judge", judged)
    proposals: dict[bool, list[list[int]]] = {False: [], True: []}
    for ahead, seen in proposals.items():
        drafter = StatefulDrafter(tiny_head())
        propose = drafter.propose

        def noted(*args: Any, propose: Any = propose, seen: list[list[int]] = seen) -> Draft:
            draft = propose(*args)
            seen.append(draft.tokens.tolist())
            return draft

        monkeypatch.setattr(drafter, "propose", noted)
        result = run(40, drafter=drafter, drafts=lambda step: 2, ahead=ahead)
        assert result.ids == reference.ids
        assert all(step.near_ties for step in result.steps[1:])
        assert drafter.caches[0].offset <= result.target.position
    assert proposals[True] == proposals[False]


def test_an_answer_that_ends_inside_a_round_leaves_no_row_of_what_would_have_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def judged(logits: mx.array, draft: Draft, sampler: Sampler, *, margins: bool) -> Verdict:
        every = mx.array(draft.tokens.shape[0], mx.int32)
        return replace(judge(logits, draft, sampler, margins=margins), accepted=every, margins=None)

    monkeypatch.setattr("engine.decode.loop.judge", judged)
    drafter = StatefulDrafter(tiny_head())
    result = run(6, drafter=drafter, drafts=lambda step: 3)
    assert [len(step.tokens) for step in result.steps] == [1, 4, 1]
    assert drafter.caches[0].offset <= result.target.position == len(result.ids) - 1


def test_finish_takes_the_queued_row_back() -> None:
    loop = begun(GenerationOptions())
    for _ in range(5):
        loop.plain(more=True)
    assert loop.target.position == len(loop.target.ids)
    loop.finish()
    loop.finish()
    assert loop.target.position == len(loop.target.ids) - 1
    assert cache_distance(loop.target, prefilled(loop.target.ids[:-1])) < 1e-4


def test_rounds_and_queued_steps_in_any_order_give_the_plain_text() -> None:
    plain = run(60)
    loop = begun(GenerationOptions(), StatefulDrafter(tiny_head()))
    pattern = [0, 0, 2, 3, 0, 1, 0, 0, 0, 3]
    step = 0
    while len(loop.target.ids) < len(PROMPT) + 60:
        drafts = pattern[step % len(pattern)]
        loop.round(drafts) if drafts else loop.plain(more=True)
        step += 1
    loop.finish()
    count = len(PROMPT) + 60
    assert loop.target.ids[:count] == plain.ids[:count]
    assert cache_distance(loop.target, prefilled(loop.target.ids[: loop.target.position])) < 1e-4


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_generation_that_ends_early_leaves_nothing_queued(how: str) -> None:
    session = Session(tiny(), drafting=False)
    cancel = threading.Event()
    events = session.continue_ids(PROMPT, GenerationOptions(max_tokens=50), cancel=cancel)
    rounds = 0
    for event in events:
        rounds += isinstance(event, RoundDone)
        if rounds == 6 and how == "close":
            events.close()  # type: ignore[attr-defined]
            break
        if rounds == 6:
            cancel.set()
        if isinstance(event, Cancelled):
            break
    assert session.target.position == len(session.target.ids) - 1
    assert cache_distance(session.target, prefilled(session.target.ids[:-1])) < 1e-4


def test_depths_that_no_round_uses_follow_while_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the policy leaves out for long keeps its history, as long as it is prepared for."""
    monkeypatch.setattr("engine.decode.stateful.PRIME_ROWS", 64)

    class Prepared(StatefulDrafter):
        def prepare(self, drafts: int) -> None:
            super().prepare(3)

    drafter = Prepared(tiny_head())
    result = run(250, drafter=drafter, drafts=lambda step: 3 if step > 200 else 1)
    assert result.ids == run(250).ids
    assert [cache.kv.start for cache in drafter.caches] == [0, 0, 0]


@pytest.mark.parametrize("how", ["deeper", "plain steps"])
def test_depths_that_fell_far_behind_are_primed_and_draft_again(how: str) -> None:
    """More rows wait than the drafter lets wait: it primes the idle depths between two rounds."""
    prompt = [(7 * i + i * i) % TINY_VOCAB for i in range(PRIME_ROWS // 2 + 8)]
    drafter = StatefulDrafter(tiny_head())
    loop = begun(GenerationOptions(), drafter, prompt=prompt, depths=1 if how == "deeper" else 0)
    if how == "deeper":
        loop.round(1)
    drafter.prepare(3)
    loop.plain()
    before = loop.target.position
    for _ in range(4):
        loop.round(3)
    assert loop.target.position >= before + 4
    reference = run(len(loop.target.ids) - len(prompt), prompt=prompt)
    assert loop.target.ids == reference.ids

"""Plain steps whose successor is queued before their token is read."""

from __future__ import annotations

import threading

import pytest

from engine.decode.loop import DecodeLoop
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.decode.target import Target
from engine.events import Cancelled, RoundDone
from engine.session import Session
from tests.support import PROMPT, TINY_VOCAB, cache_distance, prefilled, run, tiny, tiny_head


def begun(options: GenerationOptions, drafter: StatefulDrafter | None = None) -> DecodeLoop:
    """A loop over the prompt whose first token is out."""
    target = Target(tiny().backbone)
    if drafter is not None:
        drafter.prepare(3)
    rows = list(target.prefill(PROMPT, 512, drafter.extend if drafter else lambda hidden, ids: None))
    loop = DecodeLoop(target, drafter, Sampler(options, TINY_VOCAB, PROMPT), "trim", lambda token: None)
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

"""The bundled model: its own reference, speculation on real text, and what it costs in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import mlx.core as mx
import pytest

from engine.decode.chained import ChainedDrafter
from engine.decode.loop import Rollback
from engine.decode.options import GenerationOptions
from engine.decode.stateful import StatefulDrafter
from engine.events import Finished, Generation, RoundDone
from engine.loaded import Engine
from engine.messages import Message
from engine.model.mtp import Wiring
from engine.paths import demo_checkpoint
from engine.session import Session
from tests.support import DATA, Run, run

CASES: list[dict[str, Any]] = json.loads((DATA / "demo_reference.json").read_text())["cases"]
NEAR_TIE = 1e-3
"""Margins of two logits that two float32 implementations may order differently."""


@cache
def demo() -> Engine:
    # The reference scores every token id for its drafts.
    return Engine.load(demo_checkpoint(), draft_vocabulary="full")


def ask(session: Session, prompt: str, **options: Any) -> Generation:
    events = list(session.generate([Message("user", prompt)], GenerationOptions(**options), effort=0.9))
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1].generation


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"][:20])
def test_greedy_ids_and_rounds_equal_the_torch_reference(case: dict[str, Any]) -> None:
    session = Session(demo(), block_size=5, drafting=False)
    plain = ask(session, case["prompt"], max_tokens=120)
    assert plain.stats.prompt_tokens == len(case["prompt_ids"])
    assert list(plain.token_ids) == case["greedy_ids"]
    session.set_drafting(True)
    for depth, expected in case["fixed_draft_depth"].items():
        session.set_block_size(int(depth) + 1)
        drafted = ask(session, case["prompt"], max_tokens=120)
        assert drafted.token_ids == plain.token_ids
        tied = min(min(margins) for margins in case["draft_margins"][: int(depth)]) < NEAR_TIE
        measured = (drafted.stats.rounds, drafted.stats.accepted)
        assert tied or measured == (expected["rounds"], expected["accepted"])
        assert abs(drafted.stats.rounds - expected["rounds"]) <= 1


@cache
def plain() -> Run:
    """200 tokens, past the sliding window of 256 and its log scaling floor; the stop id does not end it."""
    return run(200, engine=demo(), prompt=CASES[4]["prompt_ids"] + CASES[4]["greedy_ids"])


def far_rows(a: Run, b: Run) -> float:
    """Share of the key rows of all layers that lie more than 1e-3 apart.

    Rounding may flip the choice of an expert once in a while, which moves one row of the layers above it and, by
    their convolutions, the few rows after. A rollback gone wrong would move rows after every rejection.
    """
    far = rows = 0
    for x, y in zip(a.target.cache.layers, b.target.cache.layers, strict=True):
        keys, others = x.kv.rows(), y.kv.rows()
        assert keys is not None
        assert others is not None
        count = min(keys[0].shape[2], others[0].shape[2])
        distance = mx.abs(keys[0][:, :, -count:] - others[0][:, :, -count:]).max(axis=(0, 1, 3))
        far += (distance > 1e-3).sum().item()
        rows += count
    return far / rows


@pytest.mark.slow
@pytest.mark.parametrize("rollback", ["trim", "replay"])
@pytest.mark.parametrize(
    ("schedule", "drafts"), [("stateful", 1), ("stateful", 2), ("stateful", 4), ("chained", 3), ("chained", 5)]
)
def test_greedy_invariant_on_real_text(schedule: str, drafts: int, rollback: Rollback) -> None:
    head = demo().head
    assert head is not None
    drafter = StatefulDrafter(head) if schedule == "stateful" else ChainedDrafter(head)
    prompt = CASES[4]["prompt_ids"] + CASES[4]["greedy_ids"]
    result = run(200, engine=demo(), prompt=prompt, drafter=drafter, drafts=lambda step: drafts, rollback=rollback)
    assert result.ids == plain().ids
    assert far_rows(result, plain()) < 0.05


def test_the_head_speeds_up_the_first_prompt_a_user_tries() -> None:
    prompt = "Write a haiku about tide pools, then explain its structure."
    drafted = ask(Session(demo(), block_size=5), prompt, max_tokens=128)
    alone = ask(Session(demo(), drafting=False), prompt, max_tokens=128)
    assert drafted.text == alone.text
    assert drafted.reasoning == alone.reasoning
    assert drafted.text.startswith("Small pools hold the sky,\n")
    assert drafted.stats.acceptance_length is not None
    assert drafted.stats.acceptance_length > 3.5


def test_switching_in_the_middle_of_a_chat_answer_keeps_its_text() -> None:
    reference = ask(Session(demo(), drafting=False), CASES[2]["prompt"], max_tokens=60)
    session, rounds = Session(demo(), block_size=5), 0
    events = session.generate([Message("user", CASES[2]["prompt"])], GenerationOptions(max_tokens=60), effort=0.9)
    last = None
    for last in events:
        if isinstance(last, RoundDone):
            rounds += 1
            session.set_drafting(rounds % 4 > 1)
    assert isinstance(last, Finished)
    assert last.generation.token_ids == reference.token_ids
    assert min(last.generation.stats.rounds, last.generation.stats.plain_steps) > 3


def test_a_second_turn_prefills_only_what_is_new() -> None:
    session = Session(demo())
    first = ask(session, CASES[1]["prompt"], max_tokens=80)
    history = [Message("user", CASES[1]["prompt"]), first.message, Message("user", CASES[2]["prompt"])]
    events = list(session.generate(history, GenerationOptions(max_tokens=20), effort=0.9))
    assert isinstance(events[-1], Finished)
    warm = events[-1].generation
    assert warm.stats.cached_tokens == first.stats.prompt_tokens + first.stats.completion_tokens - 1
    cold = list(Session(demo()).generate(history, GenerationOptions(max_tokens=20), effort=0.9))[-1]
    assert isinstance(cold, Finished)
    assert warm.token_ids == cold.generation.token_ids


def test_the_chained_schedule_drafts_as_published() -> None:
    """Pre-norm hidden and raw embedding; the original averages 2.73 tokens per round at K = 3 over all prompts."""
    engine = demo().rewired(Wiring(hidden="pre_norm", embedding="raw"))
    rates = []
    for case in CASES[:3]:
        generation = ask(Session(engine, schedule="chained", block_size=3), case["prompt"], max_tokens=60)
        assert list(generation.token_ids) == case["greedy_ids"][: len(generation.token_ids)]
        rates.append(generation.stats.acceptance_length or 0.0)
    assert 2.4 < sum(rates) / len(rates) <= 3.0


MEMORY = """
import resource, sys
from engine.messages import Message
from engine.paths import demo_checkpoint
from engine.session import Engine, GenerationOptions, Session
engine = Engine.load(demo_checkpoint())
for event in Session(engine).generate([Message("user", "Why is the sky blue?")], GenerationOptions(max_tokens=60)):
    pass
if sys.platform == "darwin":
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
else:  # there it begins with the peak of the process that started this one
    status = open("/proc/self/status").read()
    print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""


def test_loading_and_chatting_stays_within_its_memory() -> None:
    """At most 1.5 times the float32 weights (59.3 M parameters) and 300 MB."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=110)
    peak = int(done.stdout)
    assert peak < 1.5 * 59.3e6 * 4 + 300e6, f"{peak / 1e6:.0f} MB"

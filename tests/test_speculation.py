"""Greedy text with a drafter equals greedy text without, and caches forget what was rejected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import mlx.core as mx
import pytest

from engine.decode import loop as loop_module
from engine.decode.acceptance import standing
from engine.decode.chained import ChainedDrafter
from engine.decode.drafter import Drafter
from engine.decode.loop import Rollback
from engine.decode.options import GenerationOptions
from engine.decode.stateful import StatefulDrafter
from engine.model.fused.products import FEW_ROWS
from tests.support import PROMPT, Run, cache_distance, prefilled, run, scripted, tiny, tiny_head

COUNT = 200


@cache
def plain() -> Run:
    return run(COUNT)


def drafters() -> dict[str, Drafter]:
    return {
        "stateful": StatefulDrafter(tiny_head()),
        "chained": ChainedDrafter(tiny_head()),
        "right": scripted(plain().ids, 1.0),
        "wrong": scripted(plain().ids, 0.0),
        "mixed": scripted(plain().ids, 0.7),
    }


@pytest.mark.parametrize("rollback", ["trim", "replay"])
@pytest.mark.parametrize("block_size", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", ["stateful", "chained", "right", "wrong", "mixed"])
def test_greedy_invariant_with_speculation(name: str, block_size: int, rollback: Rollback) -> None:
    drafter = drafters()[name]
    drafts = min(block_size - 1, drafter.max_drafts or 99)
    result = run(COUNT, drafter=drafter, drafts=lambda step: drafts, rollback=rollback)
    assert result.ids == plain().ids
    assert cache_distance(result.target, plain().target) < 1e-4
    rounds = result.steps[1:]
    assert sum(len(step.tokens) for step in result.steps) == COUNT
    assert all(step.accepted in (len(step.tokens), len(step.tokens) - 1) for step in rounds)
    if name == "right":
        assert all(step.accepted == drafts for step in rounds[:-1])
    if name == "wrong":
        assert all(step.accepted == 0 for step in rounds)


@pytest.mark.parametrize("schedule", [StatefulDrafter, ChainedDrafter])
@pytest.mark.parametrize("length", [1, 2])
def test_a_prompt_may_be_shorter_than_the_head_is_deep(schedule: type, length: int) -> None:
    """The deeper blocks then have fewer rows than they would take back after a rejection."""
    prompt = PROMPT[:length]
    drafter = schedule(tiny_head())
    result = run(40, prompt=prompt, drafter=drafter, drafts=lambda step: 3)
    assert result.steps[1].accepted == 0
    assert result.ids == run(40, prompt=prompt).ids
    assert cache_distance(result.target, prefilled(result.ids[:-1])) < 1e-4


def test_every_layer_stands_at_the_committed_length_after_each_round() -> None:
    drafter = StatefulDrafter(tiny_head())
    positions = []

    def drafts(step: int) -> int:
        positions.append(step)
        return 3

    result = run(60, drafter=drafter, drafts=drafts)
    assert {layer.offset for layer in result.target.cache.layers} == {len(result.ids) - 1}
    for depth, layer in enumerate(drafter.caches):
        assert len(result.ids) - 2 - 3 <= layer.offset <= len(result.ids) - 1 - depth


@pytest.mark.parametrize("drafts", [1, 2, 4])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_trim_and_replay_leave_the_same_caches(drafts: int, share: float) -> None:
    runs = [
        run(80, drafter=scripted(plain().ids, share), drafts=lambda step: drafts, rollback=rollback)
        for rollback in ("trim", "replay")
    ]
    fresh = prefilled(runs[0].ids[:-1])
    assert runs[0].ids == runs[1].ids
    assert cache_distance(runs[0].target, runs[1].target) < 1e-4
    assert cache_distance(runs[0].target, fresh) < 1e-4


@pytest.mark.slow
def test_rollback_replay_restores_conv_and_kv_exactly() -> None:
    """With row-invariant kernels (OpenBLAS off) rollbacks leave bitwise what plain decoding leaves."""
    environment = {**os.environ, "INKSTAND_OPENBLAS": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bitwise"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    distances = json.loads(done.stdout)
    assert len(distances) == 18
    assert set(distances.values()) == {0.0}, distances


def test_an_unmet_near_tie_changes_nothing_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a margin that makes every decision a tie, each is taken from a row of its own."""
    monkeypatch.setattr(loop_module, "tie_margin", lambda top, dtype: 1e9)
    result = run(60, drafter=scripted(plain().ids, 0.7), drafts=lambda step: 3)
    assert result.ids == plain().ids[: len(result.ids)]
    assert sum(step.near_ties for step in result.steps) >= len(result.ids) - len(PROMPT) - 1
    assert cache_distance(result.target, prefilled(result.ids[:-1])) < 1e-4


def test_there_is_no_near_tie_where_rows_do_not_depend_on_their_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "tie_margin", lambda top, dtype: 1e9)
    monkeypatch.setattr(tiny().backbone, "row_invariant", True)
    result = run(60, drafter=scripted(plain().ids, 0.7), drafts=lambda step: 3)
    assert result.ids == plain().ids[: len(result.ids)]
    assert not any(step.near_ties for step in result.steps)


def test_a_block_of_more_rows_than_are_alike_has_near_ties_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "tie_margin", lambda top, dtype: 1e9)
    monkeypatch.setattr(tiny().backbone, "row_invariant", True)
    for drafts, counted in ((FEW_ROWS - 1, False), (FEW_ROWS, True)):
        result = run(20, drafter=scripted(plain().ids, 0.9), drafts=lambda step, k=drafts: k)
        assert result.ids == plain().ids[: len(result.ids)]
        assert any(step.near_ties for step in result.steps) is counted


@pytest.mark.parametrize("rollback", ["trim", "replay"])
@pytest.mark.parametrize(("row", "count"), [(0, 5), (1, 5), (2, 5), (1, 2), (2, 2), (2, 3)])
def test_a_near_tie_that_the_block_got_wrong_is_set_right(
    monkeypatch: pytest.MonkeyPatch, row: int, count: int, rollback: Rollback
) -> None:
    """A block whose kernels moved a decision within the margin yields to the single row, also where it ends sooner."""
    judge = loop_module.judge

    def disturbed(logits: mx.array, draft: object, sampler: object, *, margins: bool) -> object:
        # The block picks the drafter's wrong token in row `row`, by a margin below the tie margin.
        wrong = draft.tokens[row]
        logits = logits.at[row, wrong].maximum(mx.max(logits[row]) + 1e-6)
        return judge(logits, draft, sampler, margins=margins)

    reference = plain().ids
    wrong_at = {len(PROMPT) + 1 + row}

    def guess(position: int) -> int:
        right = reference[position]
        return (right + 1) % 250 if position in wrong_at else right

    drafter = scripted(reference, 1.0)
    drafter.guess = guess
    monkeypatch.setattr(loop_module, "judge", disturbed)
    result = run(count, drafter=drafter, drafts=lambda step: 4, rollback=rollback)
    assert result.ids == reference[: len(result.ids)]
    assert (result.steps[1].accepted, result.steps[1].near_ties) == (min(row, count - 1), 1)
    assert cache_distance(result.target, prefilled(result.ids[:-1])) < 1e-4


@pytest.mark.parametrize("schedule", [StatefulDrafter, ChainedDrafter])
@pytest.mark.parametrize(
    "penalty", [{"repetition_penalty": 1.3}, {"presence_penalty": 0.9}, {"frequency_penalty": 0.6}]
)
def test_penalties_see_what_plain_decoding_sees(schedule: type, penalty: dict[str, float]) -> None:
    options = GenerationOptions(**penalty)
    reference = run(80, options=options)
    assert reference.ids != plain().ids[: len(reference.ids)]
    for drafter in (schedule(tiny_head()), scripted(reference.ids, 0.8)):
        result = run(80, drafter=drafter, drafts=lambda step: 3, options=options)
        assert result.ids == reference.ids


def test_the_leading_run_is_counted_up_to_the_first_miss() -> None:
    assert [standing(mx.array(case)).item() for case in ([1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1])] == [2, 0, 4]

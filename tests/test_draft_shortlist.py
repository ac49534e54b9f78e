"""Drafts scored roughly first and exactly after: the same text, the same drafts where it counts, its price."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine.decode.chained import ChainedDrafter
from engine.decode.options import GenerationOptions
from engine.decode.stateful import StatefulDrafter
from engine.events import Finished
from engine.loaded import Engine
from engine.memory import footprint
from engine.model.draft_head import CANDIDATES, Shortlist, shortlist_bytes, suits
from engine.model.linear import Dense
from engine.model.mtp import MTPHead
from engine.session import Session
from tests.support import TINY_VOCAB, run, tiny, tiny_head

DEMO = Path(__file__).parents[1] / "resources" / "demo_checkpoint"
QUESTIONS = ("Why is the sky blue?", "Write a haiku about tide pools.")


def lm_head(vocabulary: int = 4096, hidden: int = 64) -> Dense:
    """Rows around a common mean that vary more in some directions, as those of trained heads do."""
    spread = mx.exp(-mx.arange(hidden) / 12.0)
    rows = mx.random.normal((vocabulary, hidden), key=mx.random.key(0)) * spread
    return Dense(rows + 3.0 * mx.random.normal((hidden,), key=mx.random.key(1)))


def near_rows(matrix: Dense, count: int) -> mx.array:
    """Hidden rows [1, count, H] as a trained model has them: about the row of the id that it means."""
    rows = matrix.weight[mx.arange(count) * 97]
    centred = rows - matrix.weight.mean(axis=0)
    return (2.0 * centred + 0.3 * mx.random.normal(rows.shape, key=mx.random.key(2)))[None]


@pytest.fixture
def short_head() -> Iterator[MTPHead]:
    head = tiny_head()
    matrix = head.backbone.lm_head
    assert isinstance(matrix, Dense)
    head.scores = Shortlist(matrix, TINY_VOCAB)
    yield head
    head.reduce(None)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_the_candidates_have_their_exact_scores_and_the_best_is_among_them(rows: int) -> None:
    matrix = lm_head()
    x = near_rows(matrix, rows)
    exact, scores = np.array(matrix(x))[..., :4000], np.array(Shortlist(matrix, 4000)(x))
    assert scores.shape == exact.shape
    known = np.isfinite(scores)
    assert (known.sum(axis=-1) == CANDIDATES).all()
    np.testing.assert_allclose(scores[known], exact[known], rtol=1e-4, atol=1e-4)
    assert (scores[~known] == -np.inf).all()
    assert (scores.argmax(-1) == exact.argmax(-1)).all()


def test_the_mean_of_all_rows_takes_no_direction_from_what_tells_them_apart() -> None:
    """Rows vary in as many directions as the rough scores have, and share one besides."""
    rows = mx.random.normal((4096, 16), key=mx.random.key(0)) * (mx.arange(16) < 4)
    matrix = Dense(rows + 50.0 * (mx.arange(16) == 9))
    x = near_rows(matrix, 40) * (mx.arange(16) < 4)
    assert np.array(Shortlist(matrix, 4096)(x)).argmax(-1).tolist() == np.array(matrix(x)).argmax(-1).tolist()


@pytest.mark.parametrize("drafter", [StatefulDrafter, ChainedDrafter])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.3}])
def test_greedy_text_is_the_same(short_head: MTPHead, drafter: type, options: dict[str, float]) -> None:
    chosen = GenerationOptions(**options)
    result = run(80, drafter=drafter(short_head), drafts=lambda step: 3, options=chosen)
    assert result.ids == run(80, options=chosen).ids
    assert sum(step.drafted for step in result.steps) > 0


def test_the_demo_drafts_with_a_shortlist_as_with_the_whole_head() -> None:
    engine = Engine.load(DEMO)
    head = engine.head
    assert head is not None
    shortlist = head.scores
    assert isinstance(shortlist, Shortlist)

    def rounds(question: str) -> list[tuple[int, ...]]:
        session = Session(engine, block_size=5)
        events = list(session.complete(question, GenerationOptions(max_tokens=60)))
        assert isinstance(events[-1], Finished)
        stats = events[-1].generation.stats
        return [events[-1].generation.token_ids, (stats.rounds, stats.accepted)]

    short = [rounds(question) for question in QUESTIONS]
    head.scores = None
    assert [rounds(question) for question in QUESTIONS] == short
    head.scores = shortlist
    assert shortlist.nbytes == shortlist_bytes(8320, 384)
    read, multiplied = shortlist.work
    whole = engine.backbone.lm_head
    assert isinstance(whole, Dense)
    assert read < 0.3 * whole.nbytes
    assert multiplied < 0.3 * whole.weight.size


def test_it_is_left_out_where_it_was_not_measured_to_pay() -> None:
    assert suits(8320, 384, mx.float32)
    assert not suits(8320, 384, mx.bfloat16)
    assert not suits(2000, 384, mx.float32)
    assert not suits(TINY_VOCAB, 64, mx.float32)
    head = tiny_head()
    head.shorten()
    assert head.scores is None
    assert tiny().head_depths == head.depths


def test_the_plan_of_memory_counts_one_where_there_is_one() -> None:
    assert footprint(DEMO, DEMO).shortlist == shortlist_bytes(8320, 384)
    plan = footprint(DEMO, DEMO)
    assert plan.drafter == plan.head + shortlist_bytes(8320, 384) + plan.inputs
    assert footprint(DEMO).shortlist == 0
    assert footprint(DEMO, DEMO, keep_quantized=True).shortlist == 0
    assert footprint(DEMO, DEMO, quantize_rest=8).shortlist == 0
    assert footprint(DEMO, DEMO, dtype="bf16").shortlist == 0
    packed = Engine.load(DEMO, quantize_rest=8)
    assert packed.head is not None
    assert packed.head.scores is None

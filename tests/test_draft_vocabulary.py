"""Drafts that score a part of the vocabulary: same text, same distribution, ids that are always in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine.cli.main import main
from engine.decode.chained import ChainedDrafter
from engine.decode.draft_vocabulary import TokenRanking, choose, find_ranking, fingerprint, kept_at, learn
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.decode.target import Target
from engine.errors import ConfigError, UserError
from engine.loaded import Engine
from engine.model.draft_head import Subset
from engine.model.mtp import MTPHead, Wiring
from engine.weights.recipe import quantize, setting
from tests.support import PROMPT, TINY, TINY_VOCAB, run, tiny, tiny_head
from tests.test_sampling import (
    OPTIONS,
    SAMPLES,
    RecordedDrafter,
    assert_distributed_as,
    exact_pairs,
    sample_pairs,
)

DEMO = Path(__file__).parents[1] / "resources" / "demo_checkpoint"
SUBSET = [*range(0, 250, 3), 249]


@pytest.fixture
def reduced() -> Iterator[MTPHead]:
    head = tiny_head()
    head.reduce(SUBSET)
    yield head
    head.reduce(None)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_scores_are_those_of_the_whole_head_and_nothing_outside(reduced: MTPHead, rows: int) -> None:
    out = mx.random.normal((1, rows, 64), key=mx.random.key(rows))
    scores = np.array(reduced.logits(out))
    reduced.reduce(None)
    whole = np.array(reduced.logits(out))
    assert scores.shape == whole.shape == (1, rows, TINY_VOCAB)
    np.testing.assert_allclose(scores[..., SUBSET], whole[..., SUBSET], rtol=1e-5, atol=1e-5)
    outside = np.setdiff1d(np.arange(TINY_VOCAB), SUBSET)
    assert (scores[..., outside] == -np.inf).all()


def test_packed_rows_stay_packed() -> None:
    weight = mx.random.normal((128, 64), key=mx.random.key(0))
    packed = quantize(weight, setting(8))
    x = mx.random.normal((1, 2, 64), key=mx.random.key(1))
    ids = [5, 127, 64]
    head = Subset(packed, ids, 100 + 28)
    expected = np.array(packed(x))[..., sorted(ids)]
    np.testing.assert_allclose(np.array(head(x))[..., sorted(ids)], expected, rtol=1e-5, atol=1e-5)
    assert head.nbytes == packed.nbytes * 3 // 128
    assert head.size == 3


@pytest.mark.parametrize("drafter", [StatefulDrafter, ChainedDrafter])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.3}, {"frequency_penalty": 0.6}])
def test_greedy_text_is_the_same(reduced: MTPHead, drafter: type, options: dict[str, float]) -> None:
    chosen = GenerationOptions(**options)
    result = run(80, drafter=drafter(reduced), drafts=lambda step: 3, options=chosen)
    assert result.ids == run(80, options=chosen).ids
    assert sum(step.drafted for step in result.steps) > 0


@pytest.mark.parametrize(
    "options",
    [{"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9, "min_p": 0.01}, {"temperature": 1.0, "top_k": 120}],
)
def test_draft_distributions_live_on_the_subset(reduced: MTPHead, options: dict[str, float]) -> None:
    q = draft_distribution(reduced, GenerationOptions(**options, seed=1))
    outside = np.setdiff1d(np.arange(TINY_VOCAB), SUBSET)
    assert q[0, outside].sum() == 0
    assert q.sum() == pytest.approx(1, abs=1e-5)


def draft_distribution(head: MTPHead, options: GenerationOptions = OPTIONS) -> np.ndarray:
    drafter, target = StatefulDrafter(head), Target(tiny().backbone)
    list(target.prefill(PROMPT[:-1], 512, drafter.extend))
    draft = drafter.propose(PROMPT, 1, Sampler(options, TINY_VOCAB, PROMPT))
    assert draft.probabilities is not None
    return np.array(draft.probabilities)


@pytest.mark.slow
def test_samples_are_distributed_as_the_target(reduced: MTPHead) -> None:
    """The subset lacks much of what the target may say; tokens and pairs follow its distribution all the same."""
    first, pairs = exact_pairs()
    q = draft_distribution(reduced)
    assert first[np.setdiff1d(np.arange(TINY_VOCAB), SUBSET)].sum() > 0.2
    counts = sample_pairs(RecordedDrafter(mx.array(q)))
    assert counts.sum() == SAMPLES
    assert_distributed_as(counts.sum(axis=1), first)
    assert_distributed_as(counts.ravel(), pairs.ravel())


def test_rewiring_keeps_the_subset(reduced: MTPHead) -> None:
    assert reduced.rewired(Wiring(readout="direct")).scores is reduced.scores


def test_the_most_frequent_ids_come_first_after_control_tokens() -> None:
    tokenizer = tiny().tokenizer
    control = {i for i in range(TINY_VOCAB) if tokenizer.is_control(i)}
    ranking = learn(tokenizer, "x", [[7, 7, 7, 9], [9, 7, 12]], size=len(control) + 4, vocabulary=TINY_VOCAB)
    assert set(ranking.ids[: len(control)]) == control
    rest = [i for i in (7, 9, 12) if i not in control]
    assert list(ranking.ids[len(control) : len(control) + len(rest)]) == rest
    assert len(ranking.ids) == len(set(ranking.ids)) == len(control) + 4


def write_ranking(ids: list[int]) -> None:
    name = fingerprint(TINY)
    TokenRanking(name, tuple(ids)).write(kept_at(name))


def test_control_tokens_are_always_scored() -> None:
    write_ranking(list(range(249, -1, -1)))
    tokenizer = tiny().tokenizer
    ids, note = choose(64, TINY, tokenizer, TINY_VOCAB)
    assert ids is not None
    assert note == "Drafts score 64 of 250 token ids."
    assert len(ids) == 64
    control = {i for i in range(TINY_VOCAB) if tokenizer.is_control(i)}
    assert control | set(tokenizer.eos_token_ids) <= set(ids)


def test_settings_mean_what_they_say() -> None:
    tokenizer = tiny().tokenizer
    assert choose("full", TINY, tokenizer, TINY_VOCAB) == (None, None)
    assert choose("auto", TINY, tokenizer, TINY_VOCAB) == (None, None)
    with pytest.raises(UserError, match="not known which"):
        choose(64, TINY, tokenizer, TINY_VOCAB)
    with pytest.raises(UserError, match="draft vocabulary of 3"):
        choose(3, TINY, tokenizer, TINY_VOCAB)
    write_ranking(list(range(70_000)))
    ids, note = choose("auto", TINY, tokenizer, 70_000)
    assert ids is not None
    assert len(ids) == 32768
    assert choose("auto", TINY, tokenizer, 60_000) == (None, None)
    ids, note = choose(300, TINY, tokenizer, TINY_VOCAB)
    assert ids is None
    assert note is not None
    assert "300" in note
    write_ranking(list(range(70)))
    ids, note = choose(200, TINY, tokenizer, TINY_VOCAB)
    assert ids is not None
    assert len(ids) < 200
    assert note is not None
    assert "no more are ranked" in note


@pytest.mark.parametrize(
    "content", ['{"tokenizer": "x", "ids": []}', '{"ids": [1]}', '{"tokenizer": "x", "ids": [1, -1]}']
)
def test_damaged_rankings_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="no list of token ids"):
        TokenRanking.read(path)


def test_a_ranking_of_another_tokenizer_is_refused() -> None:
    TokenRanking("other", (1, 2)).write(kept_at(fingerprint(TINY)))
    with pytest.raises(ConfigError, match="another tokenizer"):
        find_ranking(TINY)


def test_a_ranking_ships_for_the_demo() -> None:
    ranking = find_ranking(DEMO)
    assert ranking is not None
    assert len(ranking.ids) == 4096


def test_the_command_learns_and_loading_uses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("hello world, hello there " * 20, encoding="utf-8")
    assert main(["draft-vocabulary", "-m", str(TINY), "--from", str(text), "--size", "100"]) == 0
    assert "100 ids kept" in capsys.readouterr().err
    ranking = find_ranking(TINY)
    assert ranking is not None
    engine = Engine.load(TINY, draft_vocabulary=100)
    assert engine.head is not None
    assert isinstance(engine.head.scores, Subset)
    assert engine.head.scores.size == 100
    assert set(tiny().tokenizer.encode("hello world")) <= set(ranking.ids)
    assert main(["generate", "-m", str(TINY), "-p", "hello", "-n", "8", "--draft-vocabulary", "100", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["draft"]["vocabulary"] == 100
    assert "Drafts score 100 of 250 token ids." in shown.err
    assert main(["generate", "-m", str(TINY), "-p", "hello", "-n", "8", "--draft-vocabulary", "full", "--json"]) == 0
    plain = capsys.readouterr()
    assert json.loads(shown.out)["token_ids"] == json.loads(plain.out)["token_ids"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["draft-vocabulary"], "nothing to learn from"),
        (["draft-vocabulary", "--from", "nowhere.txt"], "nowhere.txt"),
        (["generate", "-p", "x", "--draft-vocabulary", "few"], "few"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err

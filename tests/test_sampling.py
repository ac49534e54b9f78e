"""Sampling: the chain, and that speculation leaves the distribution as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest

from engine.decode.acceptance import judge
from engine.decode.drafter import Draft, Drafter
from engine.decode.loop import DecodeLoop
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.decode.target import Target
from engine.errors import PromptError
from engine.events import FinishReason
from tests.support import PROMPT, TINY_VOCAB, ScriptedDrafter, prefilled, tiny, tiny_head

OPTIONS = GenerationOptions(temperature=0.7, top_p=0.9, seed=5)
SAMPLES = 5000


def sampler(**options: object) -> Sampler:
    return Sampler(GenerationOptions(**options), 8, [1, 1, 2])


LOGITS = mx.array([[2.0, 1.0, 0.5, 0.0, -1.0, -1.0, 3.0, -8.0]])


def probabilities(**options: object) -> list[float]:
    return sampler(temperature=1.0, **options).probabilities(LOGITS)[0].tolist()


def softmax(values: np.ndarray) -> np.ndarray:
    e = np.exp(values - values.max())
    return e / e.sum()


def test_temperature_divides_the_logits() -> None:
    made = Sampler(GenerationOptions(temperature=0.5), 8, [])
    np.testing.assert_allclose(made.probabilities(LOGITS)[0].tolist(), softmax(np.array(LOGITS)[0] / 0.5), rtol=1e-5)


def test_top_k_keeps_the_best_k() -> None:
    assert [i for i, p in enumerate(probabilities(top_k=3)) if p] == [0, 1, 6]
    np.testing.assert_allclose(sum(probabilities(top_k=3)), 1, rtol=1e-6)


@pytest.mark.parametrize("top_k", [0, 8, 9, 10**9])
def test_top_k_of_all_tokens_or_more_keeps_all(top_k: int) -> None:
    assert probabilities(top_k=top_k) == probabilities()
    assert all(probabilities(top_k=top_k))


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    base = softmax(np.array(LOGITS)[0])
    order = np.argsort(-base)
    for top_p in (0.1, 0.6, 0.85, 0.99):
        kept = {i for i, p in enumerate(probabilities(top_p=top_p)) if p}
        needed = int(np.searchsorted(np.cumsum(base[order]), top_p)) + 1
        assert kept == set(order[:needed].tolist())


def test_min_p_is_relative_to_the_best() -> None:
    base = softmax(np.array(LOGITS)[0])
    assert [i for i, p in enumerate(probabilities(min_p=0.1)) if p] == np.flatnonzero(base >= 0.1 * base.max()).tolist()


@pytest.mark.parametrize(
    "extreme", [{"temperature": 1e-40}, {"temperature": 1.0, "top_p": 1e-50}, {"temperature": 100.0, "min_p": 1.0}]
)
def test_extreme_values_leave_the_best_token(extreme: dict[str, float]) -> None:
    p = sampler(**extreme).probabilities(LOGITS * 30)[0].tolist()
    assert p[6] == pytest.approx(1.0)
    assert sum(p) == pytest.approx(1.0)


def test_penalties_follow_their_definitions() -> None:
    made = sampler(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    made.commit([6, 6, 4])
    scores = made.scores(LOGITS)[0].tolist()
    assert scores[0] == 2.0  # neither in prompt nor output
    assert scores[1] == 0.5  # in the prompt: repetition only
    assert scores[2] == 0.25
    assert scores[6] == pytest.approx(3.0 / 2 - 2 * 0.5 - 0.25)
    assert scores[4] == pytest.approx(-1.0 * 2 - 0.5 - 0.25)


def test_row_i_of_a_block_is_penalised_for_the_drafts_before_it() -> None:
    made = sampler(frequency_penalty=1.0)
    rows = made.scores(mx.broadcast_to(LOGITS, (3, 8)), mx.array([6, 6]))
    assert rows[:, 6].tolist() == [3.0, 2.0, 1.0]
    assert made.scores(LOGITS, mx.array([6, 6]))[0, 6].item() == 1.0
    assert made.scores(LOGITS)[0, 6].item() == 3.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-45),
        ("presence_penalty", math.nan),
        ("frequency_penalty", math.inf),
        ("max_tokens", 0),
        ("stop", ("",)),
        ("seed", -1),
    ],
)
def test_values_out_of_range_are_named(field: str, value: object) -> None:
    with pytest.raises(PromptError, match=field):
        GenerationOptions(**{field: value})


def chi_square(counts: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """Statistic and degrees of freedom, cells below an expectation of 5 pooled."""
    assert counts[expected == 0].sum() == 0
    order = np.argsort(expected)
    counts, expected = counts[order], expected[order]
    counts, expected = counts[expected > 0], expected[expected > 0]
    small = int((np.cumsum(expected) < 5).sum()) + 1
    counts = np.array([counts[:small].sum(), *counts[small:]])
    expected = np.array([expected[:small].sum(), *expected[small:]])
    return float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1


def assert_distributed_as(counts: np.ndarray, p: np.ndarray) -> None:
    statistic, freedom = chi_square(counts, p / p.sum() * counts.sum())
    # Wilson and Hilferty's normal approximation; 3.7 is the 1 in 10,000 quantile.
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    assert z < 3.7, (statistic, freedom)


def exact_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Distribution of the first and of the first two tokens after the prompt, from the target alone."""
    chain = Sampler(OPTIONS, TINY_VOCAB, PROMPT)
    target = prefilled(PROMPT[:-1])
    last = mx.array(PROMPT[-1:])
    first = np.array(chain.probabilities(target.logits(target.forward(last))))[0]
    pairs = np.zeros((TINY_VOCAB, TINY_VOCAB))
    for token in np.flatnonzero(first).tolist():
        logits = target.logits(target.forward(mx.array([token])))
        pairs[token] = first[token] * np.array(chain.probabilities(logits))[0]
        target.trim(1)
    return first, pairs


class RecordedTarget(Target):
    """The tiny model whose forwards are computed once per distinct input; its caches stay at the prompt."""

    def __init__(self) -> None:
        super().__init__(tiny().backbone)
        self._hidden: dict[tuple[int, ...], mx.array] = {}
        self._logits: dict[int, mx.array] = {}

    def forward(self, tokens: mx.array) -> mx.array:
        inputs = (*self.ids[len(PROMPT) - 1 : -1], *tokens.tolist())
        key = (tokens.shape[0], *inputs)
        if self.position < len(PROMPT) - 1:
            return super().forward(tokens)
        if key not in self._hidden:
            # The inputs from the prompt's last token on; what comes before is in the caches.
            hidden = super().forward(mx.array(inputs, mx.int32))
            self._hidden[key] = hidden[:, -tokens.shape[0] :]
            self.cache.trim(hidden.shape[1])
        return self._hidden[key]

    def logits(self, hidden: mx.array) -> mx.array:
        if id(hidden) not in self._logits:
            self._logits[id(hidden)] = super().logits(hidden)
        return self._logits[id(hidden)]

    def trim(self, rows: int) -> None: ...


class RecordedDrafter(ScriptedDrafter):
    """Draws from the distribution that the head's depth 0 has after the prompt."""

    def __init__(self, distribution: mx.array) -> None:
        super().__init__(lambda position: 0)
        self.distribution = distribution

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler) -> Draft:
        assert (len(ids), count) == (len(PROMPT), 1)
        return Draft(sampler.draw(self.distribution), self.distribution)


def draft_distribution() -> mx.array:
    """[1, V] after the prompt, from the real drafter."""
    drafter, target = StatefulDrafter(tiny_head()), Target(tiny().backbone)
    list(target.prefill(PROMPT[:-1], 512, drafter.extend))
    distribution = drafter.propose(PROMPT, 1, Sampler(OPTIONS, TINY_VOCAB, PROMPT)).probabilities
    assert distribution is not None
    return distribution


def sample_pairs(drafter: Drafter | None) -> np.ndarray:
    """5,000 draws of the two tokens after the prompt."""
    target, chain = RecordedTarget(), Sampler(OPTIONS, TINY_VOCAB, PROMPT)
    tokens: list[int] = []

    def stop(token: int) -> FinishReason | None:
        tokens.append(token)
        return "length" if len(tokens) == 2 else None

    loop = DecodeLoop(target, drafter, chain, "trim", stop)
    list(target.prefill(PROMPT[:-1], 512, lambda hidden, ids: None))
    counts = np.zeros((TINY_VOCAB, TINY_VOCAB))
    for _ in range(SAMPLES):
        target.ids = list(PROMPT)
        tokens.clear()
        loop.round(1) if drafter else loop.plain()
        if len(tokens) < 2:
            loop.plain()
        counts[tokens[0], tokens[1]] += 1
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("drafting", [False, True])
def test_samples_are_distributed_as_the_target(drafting: bool) -> None:
    """Temperature 0.7, top-p 0.9: single tokens and pairs against the exact distribution."""
    first, pairs = exact_pairs()
    counts = sample_pairs(RecordedDrafter(draft_distribution()) if drafting else None)
    assert counts.sum() == SAMPLES
    assert_distributed_as(counts.sum(axis=1), first)
    assert_distributed_as(counts.ravel(), pairs.ravel())


def test_the_chi_square_notices_a_drafter_that_is_taken_at_its_word() -> None:
    """The same check fails for the distribution that accepting every draft would give."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(20)), rng.dirichlet(np.ones(20))
    with pytest.raises(AssertionError):
        assert_distributed_as(np.bincount(rng.choice(20, SAMPLES, p=q), minlength=20).astype(float), p)
    assert_distributed_as(np.bincount(rng.choice(20, SAMPLES, p=p), minlength=20).astype(float), p)


def test_a_drafter_with_the_target_s_distribution_is_always_accepted() -> None:
    chain = Sampler(GenerationOptions(temperature=0.7, seed=1), 50, [])
    logits = mx.random.normal((4, 50), key=mx.random.key(0)) * 2
    p = chain.probabilities(logits)
    accepted = 0
    for _ in range(300):
        draft = Draft(chain.draw(p[:3]), p[:3])
        accepted += judge(logits, draft, chain).accepted.item()
    assert accepted == 900


def test_the_near_tie_margin_is_that_of_the_logits_before_penalties() -> None:
    chain = Sampler(GenerationOptions(presence_penalty=29.9), 8, [])
    chain.commit([6])
    logits = mx.array([[0.0, 0, 0, 0, 0, 0, 30.0, 0]] * 2)
    verdict = judge(logits, Draft(mx.array([6], mx.int32), None), chain)
    assert verdict.tops is not None
    assert verdict.tops.tolist() == [30.0, 30.0]


def test_a_certain_drafter_is_accepted_with_the_target_s_probability() -> None:
    """Without a distribution of its own a draft stands with p(draft), and the residual excludes it."""
    chain = Sampler(GenerationOptions(temperature=1.0, seed=2), 8, [])
    logits = mx.concatenate([LOGITS, LOGITS])
    p = softmax(np.array(LOGITS)[0])
    accepted, others = 0, []
    for _ in range(2000):
        verdict = judge(logits, Draft(mx.array([6], mx.int32), None), chain)
        if verdict.accepted.item():
            accepted += 1
        else:
            others.append(verdict.chosen[0].item())
    assert abs(accepted / 2000 - p[6]) < 4 * math.sqrt(p[6] * (1 - p[6]) / 2000)
    assert 6 not in others

"""The rule of acceptance, by itself: which drafts stand, what follows them, and when a decision is a near-tie."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from engine.decode.acceptance import Verdict, chance_in_hindsight, judge, standing, tie_margin
from engine.decode.drafter import Draft
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler


def sampler(**options: float) -> Sampler:
    return Sampler(GenerationOptions(**options), 4, [])  # type: ignore[arg-type]


def logs(*rows: list[float]) -> mx.array:
    """Logits whose softmax is the rows."""
    return mx.log(mx.array(rows))


def certain(*tokens: int) -> Draft:
    return Draft(mx.array(tokens, mx.int32), None)


@pytest.mark.parametrize(
    ("stands", "length"), [([], 0), ([False, True], 0), ([True, False, True], 1), ([True, True, True], 3)]
)
def test_only_the_leading_run_stands(stands: list[bool], length: int) -> None:
    assert standing(mx.array(stands, mx.bool_)).item() == length


class TestGreedy:
    LOGITS = mx.array([[0.0, 3.0, 1.0, -9.0], [5.0, 4.5, 0.0, 0.0], [0.0, 0.0, -7.0, -7.5]])

    @pytest.mark.parametrize(("drafts", "accepted"), [((1, 0), 2), ((1, 1), 1), ((0, 0), 0)])
    def test_a_draft_stands_while_it_is_the_best_token(self, drafts: tuple[int, ...], accepted: int) -> None:
        verdict = judge(self.LOGITS, certain(*drafts), sampler(temperature=0.0))
        assert verdict.accepted.item() == accepted
        assert verdict.chosen.tolist() == [1, 0, 0]

    def test_margins_and_sizes_are_those_of_the_two_best(self) -> None:
        verdict = judge(self.LOGITS, certain(1, 0), sampler(temperature=0.0))
        assert verdict.margins is not None
        assert verdict.tops is not None
        assert verdict.margins.tolist() == [2.0, 0.5, 0.0]
        assert verdict.tops.tolist() == [3.0, 5.0, 0.0]
        assert len(verdict.arrays) == 4

    def test_without_margins_the_verdict_is_the_same(self) -> None:
        verdict = judge(self.LOGITS, certain(1, 1), sampler(temperature=0.0), margins=False)
        assert (verdict.accepted.item(), verdict.chosen.tolist()) == (1, [1, 0, 0])
        assert (verdict.margins, verdict.tops) == (None, None)

    def test_a_penalty_counts_the_drafts_before_it(self) -> None:
        """The second row sees the first draft as said, and prefers another token by then."""
        logits = mx.array([[0.0, 3.0, 2.9, 0.0]] * 3)
        verdict = judge(logits, certain(1, 1), sampler(temperature=0.0, presence_penalty=1.0))
        assert verdict.chosen.tolist()[:2] == [1, 2]
        assert verdict.accepted.item() == 1


P = [0.1, 0.2, 0.3, 0.4]
Q = [0.4, 0.3, 0.2, 0.1]


class TestSampling:
    def frequencies(self, draft: Draft, rows: mx.array, count: int = 3000) -> tuple[float, np.ndarray]:
        """How often the draft stood, and what followed where it fell."""
        chain, stood, followed = sampler(temperature=1.0, seed=3), 0, np.zeros(4)
        for _ in range(count):
            verdict = judge(rows, draft, chain)
            if verdict.accepted.item():
                stood += 1
            else:
                followed[verdict.chosen[0].item()] += 1
        return stood / count, followed / max(1.0, followed.sum())

    def test_a_draft_stands_with_p_over_q_and_what_follows_is_the_rest_of_p(self) -> None:
        draft = Draft(mx.array([0], mx.int32), mx.array([Q]))
        stood, followed = self.frequencies(draft, logs(P, P))
        assert stood == pytest.approx(0.25, abs=0.04)
        # max(p - q, 0) = [0, 0, 0.1, 0.3], normalised.
        assert followed == pytest.approx([0, 0, 0.25, 0.75], abs=0.04)

    def test_a_draft_that_q_likes_less_than_p_always_stands(self) -> None:
        draft = Draft(mx.array([3], mx.int32), mx.array([Q]))
        assert self.frequencies(draft, logs(P, P), 200)[0] == 1.0

    def test_a_draft_that_p_excludes_never_stands(self) -> None:
        stood, followed = self.frequencies(certain(1), logs([0.5, 0.0, 0.5, 0.0], P), 300)
        assert stood == 0.0
        assert followed[1] == followed[3] == 0.0

    def test_nothing_is_left_over_where_p_is_q(self) -> None:
        """The row stays a distribution: it is drawn from all the same, though never used."""
        draft = Draft(mx.array([2], mx.int32), mx.array([P]))
        verdict = judge(logs(P, P), draft, sampler(temperature=1.0, seed=0))
        assert verdict.accepted.item() == 1
        assert 0 <= verdict.chosen[0].item() < 4
        assert verdict.margins is verdict.tops is None
        assert len(verdict.arrays) == 2


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_the_near_tie_grows_with_the_logit_but_not_below_one(dtype: mx.Dtype) -> None:
    assert tie_margin(0.1, dtype) == tie_margin(1.0, dtype) > 0
    assert tie_margin(30.0, dtype) == pytest.approx(30 * tie_margin(1.0, dtype))
    assert tie_margin(1.0, mx.bfloat16) > 1000 * tie_margin(1.0, mx.float32)


@pytest.mark.parametrize(("accepted", "following"), [(0, [9]), (1, [5, 8]), (3, [5, 6, 7, 4])])
def test_what_follows_a_row_is_its_draft_until_the_first_that_fell(accepted: int, following: list[int]) -> None:
    """`chosen` holds, for rows whose draft stands, what would have followed had it fallen."""
    verdict = Verdict(mx.array(accepted, mx.int32), mx.array([9, 8, 1, 4], mx.int32), None, None)
    assert verdict.following(mx.array([5, 6, 7], mx.int32)).tolist()[: accepted + 1] == following


def test_the_mean_chance_is_the_share_of_drafts_that_stand() -> None:
    """Over all tokens that p may bring it is what speculative sampling accepts of q: the sum of the lesser of both."""
    p, q = (mx.softmax(mx.random.normal((1, 50), key=mx.random.key(i)) * 2, axis=-1) for i in (1, 2))
    each = [chance_in_hindsight(p, q, mx.array([token], mx.int32)).item() for token in range(50)]
    assert sum(p[0, i].item() * chance for i, chance in enumerate(each)) == pytest.approx(mx.minimum(p, q).sum().item())
    assert max(each) == 1.0

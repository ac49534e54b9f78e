"""Which drafts of a block stand, and what token follows them.

Greedy: a draft stands while it equals the target's own choice. Sampling: the rule of speculative
sampling (Leviathan et al. 2023, Chen et al. 2023), with p the target's and q the drafter's
distribution: draft x stands with probability min(1, p(x) / q(x)); after the first that falls the token
is drawn from max(p - q, 0), normalised, so that the output is distributed as p.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.decode.drafter import Draft
from engine.decode.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Verdict:
    """Lazy arrays over the k + 1 rows of a verify block."""

    accepted: mx.array
    """int32 scalar: drafts that stand."""
    chosen: mx.array
    """int32 [k + 1]: the token that follows if row i is the first whose draft fell (or the last row)."""
    margins: mx.array | None
    """Greedy, where they were asked for: float32 [k + 1], the best score minus the second best."""
    tops: mx.array | None
    """With them: float32 [k + 1], the magnitude of the best logit, before or after penalties."""

    def following(self, drafts: mx.array) -> mx.array:
        """Int32 [k + 1]: the token that follows each row of the block, up to the last draft that stands."""
        rows = mx.arange(self.chosen.shape[0])
        return mx.where(rows < self.accepted, mx.concatenate([drafts, self.chosen[-1:]]), self.chosen)

    @property
    def arrays(self) -> list[mx.array]:
        optional = [array for array in (self.margins, self.tops) if array is not None]
        return [self.accepted, self.chosen, *optional]


def standing(stands: mx.array) -> mx.array:
    """Length of the leading run of True in [k], int32."""
    return mx.sum(mx.cumprod(stands.astype(mx.int32), axis=0))


def judge(logits: mx.array, draft: Draft, sampler: Sampler, *, margins: bool = True) -> Verdict:
    """Float32 logits [k + 1, V] of the block [pending token, drafts] -> the verdict.

    Args:
        margins: tell how close greedy decisions were.
    """
    scores = sampler.scores(logits, draft.tokens)
    if sampler.greedy:
        place = mx.argmax(scores, axis=-1, keepdims=True)  # uint32 throughout: CUDA compiles a kernel per index type
        best = place.squeeze(1).astype(mx.int32)
        accepted = standing(best[:-1] == draft.tokens)
        if not margins:
            return Verdict(accepted, best, None, None)
        top = mx.take_along_axis(scores, place, axis=-1)
        # Kernels round in proportion to the logit, whatever a penalty makes of it afterwards.
        size = mx.maximum(mx.abs(top), mx.abs(mx.take_along_axis(logits, place, axis=-1)))
        second = mx.max(mx.put_along_axis(scores, place, mx.array(-mx.inf), axis=-1), axis=-1, keepdims=True)
        return Verdict(accepted, best, (top - second).squeeze(1), size.squeeze(1))
    p = sampler.probabilities(scores)
    if draft.probabilities is None:
        # A drafter without a distribution proposes its token with certainty.
        q = (mx.arange(p.shape[-1])[None] == draft.tokens[:, None]).astype(p.dtype)
    else:
        q = draft.probabilities
    picked = draft.tokens[:, None].astype(mx.uint32)
    p_draft = mx.take_along_axis(p[:-1], picked, axis=-1)[:, 0]
    q_draft = mx.take_along_axis(q, picked, axis=-1)[:, 0]
    stands = mx.random.uniform(shape=p_draft.shape, key=sampler.key()) * q_draft < p_draft
    residual = mx.maximum(p[:-1] - q, 0.0)
    # Where p equals q nothing is left over and the draft always stands; p keeps the row finite.
    residual = mx.where(mx.sum(residual, axis=-1, keepdims=True) > 0, residual, p[:-1])
    return Verdict(standing(stands), sampler.draw(mx.concatenate([residual, p[-1:]])), None, None)


def chance_in_hindsight(p: mx.array, q: mx.array, tokens: mx.array) -> mx.array:
    """The chance that a draft would have stood at a token that came without one: min(1, q(x) / p(x)).

    By the rule above, token x comes as a draft that stood with probability min(p(x), q(x)), and p(x) in all. Its mean
    over the tokens of p is the share of drafts that stand.

    Args:
        p: float32 [n, V], the distributions that the tokens were drawn from.
        q: float32 [n, V], those that drafts would have been drawn from.
        tokens: int32 [n].

    Returns:
        float32 [n].
    """
    place = tokens[:, None].astype(mx.uint32)
    p_token, q_token = (mx.take_along_axis(each, place, axis=-1)[:, 0] for each in (p, q))
    return mx.minimum(q_token / p_token, 1.0)


_TIE_ULPS = {mx.float32: 64.0, mx.bfloat16: 8.0}
"""What the number of rows may change in the margin of the two best logits, in units of epsilon times the best one.

Measured, not proven. Float32: 10 was the most seen on the demo with OpenBLAS (blocks of 2 and 5 against single rows).
Bfloat16: 7.95 was the most with MLX's kernels on an H200 (blocks of 2 to 9 rows, 140 positions, half of them below
0.6); the CPU's kernels, and our own for CUDA, show no difference at all.
"""

_EPSILON = {mx.float32: 2.0**-23, mx.bfloat16: 2.0**-7}


def tie_margin(top: float, dtype: mx.Dtype) -> float:
    """Two logits closer than this may change order with the number of rows in a kernel call.

    Args:
        top: magnitude of the best logit.
        dtype: of the activations.
    """
    return _TIE_ULPS[dtype] * _EPSILON[dtype] * max(1.0, top)

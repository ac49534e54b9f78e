"""LM heads for drafts that spare most of the work of scoring every token id.

A draft step spends much of its time on the LM head: most of it with a large model, a third with the bundled demo. Two
ways around it; verification scores every id in any case, so that neither changes what an answer says.

`Subset` scores a fixed set of frequent ids. `Shortlist` scores all of them roughly and the best ones exactly.

Ids that are not scored get minus infinity: they are never proposed, and their probability in the draft distribution is
exactly zero, which is all that speculative sampling needs to stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

import mlx.core as mx

from engine.model.fused.products import any_rows
from engine.model.linear import Dense, Matrix, Packed
from engine.model.placement import on_cache_line


class DraftScores(Protocol):
    """Scores token ids for drafts."""

    @property
    def nbytes(self) -> int:
        """Bytes held beside the LM head."""
        ...

    @property
    def work(self) -> tuple[int, int]:
        """Bytes read and multiplications done for one row."""
        ...

    def __call__(self, hidden: mx.array) -> mx.array:
        """Normed, scaled hidden [1, L, H] -> float32 [1, L, vocabulary], minus infinity for ids left out."""
        ...


class Subset:
    """
    Args:
        lm_head: [V, H]; the rows of `ids` are copied, size * H values.
        ids: distinct token ids below `vocabulary`.
        vocabulary: number of logits.
    """

    def __init__(self, lm_head: Matrix, ids: Sequence[int], vocabulary: int) -> None:
        self.ids = mx.array(sorted(ids), mx.int32)
        self.rows = select_rows(lm_head, self.ids)
        self._score = any_rows(self.rows)
        self._nothing = _nothing(vocabulary)
        mx.eval(self.ids, self.rows.arrays)

    @property
    def size(self) -> int:
        """Token ids that are scored."""
        return self.ids.shape[0]

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    @property
    def work(self) -> tuple[int, int]:
        return self.rows.nbytes, prod(self.rows.shape)

    def __call__(self, hidden: mx.array) -> mx.array:
        scores = self._score(hidden).squeeze(0).astype(mx.float32)
        return _spread(scores, mx.broadcast_to(self.ids[None], scores.shape), self._nothing)


RANK_SHARE = 4
"""A rough score takes a fourth of the products of an exact one."""
CANDIDATES = 64
"""Ids scored exactly. On the demo the best of all 8,320 is among them in 99.5 % of the drafts."""


class Shortlist:
    """Rough scores of all ids by a product of low rank, exact ones of the best few (SVD-softmax, Shim et al. 2017).

    The LM head less its mean row, which shifts all scores alike, is projected onto the directions in which it varies
    most: the eigenvectors of its Gram matrix [H, H] with the greatest values.

    Args:
        lm_head: float32 [V, H]; see `shortlist_bytes` for what is added.
        vocabulary: number of logits.
    """

    def __init__(self, lm_head: Dense, vocabulary: int) -> None:
        self._rows = lm_head.weight[:vocabulary]
        rank = lm_head.shape[-1] // RANK_SHARE
        centred = self._rows - self._rows.mean(axis=0)
        _, vectors = mx.linalg.eigh(centred.T @ centred, stream=mx.cpu)
        basis = vectors[:, -rank:]
        self._project, self._rough = Dense(on_cache_line(basis.T)), Dense(on_cache_line(centred @ basis))
        self._steps = any_rows(self._project), any_rows(self._rough)
        self._nothing = _nothing(vocabulary)
        mx.eval(self._project.arrays, self._rough.arrays)

    @property
    def nbytes(self) -> int:
        return self._project.nbytes + self._rough.nbytes

    @property
    def work(self) -> tuple[int, int]:
        exact = CANDIDATES * self._rows.shape[1]
        multiplied = prod(self._project.shape) + prod(self._rough.shape) + exact
        return self.nbytes + exact * self._rows.dtype.size, multiplied

    def __call__(self, hidden: mx.array) -> mx.array:
        project, rough = self._steps
        ids = best_ids(rough(project(hidden)).squeeze(0), CANDIDATES)
        scores = (hidden[0, :, None] @ self._rows[ids].swapaxes(1, 2)).squeeze(1)
        return _spread(scores, ids, self._nothing)


_GROUP = 16
"""Ids of which one score stands for all at first."""


def best_ids(scores: mx.array, count: int) -> mx.array:
    """The ids of the `count` highest of scores [L, V] -> [L, count], in no order.

    They lie in the `count` groups whose highest scores are the highest. To choose among those and then within them
    takes half the time of `mx.argpartition` over all.
    """
    rows, vocabulary = scores.shape
    groups, rest = divmod(vocabulary, _GROUP)
    if rest or groups <= count:
        return mx.argpartition(scores, -count, axis=-1)[:, -count:]
    # Ids of a group lie `groups` apart, so that the maximum runs over whole rows.
    highest = scores.reshape(rows, _GROUP, groups).max(axis=1)
    kept = mx.argpartition(highest, -count, axis=-1)[:, None, -count:]
    ids = (kept + mx.arange(0, vocabulary, groups, dtype=mx.uint32)[:, None]).reshape(rows, -1)
    among = mx.argpartition(mx.take_along_axis(scores, ids, axis=-1), -count, axis=-1)[:, -count:]
    return mx.take_along_axis(ids, among, axis=-1)


def suits(vocabulary: int, hidden: int, dtype: mx.Dtype) -> bool:
    """Whether a shortlist was measured to pay with a plain LM head of that size and dtype.

    So it is in float32 on the CPU, with enough ids for rough scores to tell apart.
    """
    enough = vocabulary >= max(8 * hidden, 64 * CANDIDATES)
    return enough and dtype == mx.float32 and mx.default_device() == mx.cpu


def shortlist_bytes(vocabulary: int, hidden: int) -> int:
    """What a shortlist holds beside the LM head, in float32."""
    return (vocabulary + hidden) * (hidden // RANK_SHARE) * mx.float32.size


def _nothing(vocabulary: int) -> mx.array:
    nothing = mx.full((1, vocabulary), -mx.inf, mx.float32)
    mx.eval(nothing)
    return nothing


def _spread(scores: mx.array, ids: mx.array, nothing: mx.array) -> mx.array:
    """Scores [L, n] of ids [L, n] -> [1, L, vocabulary]."""
    rows = mx.broadcast_to(nothing, (scores.shape[0], nothing.shape[1]))
    return mx.put_along_axis(rows, ids, scores, axis=-1)[None]


def select_rows(matrix: Matrix, ids: mx.array) -> Matrix:
    """The rows `ids` of a matrix [out, in], packed as it is."""
    if isinstance(matrix, Dense):
        return Dense(matrix.weight[ids])
    biases = None if matrix.biases is None else matrix.biases[ids]
    return Packed(matrix.weight[ids], matrix.scales[ids], biases, matrix.quantization)

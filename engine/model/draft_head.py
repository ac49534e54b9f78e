"""An LM head for drafts that scores some of the token ids.

A draft step of a large model spends most of its time on the LM head, and most text is made of few distinct tokens.
Ids outside the subset get minus infinity: they are never proposed, and their probability in the draft distribution is
exactly zero, which is all that speculative sampling needs to stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from engine.model.fused.products import any_rows
from engine.model.linear import Dense, Matrix, Packed


class DraftHead:
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
        self._nothing = mx.full((1, vocabulary), -mx.inf, mx.float32)
        mx.eval(self.ids, self._nothing, self.rows.arrays)

    @property
    def size(self) -> int:
        """Token ids that are scored."""
        return self.ids.shape[0]

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def __call__(self, hidden: mx.array) -> mx.array:
        """Normed, scaled hidden [1, L, H] -> float32 [1, L, vocabulary], minus infinity outside the subset."""
        scores = self._score(hidden).squeeze(0).astype(mx.float32)
        places = mx.broadcast_to(self.ids[None], scores.shape)
        nothing = mx.broadcast_to(self._nothing, (scores.shape[0], self._nothing.shape[1]))
        return mx.put_along_axis(nothing, places, scores, axis=-1)[None]


def select_rows(matrix: Matrix, ids: mx.array) -> Matrix:
    """The rows `ids` of a matrix [out, in], packed as it is."""
    if isinstance(matrix, Dense):
        return Dense(matrix.weight[ids])
    biases = None if matrix.biases is None else matrix.biases[ids]
    return Packed(matrix.weight[ids], matrix.scales[ids], biases, matrix.quantization)

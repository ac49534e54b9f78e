"""What an MTP block reads, for a few rows in float32 on the CPU."""

from __future__ import annotations

import mlx.core as mx

from engine.model.fused.norm import Norm
from engine.model.fused.products import few_rows
from engine.model.linear import Dense
from engine.model.placement import on_cache_line

MOST_BYTES = 64 << 20
"""Of the tables of a whole head; those of the demo are 54 MB."""


class BlockInput:
    """input_proj(concat(hidden_norm(h), embed_norm(e))) for hidden states h and token ids.

    What the product makes of a token depends on its id alone and is computed once for every id: reading a row of that
    table stands in for the lookup, two norms and half of the product.

    Args:
        input_proj: [H, 2H], hidden half first.
        hidden_norm, embed_norm: [H].
        embedded: the embedding of every id as the block reads it [V, H].
    """

    def __init__(
        self, input_proj: Dense, hidden_norm: mx.array, embed_norm: mx.array, embedded: mx.array, eps: float
    ) -> None:
        of_hidden, of_token = mx.split(input_proj.weight, 2, axis=1)
        self._half = Dense(on_cache_line(of_hidden))
        self._norm, self._project = Norm(hidden_norm[None], eps), few_rows(self._half)
        self._by_id = mx.fast.rms_norm(embedded, embed_norm, eps) @ of_token.T
        mx.eval(self._by_id)

    def work(self, rows: int) -> tuple[int, int]:
        """Bytes read and multiplications done for `rows` rows."""
        row = self._by_id.nbytes // self._by_id.shape[0]
        return self._half.nbytes + rows * row, rows * self._half.weight.size

    def __call__(self, tokens: mx.array, hidden: mx.array) -> mx.array:
        """Ids [1, L] and hidden states [1, L, H] -> [1, L, H]."""
        return self._project(self._norm(hidden.squeeze(0)))[None] + self._by_id[tokens]


def suits(vocabulary: int, hidden: int, depths: int, dtype: mx.Dtype) -> bool:
    """Whether the blocks of a head with plain projections of that dtype read their input this way."""
    small = table_bytes(vocabulary, hidden, depths) <= MOST_BYTES
    return small and dtype == mx.float32 and mx.default_device() == mx.cpu


def table_bytes(vocabulary: int, hidden: int, depths: int) -> int:
    """What the tables of a head and the halves of its projections beside them hold, in float32."""
    return depths * (vocabulary + hidden) * hidden * mx.float32.size

"""Attention of a few queries on CUDA, in which a query's result depends on its own keys alone.

MLX takes other kernels for one query than for several, and for other numbers of keys. Here keys are taken in chunks
that begin at multiples of their size in the sequence. A block of threads reads one chunk once and computes the softmax
and the weighted values of each query over it, on tensor cores, where the heads of a query are columns of a tile. A
second kernel adds the chunks in an order that their positions alone decide. A query adds exactly nothing for what it
does not see, so that neither rows after it nor keys before its window change a bit. The relative bias is computed where
it is used, and no mask is made.
"""

from __future__ import annotations

import mlx.core as mx

from engine.cache import KVCache
from engine.model.cuda.attention_source import CHUNKS, MERGE
from engine.model.cuda.compiler import available, compiled
from engine.model.relative_bias import RelativeBias

_CHUNK = 128
_THREADS = 2 * _CHUNK
"""A warp for each 16 keys."""

_MERGING_THREADS = 512
_LARGEST_HEAD = 256
"""Dimensions whose keys and values fit the registers of a block."""

_QUERIES = 64
"""Queries, times heads, that share the reading of a chunk: so many scores fit a block's shared memory."""

_BLOCKS = 264
"""Of threads, that occupy a large GPU: with fewer than that, rows are shared out among more of them."""


def takes(head_dim: int, group: int, dtype: mx.Dtype) -> bool:
    """Whether `RowAttention` computes heads of that size, `group` of them per key head."""
    fits = head_dim % 32 == 0 and head_dim <= _LARGEST_HEAD and _MERGING_THREADS % head_dim == 0 and group <= _QUERIES
    return fits and dtype == mx.bfloat16 and available()


class RowAttention:
    """The attention of one layer for few rows in bfloat16, with scores scaled by 1 / head_dim.

    Args:
        group: query heads per key head.
    """

    def __init__(self, head_dim: int, group: int, d_rel: int, bias: RelativeBias) -> None:
        self.bias = bias
        self._most_rows = _QUERIES // group
        shared = {"D": head_dim, "CHUNK": _CHUNK, "WINDOWED": int(bias.windowed)}
        own = {"HEADS": group, "FEATURES": d_rel, "ROWS": self._most_rows}
        self._chunks = compiled("attention_chunks", CHUNKS, **shared, **own)
        self._merge = compiled("attention_merge", MERGE, **shared, SLICES=_MERGING_THREADS // head_dim)

    def __call__(self, q: mx.array, r: mx.array, cache: KVCache, first: int) -> mx.array:
        """The last L rows of `cache` as queries over its keys -> [1, L, heads * head_dim].

        Args:
            q, r: [1, L, heads, head_dim] and relative features [1, L, heads, d_rel], both with their log scaling.
            first: position of the first key that any of the rows may see.
        """
        assert cache.keys is not None
        assert cache.values is not None
        _, length, heads, head_dim = q.shape
        _, kv_heads, capacity, _ = cache.keys.shape
        position, extent = cache.offset - length, self.bias.extent
        chunks = (cache.offset - 1) // _CHUNK - first // _CHUNK + 1
        rows = min(self._most_rows, max(1, chunks * kv_heads * length // _BLOCKS))
        shape = (length, heads, chunks)
        parts = self._chunks(
            [q, r, cache.keys, cache.values, self.bias.bank],
            [length, position, first, cache.base, capacity, extent, rows],
            blocks=(chunks, kv_heads, -(-length // rows)),
            threads=_THREADS,
            outputs=[(shape, mx.float32), (shape, mx.float32), ((*shape, head_dim), mx.float32)],
        )
        return self._merge(
            parts,
            [position, first, extent, chunks],
            blocks=(heads, length, 1),
            threads=_MERGING_THREADS,
            outputs=[((1, length, heads * head_dim), mx.bfloat16)],
        )[0]

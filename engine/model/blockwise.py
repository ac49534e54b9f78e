"""Attention of many queries over a long context in memory that does not grow with the context.

The relative bias of a global layer reaches `extent` keys back; every key before that is visible with bias 0. So a
block of queries needs a mask over its nearest keys alone, and the far keys are taken in blocks without any: the
partial softmaxes are merged with a running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation
for softmax", 2018; the scheme of FlashAttention). A sliding block reads its window and nothing else.

`attend_at_once` is the reference, and what few rows use: the same values from one call with a mask over all keys.
"""

from __future__ import annotations

import mlx.core as mx

from engine.cache import KeyView, align_down, align_up
from engine.model.device import on_cuda
from engine.model.elementary import exp
from engine.model.relative_bias import RelativeBias

AT_ONCE_ROWS = 16
"""Up to this many queries one call with its mask is faster, and small."""

QUERY_BLOCK = 64
"""Queries computed together, and rows of a mask at most."""

KEY_BLOCK = 1024
"""Far keys computed together. Fewer than this many of them are left to the masked call."""

_IN_FLIGHT = 4
"""Parts of a softmax that are computed before anything waits: MLX allocates results when work is queued, and a whole
context of queued parts would be as large as the mask that they replace."""


def attend_at_once(
    q: mx.array, r: mx.array, view: KeyView, *, position: int, bias: RelativeBias, tau: mx.array | None, scale: float
) -> mx.array:
    """Attention of L queries at `position`, ... over the keys of `view`.

    Args:
        q, r: [1, heads, L, head_dim] and relative features [1, heads, L, d_rel].
        tau: float32 [L, 1] factor of the bias, or None.
        scale: factor of q . k.

    Returns:
        [1, heads, L, head_dim] in the dtype of `q`.
    """
    mask = bias(r, position, view.first, view.keys.shape[2], tau)
    return mx.fast.scaled_dot_product_attention(q, view.keys, view.values, scale=scale, mask=mask)


def attend_in_blocks(
    q: mx.array, r: mx.array, view: KeyView, *, position: int, bias: RelativeBias, tau: mx.array | None, scale: float
) -> mx.array:
    """As `attend_at_once`, with memory bounded by `QUERY_BLOCK` and `KEY_BLOCK`; on the CPU also faster."""
    on_gpu, length = mx.default_device() == mx.gpu, q.shape[2]
    if on_cuda():
        q, r, tau = filled_up(q, r, tau)
    blocks: list[mx.array] = []
    for low in range(0, length, QUERY_BLOCK):
        rows = slice(low, min(low + QUERY_BLOCK, q.shape[2]))
        start, end = position + rows.start, align_up(position + min(rows.stop, length))
        near = near_start(view.first, start, bias)
        mask = bias(r[:, :, rows], start, near, end - near, None if tau is None else tau[rows])
        keys, values = (a[:, :, near - view.first : end - view.first] for a in (view.keys, view.values))
        if on_gpu and (bias.windowed or near == view.first):
            block = mx.fast.scaled_dot_product_attention(q[:, :, rows], keys, values, scale=scale, mask=mask)
        else:
            softmax = RunningSoftmax(q[:, :, rows] * scale, view.keys.shape[1])
            softmax.add(keys, values, mask)
            if not bias.windowed:
                for i, first in enumerate(range(0, near - view.first, KEY_BLOCK)):
                    far = slice(first, first + KEY_BLOCK)
                    softmax.add(view.keys[:, :, far], view.values[:, :, far])
                    if i % _IN_FLIGHT == 0:
                        mx.eval(softmax.arrays)
            block = softmax.result().astype(q.dtype)
            mx.eval(block)
        blocks.append(block)
    return (mx.concatenate(blocks, axis=2) if len(blocks) > 1 else blocks[0])[:, :, :length]


def filled_up(q: mx.array, r: mx.array, tau: mx.array | None) -> tuple[mx.array, mx.array, mx.array | None]:
    """Queries, features and factors as `attend_at_once` takes them, with rows of zeros up to whole blocks.

    With CUDA, MLX lets cuDNN plan its call for every number of queries that it meets, which takes longer than to
    compute the prompt. So the last block of a prompt has as many as the others.
    """
    rest = -q.shape[2] % QUERY_BLOCK
    rows = [(0, 0), (0, 0), (0, rest), (0, 0)]
    return mx.pad(q, rows), mx.pad(r, rows), None if tau is None else mx.pad(tau, [(0, rest), (0, 0)])


def near_start(first: int, start: int, bias: RelativeBias) -> int:
    """Position of the first key, of those from `first` on, that the masked call of a block at `start` covers.

    Keys before it are out of a sliding layer's window; on a global layer they are whole blocks of far keys.
    """
    reach = max(first, start - bias.extent + 1)
    return max(first, align_down(reach)) if bias.windowed else reach - (reach - first) % KEY_BLOCK


class RunningSoftmax:
    """Softmax-weighted values over keys that come in parts, in float32.

    Args:
        q: scaled queries [1, heads, L, head_dim].
        kv_heads: heads of the keys; each serves heads / kv_heads consecutive query heads.
    """

    def __init__(self, q: mx.array, kv_heads: int) -> None:
        self._shape = q.shape
        self._kv_heads = kv_heads
        self._q = self._grouped(q.astype(mx.float32))
        self._most: mx.array | None = None
        self._sum = self._out = mx.array(0.0)

    def add(self, keys: mx.array, values: mx.array, mask: mx.array | None = None) -> None:
        """Keys and values [1, kv_heads, S, head_dim] with an additive mask [1, heads, L, S].

        The first call must leave every query at least one key.
        """
        scores = self._q @ keys.astype(mx.float32).swapaxes(-1, -2)
        if mask is not None:
            scores = scores + self._grouped(mask.astype(mx.float32))
        most = mx.max(scores, axis=-1, keepdims=True)
        if self._most is not None:
            most = mx.maximum(most, self._most)
        weights = exp(scores - most)
        total = mx.sum(weights, axis=-1, keepdims=True)
        out = weights @ values.astype(mx.float32)
        if self._most is not None:
            kept = exp(self._most - most)
            total, out = total + self._sum * kept, out + self._out * kept
        self._most, self._sum, self._out = most, total, out

    @property
    def arrays(self) -> list[mx.array]:
        """The running maximum, sum and values, for `mx.eval`."""
        return [self._sum, self._out] if self._most is None else [self._most, self._sum, self._out]

    def result(self) -> mx.array:
        """Float32 [1, heads, L, head_dim]."""
        return (self._out / self._sum).reshape(self._shape)

    def _grouped(self, a: mx.array) -> mx.array:
        """[1, heads, L, N] -> [1, kv_heads, heads / kv_heads * L, N]."""
        return a.reshape(1, self._kv_heads, -1, a.shape[-1])

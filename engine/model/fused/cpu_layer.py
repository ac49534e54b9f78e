"""`DecoderLayer` for a few rows in float32 on the CPU, where every operation costs 10 to 20 microseconds of its own.

It differs from the plain layer in how, not in what: matrices are multiplied in tiles, experts pair by pair, norms are
written out with their constants folded into the weight, the relative bias is read from a table, and attention is two
products and a softmax over rows grouped by key head. Sums are therefore rounded in another order.
"""

from __future__ import annotations

import math

import mlx.core as mx

from engine.cache import ALIGN, ConvCache, KeyView, LayerCache
from engine.model.attention import Attention
from engine.model.elementary import silu, softmax_product
from engine.model.fused.experts import FewRowMoE
from engine.model.fused.norm import Norm
from engine.model.fused.products import FEW_ROWS, few_rows
from engine.model.layer import DecoderLayer
from engine.model.linear import Dense
from engine.model.mlp import DenseMLP, MoE
from engine.model.relative_bias import RelativeBias
from engine.model.short_conv import ShortConv


class Conv:
    """`ShortConv` over rows [L, C]."""

    def __init__(self, conv: ShortConv) -> None:
        self.weight = conv.weight
        self.taps, self.channels = conv.weight.shape

    def __call__(self, x: mx.array, cache: ConvCache) -> mx.array:
        inputs = cache.extend(x[None])
        if x.shape[0] == 1:
            return (inputs.squeeze(0) * self.weight).sum(axis=0, keepdims=True)
        windows = mx.as_strided(inputs, (x.shape[0], self.taps, self.channels), (self.channels, self.channels, 1))
        return (windows * self.weight).sum(axis=1)


class FewRowAttention:
    """`Attention` for rows [L, H]."""

    def __init__(self, attention: Attention) -> None:
        self.heads, self.kv_heads, self.head_dim = attention.heads, attention.kv_heads, attention.head_dim
        self.q_width, self.kv_width = attention.q_width, attention.kv_width
        self.qkvr, self.o = few_rows(attention.qkvr_proj), few_rows(attention.o_proj)
        self.kv_conv = Conv(attention.kv_conv)
        # Queries and keys are normed together; the scale of the scores goes with the queries.
        q = mx.broadcast_to(attention.q_norm / self.head_dim, (self.heads, self.head_dim))
        k = mx.broadcast_to(attention.k_norm, (self.kv_heads, self.head_dim))
        self.norm = Norm(mx.concatenate([q, k])[None], attention.eps)
        self.bias = BiasTable(attention.bias)
        self.tau = attention.tau

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        """Normed rows [L, H] -> [L, H]; keys and values join the cache."""
        length, position = x.shape[0], cache.offset
        q, kv, r = mx.split(self.qkvr(x), [self.q_width, self.q_width + 2 * self.kv_width], axis=-1)
        k, v = mx.split(self.kv_conv(kv, cache.kv_conv), 2, axis=-1)
        qk = mx.concatenate([q, k], axis=-1).reshape(length, self.heads + self.kv_heads, self.head_dim)
        q, k = mx.split(self.norm(qk).swapaxes(0, 1), [self.heads], axis=0)
        tau = self.tau(position, length)
        if tau is not None:
            q, r = q * tau, r * tau
        view = cache.kv.append(k[None], v.reshape(1, length, self.kv_heads, self.head_dim).swapaxes(1, 2))
        grouped = (self.kv_heads, self.heads // self.kv_heads, length, view.keys.shape[2])
        queries = q.reshape(self.kv_heads, -1, self.head_dim)
        scores = (queries @ view.keys.squeeze(0).swapaxes(1, 2)).reshape(grouped)
        scores = scores + self.bias(r.reshape(length * self.heads, -1), position, view, grouped)
        out = softmax_product(scores.reshape(self.kv_heads, -1, grouped[-1]), view.values.squeeze(0))
        out = out.reshape(self.heads, length, self.head_dim).swapaxes(0, 1)
        return self.o(out.reshape(length, self.q_width))


class BiasTable:
    """`RelativeBias` by distance, so that the mask of a call is one product, one sum and a view of its rows.

    Row t belongs to distance `farthest` - t, the last ones to keys after the query.
    """

    def __init__(self, bias: RelativeBias) -> None:
        self.bias = bias
        self._grow(bias.extent + 2 * ALIGN + FEW_ROWS)

    def _grow(self, farthest: int) -> None:
        near, far = self.bias.bank.T, -math.inf if self.bias.windowed else 0.0
        extent, d_rel = near.shape
        self.farthest = farthest
        beyond, after = farthest + 1 - extent, ALIGN + FEW_ROWS
        self.bank = mx.concatenate([mx.zeros((beyond, d_rel)), near, mx.zeros((after, d_rel))])
        self.mask = mx.concatenate([mx.full((beyond,), far), mx.zeros((extent,)), mx.full((after,), -math.inf)])
        mx.eval(self.bank, self.mask)

    def __call__(self, r: mx.array, position: int, view: KeyView, shape: tuple[int, ...]) -> mx.array:
        """The bias of relative features [L * heads, d_rel], rows first, as [kv_heads, heads per key, L, S]."""
        kv_heads, group, length, keys = shape
        heads, width = kv_heads * group, keys + length - 1
        farthest = position + length - 1 - view.first
        if farthest > self.farthest:
            self._grow(2 * farthest)
        part = slice(self.farthest - farthest, self.farthest - farthest + width)
        wide = r @ self.bank[part].T + self.mask[None, part]
        # Each row begins one column further left than the one before.
        return mx.as_strided(wide, shape, (group * width, width, heads * width - 1, 1), length - 1)


class FewRowDense:
    """`DenseMLP` for rows [L, H]."""

    def __init__(self, mlp: DenseMLP) -> None:
        self.gate_up, self.down, self.scale = few_rows(mlp.gate_up_proj), few_rows(mlp.down_proj), mlp.scale

    def __call__(self, x: mx.array) -> mx.array:
        gate, up = mx.split(self.gate_up(x), 2, axis=-1)
        return self.down(silu(gate) * up) * self.scale


class CPULayer:
    """Computes [1, L, H] -> [1, L, H], L <= `FEW_ROWS`, as `layer` does; weights are shared with it.

    Args:
        layer: one that `suits`.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        self.attn_norm, self.mlp_norm = Norm(layer.attn_norm[None], layer.eps), Norm(layer.mlp_norm[None], layer.eps)
        self.attn = FewRowAttention(layer.attn)
        self.mlp = FewRowDense(layer.mlp) if isinstance(layer.mlp, DenseMLP) else FewRowMoE(layer.mlp)
        self.attn_conv, self.mlp_conv = Conv(layer.attn_conv), Conv(layer.mlp_conv)

    def __call__(self, x: mx.array, cache: LayerCache) -> mx.array:
        """[1, L, H] -> [1, L, H]; keys and values join the cache."""
        x = x.squeeze(0)
        x = x + self.attn_conv(self.attn(self.attn_norm(x), cache), cache.attn_conv)
        return (x + self.mlp_conv(self.mlp(self.mlp_norm(x)), cache.mlp_conv))[None]


def suits(layer: DecoderLayer) -> bool:
    """Whether `CPULayer` computes this layer: float32 on the CPU, plain matrices, few experts."""
    if mx.default_device() != mx.cpu or layer.attn_norm.dtype != mx.float32:
        return False
    if isinstance(layer.mlp, MoE) and layer.mlp.bank is None:
        return False
    return all(isinstance(matrix, Dense) for matrix in (layer.attn.qkvr_proj, layer.attn.o_proj))

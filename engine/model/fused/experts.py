"""Experts for a few rows on the CPU: routed and shared ones in one bank, one product per row and expert.

`mx.gather_mm` multiplies row by row. With experts stored input by input OpenBLAS's kernel for one row reads them at the
memory's pace, and an expert that several rows chose comes from the cache from the second row on. That is faster than
one product of all rows with each expert in use: five rows choose about six of eight experts, and of those 30 pairs of a
row and an expert 10 count.
"""

from __future__ import annotations

import mlx.core as mx

from engine.model.elementary import silu
from engine.model.fused.products import FEW_ROWS
from engine.model.mlp import MoE

_ALWAYS = 1e6
"""More than any sigmoid and bias."""


class FewRowMoE:
    """What `MoE` computes, for a few rows; weights are shared with it.

    Args:
        mixture: with a bank.
    """

    def __init__(self, mixture: MoE) -> None:
        assert mixture.bank is not None
        self.gate_up, self.down = (part.weight.swapaxes(1, 2) for part in mixture.bank)
        self.router = mx.contiguous(mixture.router.T)
        self.scale = mixture.scale.reshape(1, 1)
        self.first = mixture.experts - mixture.top_k
        # Shared experts rank above all others, in their order, so that equal experts lie side by side.
        shared = mx.arange(1, mixture.shared + 1).astype(mx.float32) * _ALWAYS
        self.bias = mx.concatenate([mixture.router_bias, shared])[None]
        self.rows = mx.arange(FEW_ROWS, dtype=mx.uint32)[:, None]
        self.pairs = mx.arange(FEW_ROWS * (mixture.top_k + mixture.shared), dtype=mx.uint32)
        """The rows of a product for as many pairs; `mx.gather_mm` makes them anew when it is not given them."""
        self.one = mx.zeros_like(self.pairs)
        mx.eval(self.gate_up, self.down, self.router, self.scale, self.bias, self.rows, self.pairs, self.one)

    def route(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """[L, H] -> ids of the experts in play [L, k + S], shared ones last, and their weights.

        softmax(logsigmoid(z)) over the experts in play is sigmoid(z) divided by its sum over them.
        """
        scores = mx.sigmoid(x @ self.router)
        ids = mx.argsort(scores + self.bias, axis=-1)[:, self.first :]
        weights = mx.take_along_axis(scores, ids, axis=-1)
        return ids, weights * (self.scale / weights.sum(axis=-1, keepdims=True))

    def __call__(self, x: mx.array) -> mx.array:
        """[L, H] -> [L, H]."""
        return self.apply(x, *self.route(x))

    def apply(self, x: mx.array, ids: mx.array, weights: mx.array) -> mx.array:
        """Rows [L, H], each with n experts of the bank and their weights [L, n] -> [L, H]."""
        length, count = ids.shape
        if length == 1:
            return weights @ self.outputs(x, self.one[:count], ids.squeeze(0))
        # Ordered by expert, so that each is read from memory once and from the cache after that.
        ids, weights = ids.flatten(), weights.flatten()
        order = mx.argsort(ids)
        rows = order // count
        outputs = self.outputs(x, rows, ids[order])
        return mx.where(rows == self.rows[:length], weights[order], 0.0) @ outputs

    def outputs(self, x: mx.array, rows: mx.array, experts: mx.array) -> mx.array:
        """Rows [L, H], the row and the expert of each pair [P] -> [P, H]."""
        wide = mx.gather_mm(x[:, None], self.gate_up, lhs_indices=rows, rhs_indices=experts)
        gate, up = mx.split(wide, 2, axis=-1)
        pairs = self.pairs[: experts.shape[0]]
        return mx.gather_mm(silu(gate) * up, self.down, lhs_indices=pairs, rhs_indices=experts).squeeze(1)

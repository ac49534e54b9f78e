"""Routed experts for a few rows on the CPU: every expert in use is read once, by one product for all rows.

`mx.segmented_mm` multiplies ranges of the shared dimension: with the experts' matrices below each other, [E * in, out],
range e is expert e, and an expert that no row chose is an empty range. The choice thereby stays on the device; rows
that did not choose an expert give it weight 0.
"""

from __future__ import annotations

import mlx.core as mx

from engine.model.fused.products import few_rows
from engine.model.linear import Dense
from engine.model.mlp import MoE, RoutedExperts, silu

_ALWAYS = 1e6
"""More than any sigmoid and bias."""
_MOST_EXPERTS = 32
"""Every expert costs an empty product and a copy of the rows, in use or not."""


def fits(experts: RoutedExperts) -> bool:
    """Whether `FewRowMoE` can stand in for these experts."""
    matrices = (experts.gate_proj, experts.up_proj, experts.down_proj)
    return (
        experts.gate_scale is None
        and experts.out_scale is None
        and experts.gate_proj.shape[0] <= _MOST_EXPERTS
        and all(isinstance(m, Dense) and m.weight.dtype == mx.float32 for m in matrices)
    )


class FewRowMoE:
    """What `MoE` computes, for a few rows; weights are shared with it.

    Args:
        mixture: with experts that `fits`.
    """

    def __init__(self, mixture: MoE) -> None:
        experts = mixture.routed
        self.count, self.width, self.hidden = experts.gate_proj.shape
        self.top_k, self.shared = mixture.top_k, mixture.shared
        self.shared_gate_up, self.shared_down = few_rows(mixture.shared_gate_up), few_rows(mixture.shared_down)
        self.router = mx.contiguous(mixture.router.T)
        self.router_scale = mixture.scale
        self.gate, self.up, self.down = (_by_input(m) for m in (experts.gate_proj, experts.up_proj, experts.down_proj))
        self.bias = mx.concatenate([mixture.router_bias, mx.full((self.shared,), _ALWAYS)])
        self.ids = mx.arange(self.count + self.shared)
        experts_from = mx.arange(self.count).astype(mx.uint32)[:, None]
        self.whole = mx.concatenate(
            [(experts_from + end) * size for size in (self.hidden, self.width) for end in (0, 1)], axis=1
        ).astype(mx.uint32)
        """[E, 4]: begin and end of an expert's range in gate and up, and in down."""
        mx.eval(self.router, self.gate, self.up, self.down, self.bias, self.ids, self.whole)

    def route(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """[L, H] -> weights of all routed and shared experts [L, E + S], 0 where not chosen; who was chosen, alike.

        softmax(logsigmoid(z)) over the experts in play is sigmoid(z) divided by its sum over them.
        """
        scores = mx.sigmoid(x @ self.router)
        # The shared experts' bias puts them among the chosen ones in any case.
        first = self.count - self.top_k
        ids = mx.argpartition(scores + self.bias, first, axis=-1)[:, first:]
        chosen = (ids[..., None] == self.ids).any(axis=1)
        weights = scores * chosen
        return weights * (self.router_scale / weights.sum(axis=-1, keepdims=True)), chosen

    def ranges(self, chosen: mx.array) -> tuple[mx.array, mx.array]:
        """Ranges [E, 2] of the experts in use in gate and up, and in down."""
        used = chosen.reshape(-1) if chosen.shape[0] == 1 else chosen.any(axis=0)
        ranges = mx.where(used[: self.count, None], self.whole, 0)
        return ranges[:, :2], ranges[:, 2:]

    def __call__(self, x: mx.array) -> mx.array:
        """[L, H] -> [L, H]."""
        length = x.shape[0]
        weights, chosen = self.route(x)
        routed, shared = mx.split(weights, [self.count], axis=-1)
        wide, narrow = self.ranges(chosen)
        rows = mx.tile(x, (1, self.count))
        gate, up = mx.segmented_mm(rows, self.gate, wide), mx.segmented_mm(rows, self.up, wide)
        act = (silu(gate) * up * routed.T[..., None]).swapaxes(0, 1).reshape(length, -1)
        return self.share(x, shared) + mx.segmented_mm(act, self.down, narrow).sum(axis=0)

    def share(self, x: mx.array, weights: mx.array) -> mx.array:
        """The shared experts' sum [L, H], of rows [L, H] with weights [L, S]."""
        length = x.shape[0]
        gate, up = mx.split(self.shared_gate_up(x), 2, axis=-1)
        act = (silu(gate) * up).reshape(length, self.shared, -1) * weights[..., None]
        return self.shared_down(act.reshape(length, -1))


def _by_input(matrix: object) -> mx.array:
    """[E, out, in] -> [E * in, out]; no copy where `lay_out_experts` has been over the parameters."""
    assert isinstance(matrix, Dense)
    count, outputs, inputs = matrix.shape
    return mx.contiguous(matrix.weight.swapaxes(1, 2)).reshape(count * inputs, outputs)

"""The two kinds of MLP: a dense SwiGLU, and a mixture of routed experts with shared ones."""

from __future__ import annotations

from itertools import groupby

import mlx.core as mx

from engine.config import TextConfig
from engine.model.elementary import silu
from engine.model.linear import Matrix
from engine.model.params import Params, array, matrix, stacked
from engine.values import to_ints

_SORT_ROUTES = 64
"""From this many routes on, rows of one expert are computed together."""


class DenseMLP:
    """W_down(silu(W_gate x) * W_up x) * global_scale."""

    def __init__(self, params: Params, name: str) -> None:
        self.gate_up_proj, self.down_proj = (
            stacked(params, f"{name}.gate_up_proj"),
            matrix(params, f"{name}.down_proj"),
        )
        self.scale = array(params, f"{name}.global_scale")

    def __call__(self, x: mx.array, scale: mx.array | None = None) -> mx.array:
        """[1, L, H] -> [1, L, H]; `scale` is `self.scale` where a compiled function takes it as an input."""
        gate, up = mx.split(self.gate_up_proj(x), 2, axis=-1)
        return self.down_proj(silu(gate) * up) * (self.scale if scale is None else scale)


class MoE:
    """Top-k routed experts and always-on shared experts whose weights are normalised together.

    The router runs in float32. With logits z = W x over E routed and S shared experts, the k routed ones
    are chosen by sigmoid(z) + bias; the bias serves the choice alone. The weights are
    softmax(logsigmoid(z)) over the k + S in play, times route_scale and the layer's global scale.
    """

    def __init__(self, config: TextConfig, params: Params, name: str) -> None:
        self.experts, self.top_k, self.shared = config.num_experts, config.experts_per_token, config.num_shared_experts
        self.router = array(params, f"{name}.router")
        self.router_bias = array(params, f"{name}.router_bias")
        self.scale = array(params, f"{name}.router_scale") * config.route_scale
        self.routed = RoutedExperts(params, f"{name}.experts")
        self.shared_gate_up = stacked(params, f"{name}.shared.gate_up_proj")
        self.shared_down = matrix(params, f"{name}.shared.down_proj")

    def route(self, x: mx.array, scale: mx.array | None = None) -> tuple[mx.array, mx.array, mx.array]:
        """[R, H] -> expert ids [R, k], their weights [R, k], weights of the shared experts [R, S]; float32."""
        logits = x.astype(mx.float32) @ self.router.T
        routed = logits[:, : self.experts]
        choice = mx.sigmoid(routed) + self.router_bias
        ids = mx.argpartition(-choice, self.top_k - 1, axis=-1)[:, : self.top_k]
        z = mx.concatenate([mx.take_along_axis(routed, ids, axis=-1), logits[:, self.experts :]], axis=-1)
        log_sigmoid = -mx.logaddexp(mx.zeros_like(z), -z)
        weights = mx.softmax(log_sigmoid, axis=-1) * (self.scale if scale is None else scale)
        return ids, weights[:, : self.top_k], weights[:, self.top_k :]

    def __call__(self, x: mx.array, scale: mx.array | None = None) -> mx.array:
        """[1, L, H] -> [1, L, H]; `scale` is `self.scale` where a compiled function takes it as an input."""
        rows = x.reshape(-1, x.shape[-1])
        ids, weights, gammas = self.route(rows, scale)
        routed = self.routed(rows, ids, weights)
        gate, up = mx.split(self.shared_gate_up(rows), 2, axis=-1)
        act = silu(gate) * up
        gammas = mx.repeat(gammas, act.shape[-1] // self.shared, axis=-1).astype(x.dtype)
        return (routed + self.shared_down(act * gammas)).reshape(x.shape)


class RoutedExperts:
    """sum_k w_k * W_down,e(silu(W_gate,e x) * W_up,e x) over the experts e of each row.

    `gate_scale` [E] multiplies the gate's pre-activation and `out_scale` [E] the expert's output:
    the per-expert second scales of ModelOpt's NVFP4.
    """

    def __init__(self, params: Params, name: str) -> None:
        self.gate_proj, self.up_proj, self.down_proj = (
            matrix(params, f"{name}.{p}_proj") for p in ("gate", "up", "down")
        )
        self.gate_scale = array(params, f"{name}.gate_scale") if f"{name}.gate_scale" in params else None
        self.out_scale = array(params, f"{name}.out_scale") if f"{name}.out_scale" in params else None

    def __call__(self, x: mx.array, ids: mx.array, weights: mx.array) -> mx.array:
        """x [R, H], ids and float32 weights [R, k] -> [R, H]."""
        rows, k = ids.shape
        if self.out_scale is not None:
            weights = weights * self.out_scale[ids]
        if rows * k < _SORT_ROUTES:
            experts = ids.flatten()
            y = self._experts(mx.repeat(x, k, axis=0), experts)
        else:
            order = mx.argsort(ids.flatten())
            experts = ids.flatten()[order]
            y = self._experts(x[order // k], experts)[mx.argsort(order)]
        return (y.reshape(rows, k, -1) * weights[..., None].astype(x.dtype)).sum(axis=1)

    def _experts(self, x: mx.array, experts: mx.array) -> mx.array:
        gate, up = self._multiply(self.gate_proj, x, experts), self._multiply(self.up_proj, x, experts)
        if self.gate_scale is not None:
            gate = gate * self.gate_scale[experts][:, None].astype(x.dtype)
        return self._multiply(self.down_proj, silu(gate) * up, experts)

    @staticmethod
    def _multiply(m: Matrix, x: mx.array, experts: mx.array) -> mx.array:
        """Route r: [R, in] -> [R, out] with the matrix of experts[r]; the ids ascend when there are many."""
        if x.shape[0] < _SORT_ROUTES or mx.default_device() == mx.gpu:
            return m.gather(x[:, None], experts)[:, 0]
        # On the CPU one product per expert in use beats the gather kernel, which multiplies row by row.
        parts: list[mx.array] = []
        start = 0
        for expert, routes in groupby(to_ints(experts)):
            end = start + sum(1 for _ in routes)
            parts.append(m.expert(expert)(x[start:end]))
            start = end
        return mx.concatenate(parts)

"""The two kinds of MLP: a dense SwiGLU, and a mixture of routed experts with shared ones."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import mlx.core as mx

from engine.config import TextConfig
from engine.model.cuda.products import MOST_ROWS
from engine.model.device import on_cuda
from engine.model.elementary import silu
from engine.model.linear import MOST_ROUTES, Dense, Matrix, Projection
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

    @property
    def row_invariant(self) -> bool:
        """See `engine.model.linear.Dense.row_invariant`."""
        return self.gate_up_proj.row_invariant and self.down_proj.row_invariant

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
        self._score = Dense(self.router)
        self.router_bias = array(params, f"{name}.router_bias")
        self.scale = array(params, f"{name}.router_scale") * config.route_scale
        self.bank = _bank(params, name)
        if self.bank is not None:
            gate_up, down = self.bank
            routed, shared = slice(self.experts), slice(self.experts, None)
            self.routed_experts = RoutedExperts(gate_up.expert(routed), down.expert(routed))
            self.shared_experts = SharedExperts(gate_up.expert(shared), down.expert(shared), self.shared)
        else:
            gate_up, down = stacked(params, f"{name}.experts.gate_up_proj"), matrix(params, f"{name}.experts.down_proj")
            scales = (_optional(params, f"{name}.experts.{part}_scale") for part in ("gate", "out"))
            self.routed_experts = RoutedExperts(gate_up, down, *scales)
            gate_up, down = stacked(params, f"{name}.shared.gate_up_proj"), matrix(params, f"{name}.shared.down_proj")
            self.shared_experts = SharedExperts(gate_up, down, self.shared)

    @property
    def row_invariant(self) -> bool:
        """See `engine.model.linear.Dense.row_invariant`."""
        routed, shared = self.routed_experts, self.shared_experts
        # The kernel for plain experts multiplies route by route, each alike.
        packed = [m for m in (routed.gate_up_proj, routed.down_proj) if not isinstance(m, Dense)]
        matrices = [self._score, shared.gate_up_proj, shared.down_proj, *packed]
        fits = not packed or self.top_k * MOST_ROWS <= MOST_ROUTES
        return fits and all(matrix.row_invariant for matrix in matrices)

    def route(self, x: mx.array, scale: mx.array | None = None) -> tuple[mx.array, mx.array, mx.array]:
        """[R, H] -> expert ids [R, k], their weights [R, k], weights of the shared experts [R, S]; float32."""
        logits = self._score(x.astype(mx.float32))
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
        return (self.routed_experts(rows, ids, weights) + self.shared_experts(rows, gammas)).reshape(x.shape)


class Bank(NamedTuple):
    """Routed and shared experts of plain float32 behind one another, stored input by input."""

    gate_up: Dense
    """[E + S, 2 * I, H]"""
    down: Dense
    """[E + S, H, I]"""


class SharedExperts:
    """sum_s g_s * W_down,s(silu(W_gate,s x) * W_up,s x) over all experts.

    Args:
        gate_up: all in one [2 * S * I, H], the gates first, or each by itself [S, 2 * I, H].
        down: likewise [H, S * I] or [S, H, I].
        count: S.
    """

    def __init__(self, gate_up: Projection, down: Matrix, count: int) -> None:
        self.gate_up_proj, self.down_proj, self.count = gate_up, down, count

    def __call__(self, x: mx.array, weights: mx.array) -> mx.array:
        """x [R, H], float32 weights [R, S] -> [R, H]."""
        gate, up = mx.split(self.gate_up_proj(x), 2, axis=-1)
        act, weights = silu(gate) * up, weights.astype(x.dtype)
        if act.ndim == 2:
            return self.down_proj(act * mx.repeat(weights, act.shape[-1] // self.count, axis=-1))
        return self.down_proj(act * weights.T[..., None]).sum(axis=0)


class RoutedExperts:
    """sum_k w_k * W_down,e(silu(W_gate,e x) * W_up,e x) over the experts e of each row.

    Args:
        gate_up: [E, 2 * I, H], the gate first.
        down: [E, H, I].
        gate_scale: [E], multiplies the gate's pre-activation, as `out_scale` does the expert's output: the second
            scales of ModelOpt's NVFP4.
    """

    def __init__(
        self,
        gate_up: Projection,
        down: Matrix,
        gate_scale: mx.array | None = None,
        out_scale: mx.array | None = None,
    ) -> None:
        self.gate_up_proj, self.down_proj, self.gate_scale, self.out_scale = gate_up, down, gate_scale, out_scale

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
        gate, up = mx.split(self._multiply(self.gate_up_proj, x, experts), 2, axis=-1)
        if self.gate_scale is not None:
            gate = gate * self.gate_scale[experts][:, None].astype(x.dtype)
        return self._multiply(self.down_proj, silu(gate) * up, experts)

    @staticmethod
    def _multiply(m: Projection, x: mx.array, experts: mx.array) -> mx.array:
        """Route r: [R, in] -> [R, out] with the matrix of experts[r]; the ids ascend when there are many."""
        few = x.shape[0] < _SORT_ROUTES
        if few or mx.default_device() == mx.gpu:
            # Metal has a kernel for experts in order, without which a prompt is read route by route. On CUDA it is not
            # asked for: there a block of up to 16 rows must be computed as each row is alone.
            return m.gather(x[:, None], experts, ascending=not few and not on_cuda())[:, 0]
        # On the CPU one product per expert in use beats the gather kernel, which multiplies row by row.
        parts: list[mx.array] = []
        start = 0
        for expert, routes in groupby(to_ints(experts)):
            end = start + sum(1 for _ in routes)
            parts.append(m.expert(expert)(x[start:end]))
            start = end
        return mx.concatenate(parts)


def _bank(params: Params, name: str) -> Bank | None:
    if f"{name}.bank.down_proj" not in params:
        return None
    gate_up, down = (matrix(params, f"{name}.bank.{part}_proj") for part in ("gate_up", "down"))
    assert isinstance(gate_up, Dense)
    assert isinstance(down, Dense)
    return Bank(gate_up, down)


def _optional(params: Params, name: str) -> mx.array | None:
    return array(params, name) if name in params else None

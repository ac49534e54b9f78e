"""How long the pieces of a forward take, each alone, on the inputs that a real text gives them.

The pieces of all layers are evaluated one after the other, so that their weights come from memory as in a step. What a
step takes beyond its pieces is norms, convolutions, residuals, sampling, and waiting for the host, which describes the
step while the device is at it: the host's own time is counted beside the pieces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import mlx.core as mx

from engine.bench.cost import ATTENTION, DENSE, HEAD, OTHER, PROJECTIONS, ROUTED, ROUTER, SHARED
from engine.bench.machine import seconds
from engine.cache import LayerCache
from engine.decode.target import PREFILL_CHUNK, Target
from engine.model.backbone import Backbone
from engine.model.fused.choice import Layer
from engine.model.fused.cpu_layer import CPULayer
from engine.model.fused.experts import FewRowMoE
from engine.model.mlp import MoE
from engine.model.mtp import MTPHead
from engine.values import to_ints

HOST = "meanwhile the host (Python)"
"""Processor time that describing a step and queueing it takes."""


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """What a text gives one layer's branches: normed rows [1, L, H]; its choice of experts [L, k], None if dense."""

    attention: mx.array
    mlp: mx.array
    experts: list[list[int]] | None


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds."""

    step: float
    """A forward with its logits and their argmax, from the first call to the last value."""
    pieces: dict[str, float]
    """By name; they sum up to `step` where that is longer, `HOST` left out."""


def layer_inputs(backbone: Backbone, ids: Sequence[int]) -> list[LayerInputs]:
    """One pass over `ids` in the plain layers, keeping what goes into their branches."""
    cache = backbone.make_cache()
    x = backbone.embed(mx.array([list(ids)], mx.int32))
    found: list[LayerInputs] = []
    for layer, state in zip((layer.plain for layer in backbone.layers), cache.layers, strict=True):
        first = mx.fast.rms_norm(x, layer.attn_norm, layer.eps)
        x = x + layer.attn_conv(layer.attn(first, state), state.attn_conv)
        second = mx.fast.rms_norm(x, layer.mlp_norm, layer.eps)
        x = x + layer.mlp_conv(layer.mlp(second), state.mlp_conv)
        mx.eval(x, first, second)
        chosen = layer.mlp.route(second.squeeze(0))[0] if isinstance(layer.mlp, MoE) else None
        found.append(LayerInputs(first, second, None if chosen is None else [to_ints(row) for row in chosen]))
    return found


def experts_in_use(inputs: Sequence[LayerInputs], rows: int) -> float | None:
    """Distinct experts per layer that blocks of `rows` neighbouring rows use, on average; None without experts."""
    counts = [
        len({expert for row in chosen[low : low + rows] for expert in row})
        for chosen in (layer.experts for layer in inputs)
        if chosen is not None
        for low in range(len(chosen) - rows + 1)
    ]
    return fmean(counts) if counts else None


class Stopwatch:
    """Times forwards of a few rows after the first `context` ids of a text, and their pieces.

    Args:
        inputs: `layer_inputs` of the same text.
    """

    def __init__(
        self, backbone: Backbone, ids: Sequence[int], inputs: Sequence[LayerInputs], context: int, repeats: int
    ) -> None:
        self.backbone, self.ids, self.inputs = backbone, list(ids), inputs
        self.context, self.repeats = context, repeats
        self.target = Target(backbone)
        self.hidden = mx.zeros((1, 1, backbone.config.hidden_size))
        for row in self.target.prefill(self.ids[:context], PREFILL_CHUNK, _ignore):
            self.hidden = row

    def forward(self, rows: int) -> Timed:
        """A forward of the next `rows` rows."""
        step, host = self._step(rows, self.repeats + 1)
        layers = list(zip(self.backbone.layers, self.target.cache.layers, self.inputs, strict=True))
        part = slice(self.context, self.context + rows)

        mark = self.target.mark()

        def between() -> None:
            self.target.restore(mark)
            self._step(1, times=1)  # else the weights of a small piece would come from the processor's cache

        def timed(*pieces: Callable[[], mx.array]) -> float:
            return seconds(lambda: [piece() for piece in pieces], self.repeats, between) if pieces else 0.0

        branches = [_Branches(layer, state, own, part) for layer, state, own in layers]
        measured = {
            PROJECTIONS: timed(*(call for b in branches for call in (b.project_in, b.project_out))),
            DENSE: timed(*(b.mlp for b in branches if not b.sparse)),
            ROUTER: timed(*(b.route for b in branches if b.sparse)),
            SHARED: timed(*(b.shared for b in branches if b.sparse)),
        }
        whole_attention = timed(*(b.attend for b in branches))
        measured[ATTENTION] = max(0.0, whole_attention - measured[PROJECTIONS])
        whole_moe = timed(*(b.mlp for b in branches if b.sparse))
        measured[ROUTED] = max(0.0, whole_moe - measured[ROUTER] - measured[SHARED])
        normed = mx.random.normal((1, rows, self.backbone.config.hidden_size)).astype(self.backbone.dtype)
        mx.eval(normed)
        measured[HEAD] = timed(lambda: mx.argmax(self.backbone.project(normed), axis=-1))
        measured[OTHER] = max(0.0, step - sum(measured.values()))
        return Timed(step, {**measured, HOST: host})

    def _step(self, rows: int, times: int) -> tuple[float, float]:
        """Median seconds, and the host's among them, of all but the first of `times`; the caches stay as they are."""
        tokens = mx.array(self.ids[self.context : self.context + rows], mx.int32)
        mark = self.target.mark()
        taken: list[tuple[float, float]] = []
        for _ in range(times):
            began, busy = time.perf_counter(), time.thread_time()
            hidden = self.target.forward(tokens)
            best = mx.argmax(self.target.logits(hidden), axis=-1)
            mx.eval(best, hidden, self.target.cache.arrays)
            taken.append((time.perf_counter() - began, time.thread_time() - busy))
            self.target.restore(mark)
        counted = taken[1:] or taken
        return median(step for step, _ in counted), median(host for _, host in counted)

    def draft(self, head: MTPHead, depth: int, rows: int) -> float:
        """Seconds for one draft of block `depth`, which takes `rows` rows to its history; building included."""
        backbone, cache = self.backbone, head.make_caches()[depth]
        begin = self.context - rows
        tokens = mx.array([self.ids[begin : begin + rows]], mx.int32)
        hidden = mx.random.normal((1, self.context, backbone.config.hidden_size)).astype(backbone.dtype)
        history = mx.array([self.ids[: self.context]], mx.int32)
        mx.eval(head.advance(depth, history[:, :begin], hidden[:, :begin], cache), list(cache.arrays), hidden)
        mark, times = cache.mark(), list[float]()
        for _ in range(self.repeats + 1):
            began = time.perf_counter()
            out = head.advance(depth, tokens, hidden[:, begin:], cache)
            mx.eval(mx.argmax(head.logits(out[:, -1:]), axis=-1), out, list(cache.arrays))
            times.append(time.perf_counter() - began)
            cache.restore(mark)
        return median(times[1:])


class _Branches:
    """The parts of one layer as calls without arguments, in the form that computes a few rows here.

    A compiled layer has no parts of its own; those of the plain one stand in for them.
    """

    def __init__(self, layer: Layer, state: LayerCache, inputs: LayerInputs, part: slice) -> None:
        self._layer, self._state = layer, state
        self._attention, self._mlp = mx.contiguous(inputs.attention[:, part]), mx.contiguous(inputs.mlp[:, part])
        self._few = layer.few if isinstance(layer.few, CPULayer) else None
        if self._few is not None:
            self._attention, self._mlp = self._attention.squeeze(0), self._mlp.squeeze(0)
        self._rows = self._mlp.reshape(-1, self._mlp.shape[-1])
        attn, mlp = layer.plain.attn, layer.plain.mlp
        self.sparse = isinstance(mlp, MoE)
        self._out = mx.random.normal((*self._attention.shape[:-1], attn.q_width)).astype(self._mlp.dtype)
        mx.eval(self._attention, self._mlp, self._out)

    def attend(self) -> mx.array:
        computing = self._few or self._layer.plain
        return computing.attn(self._attention, self._state)

    def project_in(self) -> mx.array:
        return (self._layer.plain.attn.qkvr_proj if self._few is None else self._few.attn.qkvr)(self._attention)

    def project_out(self) -> mx.array:
        return (self._layer.plain.attn.o_proj if self._few is None else self._few.attn.o)(self._out)

    def mlp(self) -> mx.array:
        computing = self._few or self._layer.plain
        return computing.mlp(self._mlp)

    def route(self) -> mx.array:
        plain, few = self._layer.plain.mlp, None if self._few is None else self._few.mlp
        assert isinstance(plain, MoE)
        return few.route(self._rows)[1] if isinstance(few, FewRowMoE) else plain.route(self._rows)[1]

    def shared(self) -> mx.array:
        plain, few = self._layer.plain.mlp, None if self._few is None else self._few.mlp
        assert isinstance(plain, MoE)
        weights = mx.ones((self._rows.shape[0], plain.shared), self._rows.dtype)
        if isinstance(few, FewRowMoE):
            shared = mx.arange(plain.experts, plain.experts + plain.shared)
            return few.apply(self._rows, mx.broadcast_to(shared, weights.shape), weights)
        return plain.shared_experts(self._rows, weights)


def _ignore(hidden: mx.array, ids: Sequence[int]) -> None:
    """Stands in for a drafter."""

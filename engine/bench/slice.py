"""Speed of a few randomly initialised layers with the shapes of a large model.

Time depends on shapes, not on values, except in three respects: random drafts are practically never accepted, so a
round is measured as one in which every draft falls (its blocks then take back and repeat the most rows); random routers
spread over more experts than trained ones; and the best two of random logits are often nearly tied, so rounds that
decided a near-tie again are counted and left out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import mlx.core as mx

from engine.bench.cost import HEAD, PIECES, Work, draft_work, step_work, total
from engine.bench.machine import Machine, seconds
from engine.bench.pieces import HOST, LayerInputs, Stopwatch, experts_in_use, layer_inputs
from engine.bench.random_weights import random_parameters
from engine.bench.roofline import Line
from engine.bench.speed import Progress
from engine.config import ModelConfig
from engine.decode.loop import DecodeLoop, Step
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.decode.target import PREFILL_CHUNK, Target
from engine.errors import UserError
from engine.events import FinishReason
from engine.memory import available_memory, footprint_of_config
from engine.model.backbone import Backbone
from engine.model.draft_head import Subset
from engine.model.mtp import MTPHead
from engine.model.params import nbytes
from engine.weights.targets import backbone_targets, head_targets
from engine.wording import size

_WARM_UP = 2
_PLAIN_STEPS = 24
REDUCED_SHARE = 8
"""The reduced draft vocabulary is one of so many token ids."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A backbone and a head of random weights."""

    config: ModelConfig
    backbone: Backbone
    head: MTPHead
    backbone_bytes: int
    head_bytes: int
    seconds: float
    """To make them."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds of a fixed number of drafts, of which none or hardly any were accepted."""

    drafts: int
    line: Line
    """The whole round: drafting, verifying and everything around; the median."""
    counted: int
    near_ties: int
    """Rounds left out because a near-tie was decided again; counted only where there are no others."""
    accepted: int
    """Drafts accepted by chance in the counted rounds."""


@dataclass(frozen=True, slots=True)
class SliceTimes:
    context: int
    machine: Machine
    prefill_seconds: float
    plain: Line
    """Decoding token by token, each step queued before the last one's token is read."""
    forwards: tuple[Line, ...]
    """By rows, 1 first: embedding to argmax over the vocabulary."""
    drafts: tuple[Line, ...]
    """By depth: one row through a block and the LM head."""
    heads: tuple[tuple[int, Line], ...]
    """Token ids scored, and the LM head alone for one row."""
    rounds: tuple[Rounds, ...]
    breakdown: Mapping[int, tuple[Line, ...]]
    """Rows -> pieces of the forward."""
    weight_bytes: int
    peak_bytes: int

    @property
    def prefill_tps(self) -> float:
        return self.context / self.prefill_seconds

    @property
    def plain_tps(self) -> float:
        assert self.plain.seconds
        return 1.0 / self.plain.seconds

    def computed_tps(self, rounds: Rounds, acceptance: float) -> float:
        """Tokens per second that a round would give if every draft stood with this probability. Not measured."""
        assert rounds.line.seconds
        return tokens_per_round(rounds.drafts, acceptance) / rounds.line.seconds

    def to_json(self, acceptances: Sequence[float]) -> dict[str, Any]:
        return {
            "context": self.context,
            "weight_bytes": self.weight_bytes,
            "peak_bytes": self.peak_bytes,
            "bandwidth_bytes_per_s": round(self.machine.bandwidth),
            "bandwidth_by_way": {way: round(value) for way, value in self.machine.ways.items()},
            "matmul_ops_per_s": round(self.machine.rates[1]),
            "prefill_tps": self.prefill_tps,
            "plain": {**self.plain.to_json(), "tps": self.plain_tps},
            "forwards": [{"rows": i + 1, **line.to_json()} for i, line in enumerate(self.forwards)],
            "drafts": [{"depth": i + 1, **line.to_json()} for i, line in enumerate(self.drafts)],
            "lm_heads": [{"token_ids": ids, **line.to_json()} for ids, line in self.heads],
            "rounds": [
                {
                    **found.line.to_json(),
                    "drafts": found.drafts,
                    "counted": found.counted,
                    "near_ties": found.near_ties,
                    "accepted_by_chance": found.accepted,
                    "computed_tps_by_acceptance": {str(p): self.computed_tps(found, p) for p in acceptances},
                }
                for found in self.rounds
            ],
            "breakdown": {str(rows): [line.to_json() for line in lines] for rows, lines in self.breakdown.items()},
        }


def tokens_per_round(drafts: int, acceptance: float) -> float:
    """1 + p + ... + p^k: a round's tokens when every draft stands with probability p once those before it do."""
    return sum(acceptance**i for i in range(drafts + 1))


def make_slice(config: ModelConfig, dtype: mx.Dtype, *, context: int, seed: int, progress: Progress) -> Slice:
    """Random weights for a config. Raises `UserError` as `check_memory`."""
    assert config.mtp is not None
    check_memory(config, dtype, context)
    began = time.perf_counter()
    progress(0.0, "Making weights")
    targets = list(backbone_targets(config.text).values())
    params = random_parameters(targets, dtype, config.quantization, seed)
    backbone = Backbone(config, params, dtype)
    progress(0.1, "Making MTP blocks")
    blocks = random_parameters(head_targets(config.text, config.mtp).values(), dtype, config.quantization, seed + 1)
    head = MTPHead(backbone, config.mtp, blocks)
    return Slice(config, backbone, head, nbytes(params), nbytes(blocks), time.perf_counter() - began)


def check_memory(config: ModelConfig, dtype: mx.Dtype, context: int) -> None:
    """Raises UserError where the device has less memory than the weights of `make_slice` and a context will take."""
    name = "bf16" if dtype == mx.bfloat16 else "f32"
    needed, there = footprint_of_config(config, dtype=name, keep_quantized=True).total(context), free_memory()
    if there is not None and needed > there:
        raise UserError(
            f"This slice needs about {size(needed)} of memory; {size(there)} are free.",
            "Take fewer --layers, a smaller --context or --bits 4, or try the command with --tiny.",
        )


def free_memory() -> int | None:
    """Bytes that arrays can take on the default device; None where the system does not tell."""
    if mx.default_device() == mx.gpu:
        told: Mapping[str, Any] = mx.device_info()
        if isinstance(free := told.get("free_memory"), int):
            return free
    return available_memory()


def measure_slice(made: Slice, machine: Machine, *, context: int, repeats: int, progress: Progress) -> SliceTimes:
    """Everything after `context` random tokens."""
    backbone, head, depths = made.backbone, made.head, made.head.depths
    rng, most = random.Random(context), backbone.config.unpadded_vocab_size
    ids = [rng.randrange(most) for _ in range(context + depths + 1)]
    mx.reset_peak_memory()
    progress(0.2, "Prefill")
    _prefill(Target(backbone), ids[:context], None)
    prefill = _prefill(Target(backbone), ids[:context], None)
    progress(0.3, "Plain decoding")
    inputs = layer_inputs(backbone, ids)
    use = {rows: experts_in_use(inputs, rows) or 0.0 for rows in range(1, depths + 2)}
    plain = _line("plain", total(step_work(backbone, 1, context, use[1])), machine, _plain(backbone, ids[:context]))
    watch = Stopwatch(backbone, ids, inputs, context, repeats)
    forwards: list[Line] = []
    for rows, experts in use.items():
        progress(0.4 + 0.2 * rows / len(use), f"A forward of {rows} rows")
        work = total(step_work(backbone, rows, context, experts))
        taken = _forward(watch.target, ids[context : context + rows], repeats)
        forwards.append(_line("1 row" if rows == 1 else f"{rows} rows", work, machine, taken))
    drafts: list[Line] = []
    for depth in range(depths):
        progress(0.6 + 0.1 * depth / depths, f"Draft {depth + 1}")
        work = total(draft_work(head, depth, 1, context))
        drafts.append(_line(f"draft {depth + 1}", work, machine, watch.draft(head, depth, 1)))
    heads = _heads(head, machine, repeats)
    rounds: list[Rounds] = []
    loop = _loop(head, ids[:context], depths)
    for k in range(1, depths + 1):
        progress(0.7 + 0.2 * k / depths, f"Rounds of {k} drafts")
        # With every draft fallen, depth d takes in the d rows before its own again.
        work = total(step_work(backbone, k + 1, context, use[k + 1]))
        work = sum((total(draft_work(head, depth, depth + 1, context)) for depth in range(k)), work)
        rounds.append(_summed_up(k, _timed_rounds(loop, k, repeats), work, machine))
    progress(0.9, "Pieces")
    return SliceTimes(
        context=context,
        machine=machine,
        prefill_seconds=prefill,
        plain=plain,
        forwards=tuple(forwards),
        drafts=tuple(drafts),
        heads=heads,
        rounds=tuple(rounds),
        breakdown={rows: _pieces(watch, inputs, rows, context, machine) for rows in (1, depths + 1)},
        weight_bytes=made.backbone_bytes + made.head_bytes,
        peak_bytes=mx.get_peak_memory(),
    )


def _line(name: str, work: Work, machine: Machine, taken: float) -> Line:
    return Line(name, work, machine.seconds(work, 1), taken)


def _prefill(target: Target, ids: Sequence[int], drafter: StatefulDrafter | None) -> float:
    """Seconds; the drafter, if any, sees the rows."""
    began = time.perf_counter()
    for _ in target.prefill(ids, PREFILL_CHUNK, _ignore if drafter is None else drafter.extend):
        pass
    target.ids = list(ids)
    return time.perf_counter() - began


def _loop(head: MTPHead | Backbone, ids: Sequence[int], drafts: int) -> DecodeLoop:
    """A greedy decode loop that has read all of `ids` but the last."""
    backbone = head if isinstance(head, Backbone) else head.backbone
    target, drafter = Target(backbone), None if isinstance(head, Backbone) else StatefulDrafter(head)
    if drafter is not None:
        drafter.prepare(drafts)
    _prefill(target, ids[:-1], drafter)
    target.ids.append(ids[-1])
    sampler = Sampler(GenerationOptions(), backbone.config.unpadded_vocab_size, ids)
    return DecodeLoop(target, drafter, sampler, "trim", _never_stop)


def _plain(backbone: Backbone, ids: Sequence[int]) -> float:
    """Seconds per token of a run of plain steps."""
    loop = _loop(backbone, ids, 0)
    for _ in range(_WARM_UP):
        loop.plain(more=True)
    began = time.perf_counter()
    for step in range(_PLAIN_STEPS):
        loop.plain(more=step + 1 < _PLAIN_STEPS)
    return (time.perf_counter() - began) / _PLAIN_STEPS


def _forward(target: Target, tokens: Sequence[int], repeats: int) -> float:
    """Median seconds of a forward to the argmax, building included; leaves the target as it was."""
    mark, times = target.mark(), list[float]()
    for _ in range(_WARM_UP + repeats):
        began = time.perf_counter()
        hidden = target.forward(mx.array(list(tokens), mx.int32))
        mx.eval(mx.argmax(target.logits(hidden), axis=-1), target.cache.arrays)
        times.append(time.perf_counter() - began)
        target.restore(mark)
    return median(times[_WARM_UP:])


def _heads(head: MTPHead, machine: Machine, repeats: int) -> tuple[tuple[int, Line], ...]:
    """The LM head over all token ids, and over the reduced vocabulary of drafts."""
    backbone = head.backbone
    everything = backbone.config.unpadded_vocab_size
    reduced = max(1, everything // REDUCED_SHARE)
    row = mx.random.normal((1, 1, backbone.config.hidden_size)).astype(backbone.dtype)
    mx.eval(row)
    found: list[tuple[int, Line]] = []
    for count in (everything, reduced):
        head.reduce(None if count == everything else range(count))
        scored = head.scores.rows if isinstance(head.scores, Subset) else backbone.lm_head
        work = Work(scored.nbytes, 2.0 * scored.shape[0] * scored.shape[1])
        taken = seconds(lambda: [mx.argmax(head.logits(row), axis=-1)], repeats)
        found.append((count, _line(f"{HEAD}, {count} token ids", work, machine, taken)))
    head.reduce(None)
    return tuple(found)


def _timed_rounds(loop: DecodeLoop, drafts: int, repeats: int) -> list[tuple[float, Step]]:
    """Seconds and outcome of each round after the warm-up, in which depths that were idle catch up."""
    timed: list[tuple[float, Step]] = []
    for _ in range(_WARM_UP + 2 * repeats):
        began = time.perf_counter()
        step = loop.round(drafts)
        timed.append((time.perf_counter() - began, step))
    return timed[_WARM_UP:]


def _summed_up(drafts: int, timed: Sequence[tuple[float, Step]], work: Work, machine: Machine) -> Rounds:
    counted = [(taken, step) for taken, step in timed if not step.near_ties] or timed
    return Rounds(
        drafts=drafts,
        line=_line(f"round of {drafts}", work, machine, median(taken for taken, _ in counted)),
        counted=len(counted),
        near_ties=sum(1 for _, step in timed if step.near_ties),
        accepted=sum(step.accepted for _, step in counted),
    )


def _pieces(
    watch: Stopwatch, inputs: Sequence[LayerInputs], rows: int, context: int, machine: Machine
) -> tuple[Line, ...]:
    works = step_work(watch.backbone, rows, context, experts_in_use(inputs, rows) or 0.0)
    pieces = watch.forward(rows).pieces
    found = [_line(name, works[name], machine, pieces[name]) for name in PIECES if name in works]
    return (*found, Line(HOST, Work(), 0.0, pieces[HOST]))


def _ignore(hidden: mx.array, ids: Sequence[int]) -> None:
    """Stands in for a drafter."""


def _never_stop(token: int) -> FinishReason | None:
    """Random tokens end nothing."""

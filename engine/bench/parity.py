"""Whether greedy text is the same with and without the drafter, and if not, how close the choice was.

Where kernels round by the number of rows, a row inside a verify block and the same row alone differ in the last bits.
The decode loop takes decisions below `tie_margin` again from a forward of one row, so that texts should never differ;
a difference is explained when one of the two forwards had its best two logits closer than that margin. Where kernels
are row-invariant (`Backbone.row_invariant`) there is nothing to decide again; `compare_rows` shows that they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import mlx.core as mx

from engine.bench.contestants import AUTO, Case
from engine.bench.speed import Progress
from engine.decode.acceptance import tie_margin
from engine.decode.target import PREFILL_CHUNK, Target
from engine.events import Failed, Finished, RoundDone
from engine.model.backbone import Backbone
from engine.session import Engine, GenerationOptions, Session
from engine.values import to_floats

LED_IN = 32
"""Ids in front of rows that are compared: so many that no layer takes them for a few rows."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """What one target forward emitted; `drafted` is 0 for a plain one."""

    tokens: tuple[int, ...]
    drafted: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A generation step by step; the first step is the prefill's token."""

    steps: tuple[TracedStep, ...]
    near_ties: int

    @property
    def token_ids(self) -> list[int]:
        return [token for step in self.steps for token in step.tokens]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token in which a text left plain decoding's."""

    mode: str
    prompt: str
    position: int
    """Generated tokens before it."""
    plain_token: int | None
    """None where one text ended before the other."""
    token: int | None
    row_gap: float
    """Best logit less the second best in the forward of one row."""
    block_gap: float
    """The same in the verify block that decided."""
    margin: float
    """Below this a gap counts as a tie."""

    @property
    def explained(self) -> bool:
        return min(self.row_gap, self.block_gap) < self.margin


@dataclass(slots=True)
class ModeParity:
    """One way to draft over all prompts."""

    mode: str
    tokens: int = 0
    """Compared, the first difference of each prompt included."""
    near_ties: int = 0
    """Decisions taken again from a forward of one row."""
    differences: list[Difference] = field(default_factory=list[Difference])


@dataclass(frozen=True, slots=True)
class RowParity:
    """Rows of a text computed in blocks, against the same rows computed one by one."""

    rows: int
    """Per block."""
    compared: int
    logits: float
    """The greatest difference of two logits."""
    states: float
    """The greatest difference in keys, values and inputs of convolutions that the rows left behind."""

    @property
    def equal(self) -> bool:
        return self.logits == self.states == 0.0


@dataclass(frozen=True, slots=True)
class Parity:
    prompts: int
    plain_tokens: int
    modes: tuple[ModeParity, ...]
    rows: tuple[RowParity, ...] = ()

    @property
    def differences(self) -> list[Difference]:
        return [difference for mode in self.modes for difference in mode.differences]

    @property
    def unexplained(self) -> list[Difference]:
        return [difference for difference in self.differences if not difference.explained]

    def to_json(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "plain_tokens": self.plain_tokens,
            "unexplained": len(self.unexplained),
            "rows_in_blocks": [{**asdict(rows), "equal": rows.equal} for rows in self.rows],
            "modes": [
                {
                    "mode": mode.mode,
                    "tokens": mode.tokens,
                    "near_ties": mode.near_ties,
                    "differences": [{**asdict(d), "explained": d.explained} for d in mode.differences],
                }
                for mode in self.modes
            ],
        }


def compare(engine: Engine, cases: Iterable[Case], *, tokens: int, depths: Sequence[int], progress: Progress) -> Parity:
    """Generate greedily, plain, with every fixed number of drafts, and as a session drafts by itself.

    Args:
        cases: taken until plain decoding has generated `tokens` tokens.
        depths: drafts per round, each 1 to the head's depths.
    """
    plain = Session(engine, drafting=False)
    drafting = {f"mtp {k}": Session(engine, block_size=k + 1) for k in depths} | {AUTO: Session(engine)}
    modes = {name: ModeParity(name) for name in drafting}
    prompts = total = 0
    for case in cases:
        if total >= tokens:
            break
        prompts += 1
        progress(total / tokens, f"{case.name}: plain")
        reference = trace(plain, case)
        for name, session in drafting.items():
            progress(total / tokens, f"{case.name}: {name}")
            found, result = trace(session, case), modes[name]
            difference = first_difference(engine.backbone, case, reference, found, name)
            result.near_ties += found.near_ties
            result.tokens += len(reference.token_ids) if difference is None else difference.position + 1
            if difference is not None:
                result.differences.append(difference)
        total += len(reference.token_ids)
    return Parity(prompts, total, tuple(modes.values()))


def compare_rows(backbone: Backbone, ids: Sequence[int], blocks: Sequence[int]) -> tuple[RowParity, ...]:
    """Process a text row by row and in blocks of several sizes, after the same prefill of its first `LED_IN` ids.

    Args:
        ids: more than `LED_IN`.
        blocks: rows per block.
    """

    def run(rows: int) -> tuple[list[mx.array], list[mx.array]]:
        target, logits = Target(backbone), list[mx.array]()
        for _ in target.prefill(ids[:LED_IN], PREFILL_CHUNK, _ignore):
            pass
        for low in range(LED_IN, len(ids), rows):
            found = target.logits(target.forward(mx.array(list(ids[low : low + rows]), mx.int32)))
            mx.eval(found, target.cache.arrays)
            logits += list(found)
        states = [state for layer in target.cache.layers for state in layer.kv.rows() or ()]
        convs = (conv for layer in target.cache.layers for conv in layer.convs)
        return logits, states + [conv.state(conv.inputs.shape[-1]) for conv in convs if conv.inputs is not None]

    alone = run(1)
    found: list[RowParity] = []
    for rows in blocks:
        logits, states = (
            max(to_floats(mx.stack([_distance(a, b) for a, b in zip(one, other, strict=True)])))
            for one, other in zip(alone, run(rows), strict=True)
        )
        found.append(RowParity(rows, len(ids) - LED_IN, logits, states))
    return tuple(found)


def _distance(a: mx.array, b: mx.array) -> mx.array:
    # Windowed caches may hold a different number of rows that nobody looks at any more.
    common = min(a.shape[-2], b.shape[-2]) if a.ndim > 1 else None
    if common is not None:
        a, b = a[..., -common:, :], b[..., -common:, :]
    return mx.max(mx.abs(a.astype(mx.float32) - b.astype(mx.float32)))


def trace(session: Session, case: Case) -> Trace:
    """One greedy generation from an empty cache. Raises what it fails with."""
    options = GenerationOptions(max_tokens=case.max_tokens)
    session.reset()
    chats = session.engine.template is not None
    steps: list[TracedStep] = []
    for event in session.continue_ids(case.ids, options) if chats else session.complete(case.text, options):
        if isinstance(event, RoundDone):
            steps.append(TracedStep(event.token_ids, event.drafted))
        elif isinstance(event, Failed):
            raise event.error
        elif isinstance(event, Finished):
            return Trace(tuple(steps), event.generation.stats.near_ties)
    raise AssertionError("a generation ends with an event")


def first_difference(backbone: Backbone, case: Case, plain: Trace, other: Trace, mode: str) -> Difference | None:
    """Where `other` leaves `plain`, with the gaps of both forwards there; None when they are equal."""
    ours, theirs = plain.token_ids, other.token_ids
    if ours == theirs:
        return None
    position = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    alone, block = deciding_row(backbone, case.ids, plain, position), deciding_row(backbone, case.ids, other, position)
    return Difference(
        mode=mode,
        prompt=case.name,
        position=position,
        plain_token=ours[position] if position < len(ours) else None,
        token=theirs[position] if position < len(theirs) else None,
        row_gap=_gap(alone),
        block_gap=_gap(block),
        margin=tie_margin(to_floats(mx.max(mx.abs(alone), keepdims=True))[0], backbone.dtype),
    )


def deciding_row(backbone: Backbone, prompt: Sequence[int], steps: Trace, position: int) -> mx.array:
    """The logits [V] that chose generated token `position`, by repeating every forward of the trace up to it.

    Drafts that were rejected are unknown; anything stands for them, since no row sees a later one.
    """
    target = Target(backbone)
    hidden = mx.zeros((1, 1, 1))
    for row in target.prefill(prompt, PREFILL_CHUNK, _ignore):
        hidden = row
    pending = 0
    for number, step in enumerate(steps.steps):
        if number:
            block = [pending, *step.tokens[:-1]]
            block += [0] * (step.drafted + 1 - len(block))
            hidden = target.forward(mx.array(block, mx.int32))
            mx.eval(hidden, target.cache.arrays)
            target.trim(len(block) - len(step.tokens))
        if position < len(step.tokens):
            return target.logits(hidden)[position]
        position -= len(step.tokens)
        pending = step.tokens[-1]
    return target.logits(hidden)[-1]


def _ignore(hidden: mx.array, ids: Sequence[int]) -> None:
    """Stands in for a drafter."""


def _gap(logits: mx.array) -> float:
    best = to_floats(mx.sort(mx.topk(logits, 2)))
    return best[1] - best[0]

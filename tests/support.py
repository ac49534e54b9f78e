"""What tests of the engine share: the tiny checkpoint, scripted drafters, a driver, comparison of caches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import mlx.core as mx

from engine.cache import LayerCache
from engine.decode.drafter import Draft, Drafter
from engine.decode.loop import DecodeLoop, Rollback, Step
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.target import Target
from engine.events import FinishReason
from engine.loaded import Engine
from engine.model.mtp import MTPHead

DATA = Path(__file__).parent / "data"
TINY = DATA / "inkling-tiny"
TINY_VOCAB = 250
PROMPT = [11, 190, 7, 34, 201, 8, 8, 117, 64, 5, 90, 42, 150, 33, 208, 71, 19, 4, 66, 127, 240]


@cache
def tiny() -> Engine:
    """The tiny random checkpoint in float32: 6 layers, window 8, log scaling from position 12, 3 MTP blocks."""
    return Engine.load(TINY)


def tiny_head() -> MTPHead:
    head = tiny().head
    assert head is not None
    return head


@dataclass
class ScriptedDrafter:
    """Proposes `guess(position)` for each position after the committed ids."""

    guess: Callable[[int], int]
    max_drafts: int | None = None
    proposals: list[tuple[int, ...]] = field(default_factory=list)

    def prepare(self, drafts: int) -> None: ...

    def extend(self, hidden: mx.array, ids: Sequence[int]) -> None: ...

    def catch_up(self, ids: Sequence[int]) -> None: ...

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler) -> Draft:
        tokens = [self.guess(len(ids) + i) for i in range(count)]
        self.proposals.append(tuple(tokens))
        return Draft(mx.array(tokens, mx.int32), None)

    def hindsight(self, ids: Sequence[int], count: int) -> None: ...

    def look_ahead(self, hidden: mx.array, following: mx.array, last: mx.array, sampler: Sampler) -> None: ...

    def settle(self, accepted: int, *, ahead: bool = False) -> None: ...

    @property
    def arrays(self) -> list[mx.array]:
        return []

    def snapshot(self) -> None: ...

    def rewind(self, snapshot: None) -> None: ...

    def reset(self) -> None: ...


def scripted(reference: Sequence[int], share: float, seed: int = 0) -> ScriptedDrafter:
    """A drafter that guesses `reference` right with probability `share` per position."""
    rng = random.Random(seed)

    def guess(position: int) -> int:
        right = reference[position] if position < len(reference) else 5
        return right if rng.random() < share else (right + 1) % TINY_VOCAB

    return ScriptedDrafter(guess)


@dataclass
class Run:
    target: Target
    drafter: Drafter | None
    steps: list[Step]

    @property
    def ids(self) -> list[int]:
        return self.target.ids


def run(
    count: int,
    *,
    drafter: Drafter | None = None,
    drafts: Callable[[int], int] = lambda step: 0,
    prompt: Sequence[int] = PROMPT,
    rollback: Rollback = "trim",
    options: GenerationOptions | None = None,
    chunk: int = 512,
    engine: Engine | None = None,
    ahead: bool = True,
) -> Run:
    """Decode `count` tokens after `prompt`; step i drafts `drafts(i)` tokens, each round expecting another one."""
    engine = engine or tiny()
    target = Target(engine.backbone)
    left = count

    def stop(token: int) -> FinishReason | None:
        nonlocal left
        left -= 1
        return None if left else "length"

    sampler = Sampler(options or GenerationOptions(), engine.config.text.unpadded_vocab_size, prompt)
    loop = DecodeLoop(target, drafter, sampler, rollback, stop)
    observe = drafter.extend if drafter else lambda hidden, ids: None
    last_rows = list(target.prefill(list(prompt), chunk, observe))
    steps = [loop.first(target.logits(last_rows[-1]))]
    while steps[-1].finish is None:
        width = drafts(len(steps))
        if drafter is not None:
            drafter.prepare(width)
        steps.append(loop.round(width, more=ahead) if width else loop.plain())
    return Run(target, drafter, steps)


def prefilled(ids: Sequence[int], chunk: int = 512, engine: Engine | None = None) -> Target:
    """A target that processed `ids` without ever speculating."""
    target = Target((engine or tiny()).backbone)
    for _ in target.prefill(list(ids), chunk, lambda hidden, ids: None):
        pass
    return target


def layer_distance(a: LayerCache, b: LayerCache) -> float:
    """Largest difference between the states of two layers at the same position, over the rows both still need."""
    assert a.offset == b.offset
    distances = [0.0]
    rows_a, rows_b = a.kv.rows(), b.kv.rows()
    if rows_a is not None and rows_b is not None and a.offset > a.kv.base and b.offset > b.kv.base:
        needed = min(rows_a[0].shape[2], rows_b[0].shape[2])
        if a.kv.window is not None:
            needed = min(needed, a.kv.window)
            assert needed == min(a.kv.window, a.offset)
        for x, y in zip(rows_a, rows_b, strict=True):
            distances.append(mx.abs(x[:, :, -needed:] - y[:, :, -needed:]).max().item())
    for x, y in zip(a.convs, b.convs, strict=True):
        if x.inputs is None and y.inputs is None:
            continue
        channels = (x.inputs if x.inputs is not None else y.inputs).shape[-1]
        distances.append(mx.abs(x.state(channels) - y.state(channels)).max().item())
    return max(distances)


def cache_distance(a: Target, b: Target) -> float:
    """Largest difference between the caches of two targets that hold the same ids."""
    assert a.position == b.position
    return max(layer_distance(x, y) for x, y in zip(a.cache.layers, b.cache.layers, strict=True))

"""Compiles the kernels of an NVIDIA GPU while a checkpoint is loaded, instead of in the middle of the first answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx

from engine.decode.loop import DecodeLoop
from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.decode.target import PREFILL_CHUNK, Target
from engine.events import FinishReason
from engine.model.backbone import Backbone
from engine.model.device import on_cuda
from engine.model.fused.products import FEW_ROWS
from engine.model.mtp import MTPHead

MESSAGE = "Preparing the GPU, which takes minutes the first time"


def warm_up(backbone: Backbone, head: MTPHead | None, progress: Callable[[float, str], None]) -> None:
    """Take a step of each kind on a GPU with CUDA; nothing elsewhere.

    A kernel takes MLX 2 to 40 seconds to compile, and a checkpoint needs some twenty of them; afterwards they
    come from `engine.model.kernel_cache`. Left out is what few answers need: penalties, and sampling beyond the usual.

    Args:
        progress: called with the share done before each step.
    """
    steps = _steps(backbone, head) if on_cuda() else []
    for i, step in enumerate(steps):
        progress(i / len(steps), MESSAGE)
        step()


def _steps(backbone: Backbone, head: MTPHead | None) -> list[Callable[[], object]]:
    vocabulary = backbone.config.unpadded_vocab_size
    target, drafter = Target(backbone), None if head is None else StatefulDrafter(head)
    ids = [i % vocabulary for i in range(2 * FEW_ROWS)]  # so many that no layer takes them for a few rows

    def prefill() -> None:
        for hidden in target.prefill(ids, PREFILL_CHUNK, _ignore if drafter is None else drafter.extend):
            decoding(GenerationOptions()).first(target.logits(hidden))

    def decoding(options: GenerationOptions) -> DecodeLoop:
        return DecodeLoop(target, drafter, Sampler(options, vocabulary, ids), "trim", _never_stop)

    def step(options: GenerationOptions, drafts: int) -> Callable[[], object]:
        loop = decoding(options)
        return (lambda: loop.round(drafts)) if drafts else loop.plain

    def looking_back(options: GenerationOptions) -> Callable[[], object]:
        loop = decoding(options)
        return lambda: [loop.plain(hindsight=count) for count in (0, 0, 0, 2)]

    greedy, sampled = GenerationOptions(), GenerationOptions(temperature=1.0, top_p=0.95, seed=0)
    most = 0 if head is None else head.depths
    # Every number of drafts, as compiled layers are described anew for each number of rows.
    rounds = [*(step(greedy, drafts) for drafts in range(most + 1)), step(sampled, most)]
    return [prefill, *rounds, *(looking_back(options) for options in (greedy, sampled) if most)]


def _ignore(hidden: mx.array, ids: Sequence[int]) -> None:
    """Stands in for a drafter."""


def _never_stop(token: int) -> FinishReason | None:
    """Nothing of this is read."""

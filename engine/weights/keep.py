"""Whether packed matrices stay packed in memory."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import mlx.core as mx

from engine.model.device import on_cuda
from engine.weights.targets import Target

EXPANDED_ON_CUDA = 1 << 29
"""Bytes. Reading so little takes less of a step than launching kernels does, and packed matrices would save memory
alone: on an H200 the bundled demo decodes 4 % slower packed, 7 % with 4 drafts (`bench/results/README.md`)."""


def keeps_packed(asked: bool | None, targets: Iterable[Target], dtype: mx.Dtype) -> bool:
    """What was asked for; by itself, the CPU expands, as its quantized kernels are slow, and a GPU keeps what is large.

    Args:
        targets: the parameters of the backbone, or of the head.
        dtype: of expanded matrices.
    """
    if asked is not None:
        return asked
    if mx.default_device() != mx.gpu:
        return False
    expanded = sum(prod(target.shape) for target in targets if target.kind == "matrix") * dtype.size
    return not on_cuda() or expanded > EXPANDED_ON_CUDA

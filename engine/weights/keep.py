"""Whether packed matrices stay packed in memory."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import mlx.core as mx

from engine.model.device import on_cuda
from engine.weights.targets import Target

EXPANDED_ON_CUDA = 1 << 29
"""Bytes. Reading so little takes less of a step than launching kernels does, and plain products need none compiled: a
packed format takes 20 to 40 seconds on first use. (Bundled demo, H200: rounds of 4 drafts 297 tok/s against 232.)"""


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

"""A second CPU stream, for the half of a block's work that does not wait for the other.

One row is bound by memory, which one core nearly saturates; several rows are bound by arithmetic, which two cores do in
half the time. OpenBLAS's own threads would spin while they wait and stall beside a window (see `engine.blas`); streams
of MLX sleep.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

import mlx.core as mx

_LEAST_ROWS = 3
"""Below, handing over and back costs more than it saves."""


class Beside:
    """`with beside(rows):` runs what is inside on the second stream, where there is one and the rows are worth it.

    Streams belong to the thread that makes them.
    """

    def __init__(self) -> None:
        spare = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1
        self._stream = mx.new_stream(mx.cpu) if spare and mx.default_device() == mx.cpu else None

    def pays(self, rows: int) -> bool:
        """Whether there is a second stream that these rows are worth."""
        return self._stream is not None and rows >= _LEAST_ROWS

    def __call__(self, rows: int) -> AbstractContextManager[object]:
        return mx.stream(self._stream) if self._stream is not None and self.pays(rows) else nullcontext()

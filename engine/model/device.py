"""What kind of device computes, and what it needs around the computation."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import mlx.core as mx


def on_cuda() -> bool:
    """Whether MLX computes with CUDA, where many kernels are compiled when they are first used."""
    return mx.default_device() == mx.gpu and mx.cuda.is_available()


@contextmanager
def wired_memory() -> Generator[None]:
    """Keep what Metal works with resident, up to what the system recommends; nothing elsewhere.

    macOS otherwise takes memory of a large model away between two steps, and gives it back page by page. It is released
    at the end, so that an idle program leaves the machine to others.
    """
    if not mx.metal.is_available():
        yield
        return
    before = mx.set_wired_limit(cast("int", mx.device_info(mx.gpu)["max_recommended_working_set_size"]))
    try:
        yield
    finally:
        mx.synchronize()
        mx.set_wired_limit(before)

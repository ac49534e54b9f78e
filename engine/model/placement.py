"""Where a matrix lies in memory, which the CPU's kernels feel."""

from __future__ import annotations

import ctypes
from typing import Any, cast

import mlx.core as mx

CACHE_LINE = 64
"""Bytes of a cache line, and of the widest loads of OpenBLAS's kernels."""


def on_cache_line(x: mx.array) -> mx.array:
    """A copy of `x`, contiguous and evaluated, whose first value begins a cache line.

    On the CPU MLX keeps the size of an array in the eight bytes in front of it, so that no array begins a line, and
    every load of 64 bytes touches two of them. From memory that costs nothing; from the second-level cache a matrix is
    read half as fast.
    """
    room = mx.zeros((x.size + CACHE_LINE // x.itemsize,), x.dtype)
    mx.eval(room)
    start = -address(room) % CACHE_LINE // x.itemsize
    # Nothing else holds `room`, so that this writes into it.
    room[start : start + x.size] = x.flatten()
    placed = room[start : start + x.size].reshape(x.shape)
    mx.eval(placed)
    return placed


def address(x: mx.array) -> int:
    """Where the first value of an evaluated array lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memoryview(cast(Any, x))))

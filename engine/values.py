"""From evaluated arrays to Python numbers, with types that the stubs of mlx leave open."""

from __future__ import annotations

from typing import cast

import mlx.core as mx


def to_int(scalar: mx.array) -> int:
    """The value of an array with one integer element."""
    return cast("int", scalar.item())


def to_ints(vector: mx.array) -> list[int]:
    """An integer array [N] as a list."""
    return cast("list[int]", vector.tolist())


def to_floats(vector: mx.array) -> list[float]:
    """A floating-point array [N] as a list."""
    return cast("list[float]", vector.tolist())

"""Counts and sizes in messages."""

from __future__ import annotations


def counted(count: int, one: str, many: str) -> str:
    """A number with the noun that belongs to it."""
    return f"{count} {one if count == 1 else many}"


def matrices(count: int) -> str:
    return counted(count, "matrix", "matrices")


def byte_size(count: int) -> str:
    """A number of bytes in the largest decimal unit that leaves a figure before the point."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return counted(count, "byte", "bytes")

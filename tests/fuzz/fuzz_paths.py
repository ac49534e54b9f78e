"""Where targets keep files, and what is asked of every message."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from guard import scratch

from engine.errors import UserError


@cache
def folder() -> Path:
    """The targets' own, of this process."""
    return scratch()


def written(name: str, data: bytes) -> Path:
    """A file in it with these bytes."""
    path = folder() / name
    path.write_bytes(data)
    return path


def told(error: UserError) -> None:
    """A message has a cure and can be shown anywhere."""
    assert error.hint
    assert "\x1b" not in str(error)
    str(error).encode()

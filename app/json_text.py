"""JSON that others have made: people, programs, and the model in the arguments of a tool call."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, cast

MAX_DEPTH = 100
"""Nesting that is accepted in a file; far below what would exhaust the stack when the value is written again."""
FIELD_DEPTH = 64
"""Nesting of a value inside a file."""


def parse(text: str) -> object:
    """The value of a JSON text, such that it can be written as JSON again.

    Raises:
        ValueError: it is no JSON, holds a number that is not finite, or is nested too deeply.
    """
    try:
        value: object = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if deeper_than(value, MAX_DEPTH):
        raise ValueError("it is nested too deeply")
    return value


def writable(value: object, depth: int = FIELD_DEPTH) -> object:
    """The value as JSON can hold it: numbers that are not finite, and what is nested deeper, become None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return (
            {name: writable(item, depth - 1) for name, item in cast("Mapping[str, object]", value).items()}
            if depth
            else None
        )
    if isinstance(value, list | tuple):
        return [writable(item, depth - 1) for item in cast("Sequence[object]", value)] if depth else None
    return value


def deeper_than(value: object, depth: int) -> bool:
    """Whether objects and lists are nested in more than `depth` levels. Does not recurse."""
    level = _containers([value])
    while level and depth:
        level = _containers(item for container in level for item in container)
        depth -= 1
    return bool(level)


def _containers(values: Iterable[object]) -> list[Iterable[object]]:
    """What is in each of the objects and lists among the values."""
    inside: list[Iterable[object]] = []
    for value in values:
        if isinstance(value, dict):
            inside.append(cast("dict[str, object]", value).values())
        elif isinstance(value, list):
            inside.append(cast("list[object]", value))
    return inside


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")

"""The engine's figures as JSON objects and back.

The history keeps them as it got them; whoever shows them reads them through here, which also takes what an older or a
newer version, or an imported file, has written: what is missing or of another type becomes None, or the default that
the engine gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, fields
from typing import Any, cast

from engine.events import DraftStatus
from engine.stats import GenerationStats


def to_json(value: GenerationStats | DraftStatus) -> dict[str, Any]:
    """All fields by their names; tuples become lists."""
    return {
        name: list(cast("tuple[object, ...]", item)) if isinstance(item, tuple) else item
        for name, item in asdict(value).items()
    }


def stats_from_json(raw: Mapping[str, Any] | None) -> GenerationStats | None:
    """The statistics of an answer; None when there are none, or the counters are missing."""
    values = _read(fields(GenerationStats), raw)
    return None if values is None else GenerationStats(**values)


def draft_from_json(raw: Mapping[str, Any] | None) -> DraftStatus | None:
    """What was asked of the drafter and what ran; None when that is not known."""
    values = _read(fields(DraftStatus), raw)
    return None if values is None else DraftStatus(**values)


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _numbers(value: object) -> tuple[float, ...] | None:
    if not isinstance(value, list):
        return None
    numbers = [_number(item) for item in cast("list[object]", value)]
    return None if None in numbers else tuple(cast("list[float]", numbers))


def _integers(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    integers = [_integer(item) for item in cast("list[object]", value)]
    return None if None in integers else tuple(cast("list[int]", integers))


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


# By the annotation of a field, so that a figure the engine gains is read as well.
_READERS: dict[str, Callable[[object], object]] = {
    "bool": _boolean,
    "int": _integer,
    "float": _number,
    "str": _string,
    "tuple[float, ...]": _numbers,
    "tuple[int, ...]": _integers,
}


def _read(names: tuple[Field[Any], ...], raw: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    values: dict[str, Any] = {}
    for item in names:
        annotation = str(item.type)
        value = _READERS[annotation.removesuffix(" | None")](raw.get(item.name))
        if value is None and not annotation.endswith(" | None"):
            if item.default is MISSING:
                return None
            # Written before the engine had this figure.
            value = item.default
        values[item.name] = value
    return values

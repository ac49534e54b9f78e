"""Thinking effort: what users write, as the number that the prompt states."""

from __future__ import annotations

import math
from typing import Final

from engine.errors import PromptError

EFFORT_LEVELS: Final = {
    "none": 0.0,
    "minimal": 0.1,
    "low": 0.2,
    "medium": 0.7,
    "high": 0.9,
    "xhigh": 0.99,
    "max": 0.99,
}
MAX_EFFORT: Final = 0.99


def parse_effort(value: str | float) -> float:
    """The effort that a level's name or a number in [0, 0.99] stands for.

    Numbers are rounded to four decimals, since the model reads them as text.

    Raises:
        PromptError: neither a known name nor a number in range.
    """
    number = _number(value)
    if number is None or not 0 <= number <= MAX_EFFORT:
        raise PromptError(
            f"Unknown thinking effort {value!r}.",
            f"Use {', '.join(EFFORT_LEVELS)}, or a number from 0 to {MAX_EFFORT}.",
        )
    return round(number, 4)


def format_effort(effort: float) -> float | int:
    """The value a template prints: "0" for no effort, the shortest decimal form otherwise."""
    return effort or 0


def _number(value: str | float) -> float | None:
    if isinstance(value, str):
        name = value.strip().lower()
        if name in EFFORT_LEVELS:
            return EFFORT_LEVELS[name]
        try:
            value = float(name)
        except ValueError:
            return None
    elif isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) else None

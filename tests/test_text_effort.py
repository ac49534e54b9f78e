from __future__ import annotations

import pytest

from engine.errors import PromptError
from engine.text.effort import EFFORT_LEVELS, parse_effort


@pytest.mark.parametrize(
    ("value", "effort"),
    [
        ("none", 0.0),
        ("minimal", 0.1),
        ("low", 0.2),
        ("medium", 0.7),
        ("high", 0.9),
        ("xhigh", 0.99),
        (" MAX ", 0.99),
        ("0.35", 0.35),
        (0, 0.0),
        (0.99, 0.99),
        (0.1 + 0.2, 0.3),
    ],
)
def test_levels_and_numbers(value: str | float, effort: float) -> None:
    assert parse_effort(value) == effort


@pytest.mark.parametrize("value", ["", "extreme", "1", "-0.1", "nan", "inf", 1.0, 0.995, -1, float("nan"), True])
def test_anything_else_is_refused_with_the_accepted_values(value: str | float) -> None:
    with pytest.raises(PromptError) as raised:
        parse_effort(value)
    assert repr(value) in raised.value.title
    assert all(level in raised.value.hint for level in EFFORT_LEVELS)
    assert "0.99" in raised.value.hint

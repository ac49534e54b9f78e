"""From ids to what a reader sees, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from text_fixtures import inkling_tokenizer, marked

from engine.answer import Answer
from engine.events import FinishReason, TextDelta
from engine.text import markers as m


def answer(*, stops: Sequence[str] = (), channels: bool = False, limit: int | None = None, room: int = 99) -> Answer:
    tokenizer = inkling_tokenizer()
    stop_ids = tokenizer.eos_token_ids
    return Answer(tokenizer, stop_ids=stop_ids, stops=stops, max_tokens=limit, room=room, channels=channels)


def feed(made: Answer, *parts: str) -> FinishReason | None:
    """Push ids up to the one that ends the answer, as the decode loop does."""
    return next((reason for id_ in marked(*parts) if (reason := made(id_)) is not None), None)


@pytest.mark.parametrize("channels", [False, True])
def test_what_was_held_back_for_a_stop_string_that_never_came_is_shown_at_the_end(channels: bool) -> None:
    made = answer(stops=["xyz"], channels=channels)
    assert feed(made, *([m.CONTENT_TEXT] if channels else []), "a .xy") is None
    assert made.text == "a ."
    made.close()
    assert made.text == "a .xy"
    made.close()
    assert "".join(delta.text for delta in made.drain() if isinstance(delta, TextDelta)) == "a .xy"


def test_nothing_is_shown_from_a_stop_string_on() -> None:
    made = answer(stops=["xyz"])
    assert feed(made, "a .xyzx") == "stop"
    assert len(made.token_ids) == 6
    made.close()
    assert made.text == "a ."


def test_a_stop_string_that_the_end_completes_cuts_as_well() -> None:
    """A bare identifier is held back as a tool's name might be, until the answer is over."""
    made = answer(stops=["xyz"], channels=True)
    assert feed(made, m.CONTENT_TEXT, "axyz") is None
    made.close()
    assert made.text == "a"


def test_reasoning_is_not_searched_for_stop_strings() -> None:
    made = answer(stops=["xyz"], channels=True)
    assert feed(made, m.CONTENT_THINKING, "xyz.", m.END_MESSAGE, m.MESSAGE_MODEL, m.CONTENT_TEXT, "so xyz") == "stop"
    assert (made.reasoning, made.text) == ("xyz.", "so ")


@pytest.mark.parametrize(
    ("limit", "room", "reason", "count"),
    [(2, 99, "length", 2), (2, 2, "length", 2), (None, 3, "context", 3), (9, 9, "stop", 4), (4, 9, "stop", 4)],
)
def test_the_first_end_counts(limit: int | None, room: int, reason: str, count: int) -> None:
    made = answer(limit=limit, room=room)
    assert feed(made, "abc", m.END_SAMPLING, "more") == reason
    assert len(made.token_ids) == count

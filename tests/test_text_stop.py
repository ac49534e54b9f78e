from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import PromptError
from engine.text.stop import StopStrings

LETTERS = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text before the first stop string to be complete, read character by character."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@given(st.lists(LETTERS), STOPS)
def test_the_cut_does_not_depend_on_the_pieces(pieces: list[str], stops: list[str]) -> None:
    expected, expected_hit = cut("".join(pieces), stops)
    stream = StopStrings(stops)
    shown, hit = "", False
    for piece in pieces:
        text, hit = stream.push(piece)
        shown += text
        assert expected.startswith(shown)
        if hit:
            break
    assert (shown + stream.finish(), hit) == (expected, expected_hit)


@given(st.lists(LETTERS), STOPS)
def test_no_more_is_held_back_than_may_become_a_stop_string(pieces: list[str], stops: list[str]) -> None:
    stream = StopStrings(stops)
    shown = ""
    for piece in pieces:
        text, hit = stream.push(piece)
        if hit:
            return
        shown += text
    held = stream.finish()
    assert not held or any(stop.startswith(held) for stop in stops)


def test_a_stop_string_across_pieces_is_cut_exactly() -> None:
    stream = StopStrings(["\n\nUser:"])
    assert stream.push("Hello\n") == ("Hello", False)
    assert stream.push("\nUs") == ("", False)
    assert stream.push("er: hi") == ("", True)
    assert stream.push("more") == ("", True)
    assert stream.finish() == ""


def test_without_stop_strings_all_text_passes() -> None:
    assert StopStrings([]).push("text") == ("text", False)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(PromptError):
        StopStrings(["a", ""])

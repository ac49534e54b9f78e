"""Whatever the columns and pages of the history hold."""

from __future__ import annotations

from fuzz_history import CHANGES, PAGES, Change, history_rows
from hypothesis import given, settings


@settings(max_examples=150)
@given(CHANGES, PAGES)
def test_any_values_and_pages_are_read_or_told(changes: list[Change], pages: list[tuple[int, bytes]]) -> None:
    history_rows(changes, pages)

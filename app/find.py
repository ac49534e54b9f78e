"""Finding text in messages: without regard to case and accents, at positions as Qt counts them."""

from __future__ import annotations

import re

from app.store.search import fold, terms_pattern


def literal(text: str) -> re.Pattern[str] | None:
    """Finds what was typed, as it stands; None for nothing."""
    return re.compile(re.escape(fold(text))) if text else None


def terms(query: str) -> re.Pattern[str] | None:
    """Finds the words of a search over all chats; None for nothing."""
    return terms_pattern(query)


def places(text: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Start and end of each match in `text`, in UTF-16 units."""
    spans = [match.span() for match in pattern.finditer(fold(text)) if match.end() > match.start()]
    if not spans or text.isascii():
        return spans
    units = [0]
    for character in text:
        units.append(units[-1] + (2 if ord(character) > 0xFFFF else 1))
    return [(units[start], units[end]) for start, end in spans]

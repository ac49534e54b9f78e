"""Names for chats: derived from their first message, for copies, and for files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container

_LENGTH = 60
_MARKUP = re.compile(r"^[\s#>*\-+`|_~=]+|[\s*`_~|=]+$")
_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]+')
_DEVICES = {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}


def one_line(text: str) -> str:
    """The text with every run of white space, line breaks included, as one space."""
    return " ".join(text.split())


def derive_title(text: str) -> str:
    """The first line that says something, without Markdown's marks, cut at a word after about 60 characters.

    Empty only for text without a visible character.
    """
    # A long paste is not walked through for its title.
    lines = text[:10_000].splitlines()
    for line in lines:
        title = one_line(_MARKUP.sub("", line))
        if any(character.isalnum() for character in title):
            return _shortened(title)
    return _shortened(one_line(text[:10_000]))


def copy_title(title: str, taken: Container[str]) -> str:
    """A title for a duplicate: "Tides copy", then "Tides copy 2"."""
    base = re.sub(r" copy(?: \d+)?$", "", title)
    candidate = f"{base} copy"
    count = 1
    while candidate in taken:
        count += 1
        candidate = f"{base} copy {count}"
    return candidate


def suggested_name(title: str, suffix: str) -> str:
    """A file name for an export that every common file system takes, for example "Tide pools.md".

    Args:
        suffix: with its dot.
    """
    stem = unicodedata.normalize("NFC", _FORBIDDEN.sub(" ", title))
    stem = one_line(stem)[:_LENGTH].strip(" .")
    if not stem or stem.split(".")[0].lower() in _DEVICES:
        stem = f"Chat {stem}".rstrip()
    return stem + suffix


def _shortened(title: str) -> str:
    if len(title) <= _LENGTH:
        return title
    head = title[: _LENGTH - 1]
    word = head.rsplit(" ", 1)[0]
    # A single word without end, a URL for example, is cut inside.
    return (word if len(word) > _LENGTH // 2 else head).rstrip(" ,;:.-") + "…"

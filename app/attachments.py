"""Text files and long pastes as parts of a message: one string for the model, separate things for the eye."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import UserError

LARGEST = 16 * 1024 * 1024
"""Bytes of a file that can be attached; no context holds more."""
LONG_PASTE = 8_000
"""A paste of more characters than this becomes an attachment."""
_BLOCK = re.compile(r'<attachment name="([^"\n]*)">\n(.*?)\n</attachment>\n\n', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A named text."""

    name: str
    text: str

    @property
    def size(self) -> str:
        return size_text(len(self.text.encode(errors="replace")))


def size_text(count: int) -> str:
    """Bytes as people write them, powers of ten."""
    if count < 1000:
        return f"{count} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 1000 * scale:
            return f"{count / scale:.1f} {unit}" if count < 100 * scale else f"{count / scale:.0f} {unit}"
    return f"{count / 1e12:.1f} TB"


def read_attachment(path: Path) -> Attachment:
    """A text file to attach.

    Raises:
        UserError: it cannot be read, is no UTF-8 text, or is too large.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise UserError(
                f"{path.name} has {size_text(size)}; {size_text(LARGEST)} is the most.", "Attach a part of it."
            )
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path.name} cannot be read: {error.strerror}.", "Check that it is there and readable."
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    if "\0" in text or (data and not text):
        raise UserError(f"{path.name} is not a text file.", "Attach plain text in UTF-8.")
    return Attachment(path.name.replace('"', "'"), text)


def compose(text: str, attachments: Sequence[Attachment]) -> str:
    """The content of the message."""
    blocks = [f'<attachment name="{a.name}">\n{a.text}\n</attachment>\n\n' for a in attachments]
    return "".join(blocks) + text


def split(content: str) -> tuple[list[Attachment], str]:
    """The attachments at the head of a message and the text behind them."""
    found: list[Attachment] = []
    position = 0
    while match := _BLOCK.match(content, position):
        found.append(Attachment(match.group(1), match.group(2)))
        position = match.end()
    return found, content[position:]

"""A conversation as Markdown to be pasted elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from app.store.records import Message

_NAMES = {"user": "You", "assistant": "Inkling", "tool": "Tool", "system": "System"}


def as_markdown(title: str, messages: Iterable[Message]) -> str:
    """Title and messages under headings, without what the model thought."""
    parts = [f"# {title}"]
    said = [(message.role, message.content.strip()) for message in messages]
    parts += [f"## {_NAMES[role]}\n\n{text}" for role, text in said if text]
    return "\n\n".join(parts) + "\n"

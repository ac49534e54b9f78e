"""A chat as Markdown: the active path, to be read and edited by people, and back.

An HTML comment, which no viewer shows, stands above each message and tells the importer where it begins:
`<!-- inkstand:user 2026-01-31T12:00:00+00:00 -->`. Text that looks like one is escaped, so that content and reasoning
come back character by character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from app.store.errors import ImportFileError
from app.store.history import History
from app.store.records import Chat, Conversation, Message, Node, tool_calls_to_json
from app.store.titles import derive_title, one_line
from engine.messages import Role

_MARKER = re.compile(r"^<!-- inkstand:(prompt|system|user|assistant|tool|reasoning|answer)(?: (\S+))? -->\r?$")
_HEADINGS = {"user": "You", "assistant": "Inkling", "tool": "Tool", "system": "System"}
_HINT = "Choose a file that Inkstand exported, or put such a line above each message."
_MAX_TITLE = 1_000


def export_markdown(history: History, chat_id: int) -> str:
    """The active path of a chat."""
    chat = history.chats.get(chat_id)
    lines = [f"# {chat.display_title}", ""]
    if chat.system_prompt:
        lines += ["<!-- inkstand:prompt -->", "## System prompt", "", _escaped(chat.system_prompt), ""]
    for message in history.messages.path(chat_id):
        lines += _section(message)
    return "\n".join(lines)


def parse_markdown(text: str, now: float) -> Conversation:
    """The chat of a Markdown export.

    Args:
        now: time of the import, and of messages whose comment gives none.

    Raises:
        ImportFileError: no message is marked, or a part belongs to none.
    """
    lines = _lines(text)
    marks = [(i, mark) for i, line in enumerate(lines) if (mark := _MARKER.match(line))]
    ends = [i for i, _ in marks[1:]] + [len(lines)]
    prompt = ""
    messages: list[Message] = []
    for (i, mark), end in zip(marks, ends, strict=False):
        kind, body = mark[1], lines[i + 1 : end]
        if kind == "prompt":
            prompt = _text(body, ("## ", ""), ("",))
        elif kind in _HEADINGS:
            content = _text(body, ("## ", ""), ("",))
            messages.append(_message(len(messages) + 1, cast("Role", kind), content, _time(mark[2], now)))
        elif messages:
            messages[-1] = _with_part(messages[-1], kind, body)
        else:
            raise ImportFileError(f'Line {i + 1}: "{kind}" stands before the first message.', _HINT)
    if not messages:
        raise ImportFileError("No message was found: there is no line like <!-- inkstand:user -->.", _HINT)
    title = one_line(lines[0].removeprefix("# "))[:_MAX_TITLE] if lines[0].startswith("# ") else ""
    first = messages[0]
    chat = Chat(0, title or derive_title(first.content), False, first.created_at, now, prompt, {})
    return Conversation(chat, [Node(message, active=True) for message in messages])


def _section(message: Message) -> list[str]:
    when = datetime.fromtimestamp(message.created_at, UTC).isoformat()
    lines = [f"<!-- inkstand:{message.role} {when} -->", f"## {_HEADINGS[message.role]}", ""]
    if message.reasoning:
        lines += ["<!-- inkstand:reasoning -->", "<details><summary>Reasoning</summary>", ""]
        lines += [_escaped(message.reasoning), "", "</details>", "", "<!-- inkstand:answer -->", ""]
    calls = [json.dumps(call, ensure_ascii=True, indent=1) for call in tool_calls_to_json(message.tool_calls)]
    parts = ([message.content] if message.content or not calls else []) + [f"```json\n{call}\n```" for call in calls]
    return [*lines, _escaped("\n\n".join(parts)), ""]


def _with_part(message: Message, part: str, body: list[str]) -> Message:
    if part == "answer":
        return replace(message, content=_text(body, ("",), ("",)))
    return replace(message, reasoning=_text(body, ("<details>", ""), ("", "</details>", "")))


def _message(number: int, role: Role, content: str, created_at: float) -> Message:
    return Message(
        id=number,
        chat_id=0,
        parent_id=number - 1 or None,
        role=role,
        state="done",
        content=content,
        reasoning="",
        name=None,
        tool_calls=(),
        tool_call_id=None,
        stats=None,
        draft=None,
        finish_reason=None,
        error=None,
        created_at=created_at,
        model="",
        options={},
        reasoning_s=None,
        reasoning_tokens=None,
        siblings=(number,),
    )


def _text(body: list[str], head: Iterable[str], tail: Iterable[str]) -> str:
    """The lines without those that the export puts around them, as far as they are still there."""
    start, end = 0, len(body)
    for frame in head:
        if start < end and _is_frame(body[start], frame):
            start += 1
    for frame in tail:
        if start < end and _is_frame(body[end - 1], frame):
            end -= 1
    return _unescaped("\n".join(body[start:end]))


def _is_frame(line: str, frame: str) -> bool:
    return line.startswith(frame) if frame else not line


def _lines(text: str) -> list[str]:
    lines = text.removeprefix("\ufeff").split("\n")
    if any(line.endswith("\r") and _MARKER.match(line) for line in lines):
        # Inkstand's own comments end without a carriage return, so an editor has changed all line ends.
        lines = [line.removesuffix("\r") for line in lines]
    return lines


def _time(text: str | None, now: float) -> float:
    try:
        when = datetime.fromisoformat(text or "")
    except ValueError:
        return now
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, when.timestamp())


def _escaped(text: str) -> str:
    """Text in which no line can be taken for one of our comments: those that look like one get a backslash more."""
    return re.sub(r"^(<!-- \\*)(inkstand:)", r"\1\\\2", text, flags=re.MULTILINE)


def _unescaped(text: str) -> str:
    return re.sub(r"^(<!-- \\*)\\(inkstand:)", r"\1\2", text, flags=re.MULTILINE)

"""Conversations from JSON, in the form of OpenAI's chat API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from engine.errors import PromptError
from engine.messages import Message, Role, ToolCall

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def parse_messages(value: object) -> list[Message]:
    """The messages in a parsed JSON document: a list, or an object with the list under `messages`.

    A message has `role`, `content` (a text, or a list of text parts, which are joined by line breaks) and,
    depending on the role, `reasoning_content` (or `reasoning`), `tool_calls`, `name` and `tool_call_id`.
    The role `developer` becomes `system`; fields that the engine has no use for are ignored.

    Raises:
        PromptError: names the message by its place, counted from 1, the field, and what is expected there.
    """
    found = cast(dict[str, object], value).get("messages") if isinstance(value, dict) else value
    if not isinstance(found, list) or not found:
        raise PromptError(
            "The message file does not hold a list of messages.",
            'Write a JSON list such as [{"role": "user", "content": "Hi"}].',
        )
    messages: list[Message] = []
    call_ids: set[str] = set()
    for index, item in enumerate(cast(list[object], found)):
        message = _parse_message(index, item)
        call_ids |= {call.id for call in message.tool_calls if call.id is not None}
        if message.role == "tool" and message.name is None and message.tool_call_id not in call_ids:
            _refuse(index, "name", message.name, "the tool's name, or a tool_call_id that an earlier call has")
        messages.append(message)
    return messages


def _parse_message(index: int, item: object) -> Message:
    if not isinstance(item, dict):
        raise PromptError(f"Message {index + 1} is not a JSON object: {_show(item)}.", "Give it a role and a content.")
    fields = cast(dict[str, object], item)
    role = _ROLES.get(name) if isinstance(name := fields.get("role"), str) else None
    if role is None:
        _refuse(index, "role", fields.get("role"), f"one of {', '.join(_ROLES)}")
    reasoning = _optional_text(index, fields, "reasoning_content") or _optional_text(index, fields, "reasoning")
    calls = _parse_calls(index, fields.get("tool_calls"))
    if role != "assistant" and (reasoning or calls):
        field = "tool_calls" if calls else "reasoning_content"
        _refuse(index, field, fields.get(field), "nothing, since only assistant messages have it")
    content = _parse_content(index, fields.get("content"))
    if content is None and not (role == "assistant" and (reasoning or calls)):
        _refuse(index, "content", None, "a text")
    return Message(
        role=role,
        content=content,
        reasoning=reasoning,
        tool_calls=calls,
        name=_optional_text(index, fields, "name"),
        tool_call_id=_optional_text(index, fields, "tool_call_id"),
    )


def _parse_content(index: int, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        _refuse(index, "content", value, "a text")
    texts: list[str] = []
    for part in cast(list[object], value):
        fields: dict[str, object] = cast(dict[str, object], part) if isinstance(part, dict) else {}
        text = fields.get("text")
        if fields.get("type") != "text" or not isinstance(text, str):
            _refuse(index, "content", cast(object, part), 'text parts only, such as {"type": "text", "text": "Hi"}')
        texts.append(text)
    return "\n".join(texts)


def _parse_calls(index: int, value: object) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        _refuse(index, "tool_calls", value, "a list of calls")
    return tuple(_parse_call(index, f"tool_calls[{i}]", call) for i, call in enumerate(cast(list[object], value)))


def _parse_call(index: int, field: str, value: object) -> ToolCall:
    if not isinstance(value, dict):
        _refuse(index, field, value, 'an object such as {"function": {"name": "f", "arguments": {}}}')
    outer = cast(dict[str, object], value)
    inner = outer
    if "function" in outer:
        if not isinstance(outer["function"], dict):
            _refuse(index, f"{field}.function", outer["function"], "an object with name and arguments")
        inner = cast(dict[str, object], outer["function"])
    name, id_ = inner.get("name"), outer.get("id")
    if not isinstance(name, str) or not name:
        _refuse(index, f"{field}.name", name, "the tool's name")
    if id_ is not None and not isinstance(id_, str):
        _refuse(index, f"{field}.id", id_, "a text")
    arguments = parse_arguments(inner.get("arguments", {}))
    if arguments is None:
        _refuse(index, f"{field}.arguments", inner.get("arguments"), "a JSON object")
    return ToolCall(name, arguments, id_)


def parse_arguments(value: object) -> dict[str, Any] | None:
    """Arguments of a tool call as an object; they may be written as a text that holds one. None otherwise."""
    if isinstance(value, str):
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _optional_text(index: int, fields: Mapping[str, object], field: str) -> str | None:
    value = fields.get(field)
    if value is not None and not isinstance(value, str):
        _refuse(index, field, value, "a text")
    return value or None


def _refuse(index: int, field: str, value: object, expected: str) -> NoReturn:
    raise PromptError(f"Message {index + 1}: {field} is {_show(value)}.", f"It should be {expected}.")


def _show(value: object) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

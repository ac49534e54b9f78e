"""Reads a tool call out of the text that a model writes for it."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from engine.messages import ToolCall
from engine.text.message_json import parse_arguments

MAX_NAME: Final = 64
_NAME: Final = re.compile(rf"\s{{0,8}}[A-Za-z0-9_.-]{{0,{MAX_NAME}}}")
_TRAILING_NAME: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME}}}\Z")
_ARGUMENT_KEYS: Final = ("args", "arguments", "parameters")


def may_be_name(text: str) -> bool:
    """Whether `text` may be the name of a tool, or the beginning of one."""
    return _NAME.fullmatch(text) is not None


def trailing_name(text: str) -> str:
    """The identifier at the end of `text`, empty if there is none."""
    match = _TRAILING_NAME.search(text)
    return match[0] if match else ""


class JsonObjectReader:
    """Collects a text up to the end of the JSON object that it begins with.

    Only nesting and strings are followed here; whether the object is valid is for the JSON parser.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._broken = False

    @property
    def text(self) -> str:
        """Everything collected so far."""
        return "".join(self._parts)

    def append(self, text: str) -> None:
        """Add `text` without looking at it."""
        self._parts.append(text)

    def push(self, text: str) -> str | None:
        """Add `text`; when the object ends in it, what follows the object, otherwise None."""
        for i, char in enumerate(text):
            if self._broken:
                break
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._in_string = False
            elif char == "{":
                self._depth += 1
            elif self._depth == 0:
                self._broken = not char.isspace()
            elif char == '"':
                self._in_string = True
            elif char == "}":
                self._depth -= 1
                if self._depth == 0:
                    self._parts.append(text[: i + 1])
                    return text[i + 1 :]
        self._parts.append(text)
        return None


def read_call(text: str, name: str) -> ToolCall | None:
    """The call that a JSON text describes, None if it describes none.

    The object is `{"name": ..., "args": {...}}`. Its name wins over `name`, which was written before it. An
    object that has neither key is taken for the arguments themselves, if there is a name.
    """
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    fields = cast(dict[str, Any], value)
    own_name = fields.get("name")
    key = next((key for key in _ARGUMENT_KEYS if key in fields), None)
    if key is None and own_name is None:
        return ToolCall(name, fields) if name else None
    if own_name is not None and (not isinstance(own_name, str) or "<|" in own_name):
        return None
    chosen = own_name.strip() if own_name else name
    arguments = parse_arguments(fields[key]) if key else {}
    return ToolCall(chosen, arguments) if chosen and arguments is not None else None

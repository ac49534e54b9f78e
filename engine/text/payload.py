"""Keeps payloads from spelling control markers in a rendered prompt.

A template pastes messages between its own markers. So that the two can be told apart afterwards, a
sentinel that no payload holds is put into every place of a payload that could be part of a marker;
what still looks like a marker in the rendered text was written by the template.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, cast

from engine.errors import PromptError
from engine.messages import Message, ToolCall

_PRIVATE_USE: Final = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class PayloadShield:
    """Covers payloads before rendering and uncovers them in the result.

    In a covered text the sentinel follows every character that a marker begins with, and precedes every
    one that a marker ends with; for `<|...|>` that holds for the bars too. Hence no marker arises from
    payloads alone, across the joint of two, or from a payload and a template's characters around it,
    unless the template itself supplies the delimiters at both ends.
    """

    def __init__(self, markers: Collection[str], occupied: Iterable[str]) -> None:
        """Choose a sentinel that occurs in none of the `occupied` texts.

        Raises:
            PromptError: they hold every private-use character of Unicode.
        """
        used: set[str] = set()
        used.update(*occupied)
        candidates = map(chr, chain.from_iterable(_PRIVATE_USE))
        sentinel = next((char for char in candidates if char not in used), None)
        if sentinel is None:
            raise PromptError(
                "The conversation holds every private-use character of Unicode.", "Remove these characters."
            )
        self.sentinel: Final = sentinel
        self._after = {char for marker in markers for char in _delimiter(marker)}
        self._before = {char for marker in markers for char in _delimiter(marker[::-1])}

    def cover(self, text: str) -> str:
        """A payload as the template may see it."""
        for char in self._after:
            text = text.replace(char, char + self.sentinel)
        for char in self._before:
            text = text.replace(char, self.sentinel + char)
        return text

    def uncover(self, text: str) -> str:
        """What the payloads in a part of the rendered text said."""
        return text.replace(self.sentinel, "")


def _delimiter(marker: str) -> str:
    """The character that `marker` begins with, and the next if it is no part of a word."""
    return marker[:1] + ("" if marker[1:2].isalnum() else marker[1:2])


def message_texts(messages: Iterable[Message]) -> Iterator[str]:
    """Every text of a conversation that comes from outside."""
    for message in messages:
        yield from filter(None, (message.content, message.reasoning, message.name, message.tool_call_id))
        for call in message.tool_calls:
            yield from filter(None, (call.name, call.id))
            yield from json_texts(call.arguments)


def json_texts(value: object) -> Iterator[str]:
    """Every text in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast(Mapping[str, object], value).items():
            yield key
            yield from json_texts(item)
    elif isinstance(value, (list, tuple)):
        for item in cast(Sequence[object], value):
            yield from json_texts(item)


def map_message(message: Message, change: Callable[[str], str]) -> Message:
    """`message` with every text of it changed."""
    calls = tuple(
        ToolCall(change(call.name), map_json(call.arguments, change), _optional(call.id, change))
        for call in message.tool_calls
    )
    return replace(
        message,
        content=_optional(message.content, change),
        reasoning=_optional(message.reasoning, change),
        tool_calls=calls,
        name=_optional(message.name, change),
        tool_call_id=_optional(message.tool_call_id, change),
    )


def map_json(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every text in it changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        items = cast(Mapping[str, Any], value).items()
        return {change(key): map_json(item, change) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [map_json(item, change) for item in cast(Sequence[Any], value)]
    return value


def _optional(text: str | None, change: Callable[[str], str]) -> str | None:
    return None if text is None else change(text)

"""Targets that read what a model says, or a conversation."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache

from fuzz_paths import told
from text_fixtures import MARKERS, inkling_tokenizer

from engine.errors import UserError
from engine.events import TextDelta, ToolCallReady
from engine.text import parse_messages
from engine.text.channels import ChannelParser
from engine.text.tool_calls import JsonObjectReader, read_call


def channels(data: bytes) -> None:
    """Token ids, one a byte: the higher ones are markers, the first says whether a header is open."""
    tokenizer = inkling_tokenizer()
    text, markers = _alphabet()
    ids = [markers[byte % len(markers)] if byte >= 192 else text[byte] for byte in data]
    parser = ChannelParser(tokenizer, in_header=not data.startswith(b"\0"))
    events = [event for id_ in ids for event in parser.push(id_)] + parser.finish()
    shown = {"text": "", "reasoning": ""}
    for event in events:
        if isinstance(event, TextDelta):
            assert event.text
            shown[event.channel] += event.text
    assert shown == {"text": parser.text, "reasoning": parser.reasoning}
    assert tuple(event.call for event in events if isinstance(event, ToolCallReady)) == parser.tool_calls
    assert all(call.name for call in parser.tool_calls)
    assert not any(f"<|{name}" in text for text in shown.values() for name in ("message", "content", "end"))


@cache
def _alphabet() -> tuple[list[int], list[int]]:
    """Ids of all single bytes but angle brackets and bars, and of the markers."""
    tokenizer = inkling_tokenizer()
    bytes_ = [id_ for id_ in range(256) if not set(tokenizer.decode([id_])) & set("<|>")]
    markers = [id_ for name in MARKERS if (id_ := tokenizer.control_id(name)) is not None]
    return bytes_, markers


def tool_call(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    whole, reader = read_call(text, "tool"), JsonObjectReader()
    rest = None
    for i, char in enumerate(text):
        rest = reader.push(char)
        if rest is not None:
            assert rest == ""
            assert reader.text == text[: i + 1]
            break
    assert rest is not None or reader.text == text
    assert whole is None or whole.name


def messages(data: bytes) -> None:
    with suppress(ValueError, RecursionError):
        document = json.loads(data)
        try:
            parse_messages(document)
        except UserError as error:
            told(error)

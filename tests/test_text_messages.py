from __future__ import annotations

from typing import Any

import pytest

from engine.errors import PromptError
from engine.messages import Message, ToolCall
from engine.text import parse_messages

HI: dict[str, Any] = {"role": "user", "content": "Hi"}


def test_a_conversation_with_everything() -> None:
    document = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}], "name": "Ada"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Look it up.",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}],
            "refusal": None,
        },
        {"role": "tool", "content": "12", "tool_call_id": "1"},
        {"role": "assistant", "content": "Twelve.", "reasoning": "Easy.", "tool_calls": None},
    ]
    expected = [
        Message("system", "Be brief."),
        Message("user", "Hi\nthere", name="Ada"),
        Message("assistant", None, "Look it up.", (ToolCall("f", {"a": [1]}, "1"),)),
        Message("tool", "12", tool_call_id="1"),
        Message("assistant", "Twelve.", "Easy."),
    ]
    assert parse_messages(document) == expected
    assert parse_messages({"model": "x", "messages": document}) == expected


def test_calls_may_be_written_flat() -> None:
    calls = [{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]
    (message,) = parse_messages([{"role": "assistant", "tool_calls": calls}])
    assert message.tool_calls == (ToolCall("f", {"a": 1}), ToolCall("g", {}))


@pytest.mark.parametrize("document", [None, [], {}, {"messages": []}, "Hi", 3])
def test_a_document_without_messages_is_refused(document: object) -> None:
    with pytest.raises(PromptError, match="list of messages") as raised:
        parse_messages(document)
    assert raised.value.hint


def call(**fields: object) -> dict[str, object]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}} | fields}]}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Hi", "is not a JSON object"),
        ({"content": "Hi"}, "role is missing"),
        ({"role": "robot", "content": "Hi"}, "role is 'robot'"),
        ({"role": ["user"], "content": "Hi"}, "role is"),
        ({"role": "user"}, "content is missing"),
        ({"role": "user", "content": None}, "content is missing"),
        ({"role": "assistant"}, "content is missing"),
        ({"role": "user", "content": 3}, "content is 3"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "content is"),
        ({"role": "user", "content": "Hi", "reasoning_content": "Hm"}, "reasoning_content is 'Hm'"),
        ({"role": "user", "content": "Hi", "tool_calls": [{"name": "f"}]}, "tool_calls is"),
        ({"role": "user", "content": "Hi", "name": 3}, "name is 3"),
        ({"role": "assistant", "content": "Hi", "reasoning": {}}, "reasoning is"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls is"),
        ({"role": "assistant", "tool_calls": ["f"]}, r"tool_calls\[0\] is 'f'"),
        ({"role": "assistant", "tool_calls": [{"function": "f"}]}, r"tool_calls\[0\]\.function is 'f'"),
        ({"role": "assistant", "tool_calls": [{"id": 3, "name": "f"}]}, r"tool_calls\[0\]\.id is 3"),
        (call(name=""), r"tool_calls\[0\]\.name is ''"),
        (call(arguments="{"), r"tool_calls\[0\]\.arguments is '{'"),
        (call(arguments="[" * 100_000), r"tool_calls\[0\]\.arguments is "),
        (call(arguments=[1]), r"tool_calls\[0\]\.arguments is \[1\]"),
        ({"role": "tool", "content": "12"}, "name is missing"),
        ({"role": "tool", "content": "12", "tool_call_id": "unknown"}, "name is missing"),
        ({"role": "tool", "tool_call_id": "1", "name": "f"}, "content is missing"),
    ],
)
def test_a_mistake_is_named_with_its_message_and_field(message: object, field: str) -> None:
    with pytest.raises(PromptError, match=rf"^Message 2:? .*{field}|^Message 2 {field}") as raised:
        parse_messages([HI, message])
    assert len(str(raised.value)) < 250
    assert raised.value.hint

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from text_fixtures import DEMO, demo_template, inkling_template

from engine.errors import TemplateError
from engine.messages import Message, ToolCall
from engine.text.template import ChatTemplate

HI = [Message("user", "Hi")]
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def render(source: str, messages: list[Message] = HI, effort: float = 0.9, **options: Any) -> str:
    return ChatTemplate(source, Path("chat_template.jinja"), **options).render(messages, effort)


def test_the_demo_template() -> None:
    assert demo_template().render([Message("system", "Be brief."), *HI], 0.9) == (
        "<|message_system|><|content_text|>Be brief.<|end_message|>"
        "<|message_system|><|content_text|>Thinking effort level: 0.9<|end_message|>"
        "<|message_user|><|content_text|>Hi<|end_message|><|message_model|>"
    )


@pytest.mark.parametrize(
    ("effort", "printed"), [(0.0, "0"), (0.1, "0.1"), (0.7, "0.7"), (0.99, "0.99"), (0.25, "0.25")]
)
def test_effort_is_printed_as_a_number(effort: float, printed: str) -> None:
    for template in (demo_template(), inkling_template()):
        assert f"Thinking effort level: {printed}<|end_message|>" in template.render(HI, effort)


def test_reasoning_calls_and_results() -> None:
    call = ToolCall("get_weather", {"unit": "°C", "city": "<Zürich>"}, id="1")
    messages = [
        *HI,
        Message("assistant", None, reasoning="Look it up.", tool_calls=(call,)),
        Message("tool", "12", tool_call_id="1"),
    ]
    assert inkling_template().render(messages, 0.2, [WEATHER]) == (
        '<|message_system|>tool_declare<|content_xml|>[{"description":"","name":"get_weather","parameters":'
        '{"properties":{"city":{"type":"string"}},"type":"object"},"type":"function"}]<|end_message|>'
        "<|message_system|><|content_text|>Thinking effort level: 0.2<|end_message|>"
        "<|message_user|><|content_text|>Hi<|end_message|>"
        "<|message_model|><|content_thinking|>Look it up.<|end_message|>"
        "<|message_model|>get_weather<|content_invoke_tool_json|>"
        '{"name":"get_weather","args":{"city":"<Zürich>","unit":"°C"}}<|end_message|><|content_model_end_sampling|>'
        "<|message_tool|>get_weather<|content_text|>12<|end_message|><|message_model|>"
    )


def test_a_result_is_named_after_its_call_however_long_ago_that_was() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.name or '-' }} {% endfor %}", Path("t.jinja"))
    messages = [
        Message("assistant", None, tool_calls=(ToolCall("first", {}, id="1"), ToolCall("none", {}))),
        Message("assistant", None, tool_calls=(ToolCall("second", {}, id="2"),)),
        Message("tool", "", tool_call_id="1"),
        Message("tool", "", tool_call_id="2"),
        Message("tool", "", tool_call_id="2", name="own"),
        Message("tool", "", tool_call_id="3"),
    ]
    assert template.render(messages, 0.9) == "- - first second own - "


def test_an_empty_text_beside_reasoning_is_not_rendered_as_a_message() -> None:
    rendered = demo_template().render([*HI, Message("assistant", "", reasoning="Hm.")], 0.9)
    assert rendered.endswith("<|content_thinking|>Hm.<|end_message|><|content_model_end_sampling|><|message_model|>")


def test_blocks_leave_no_blank_lines_and_loop_controls_work() -> None:
    source = """
    {% for m in messages %}
        {% if m.role == 'system' %}{% continue %}{% endif %}
{{ m.content }}
        {% generation %}
!
        {% endgeneration %}
    {% endfor %}
"""
    assert render(source, [Message("system", "no"), *HI]) == "\nHi\n!\n"


def test_helpers_of_published_templates() -> None:
    assert render("{{ {'a': '<ü>'} | tojson }}") == '{"a": "<ü>"}'
    assert render("{{ [1] | tojson(indent=2) }}") == "[\n  1\n]"
    assert render("{{ strftime_now('%d %b') }}", now=lambda: datetime(2026, 11, 30)) == "30 Nov"  # noqa: DTZ001
    assert render("{{ bos_token }}{{ nothing }}", special_tokens={"bos_token": "<s>"}) == "<s>"
    assert render("{{ tools is none }} {{ add_generation_prompt }}") == "True True"
    assert (
        render("{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}")
        == "3"
    )
    assert render("{{ messages | map(attribute='content') | join(', ') }}", HI * 2) == "Hi, Hi"
    assert render("{{ messages[0].content.replace('H', 'h').split('i')[0] ~ 1 }}") == "h1"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__ }}",
        "{{ messages[0]['content'].__class__.__mro__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ cycler.__init__ }}",
        "{{ lipsum() }}",
        "{% include '/etc/passwd' %}",
        "{% import '/etc/passwd' as p %}",
        "{{ (1).to_bytes(100000000) }}",
    ],
)
def test_a_template_reaches_nothing_but_the_conversation(source: str) -> None:
    with suppress(TemplateError):  # raised where it goes on with what it did not get
        assert render(source) == ""


def test_what_a_template_raises_is_shown_with_file_and_line() -> None:
    with pytest.raises(TemplateError) as raised:
        render("{{ 1 }}\n{{ raise_exception('Only user messages, please.') }}")
    assert "chat_template.jinja, line 2" in raised.value.title
    assert "Only user messages, please." in raised.value.title
    assert raised.value.hint


@pytest.mark.parametrize("source", ["{{ 1 / 0 }}", "{{ missing.field }}", "{{ 'a' + 1 }}", "{{ messages[9].content }}"])
def test_a_template_that_fails_is_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError, match=r"chat_template\.jinja, line 1: the chat template failed: .+"):
        render(source)


def test_a_syntax_error_is_shown_with_file_and_line() -> None:
    with pytest.raises(TemplateError, match=r"chat_template\.jinja, line 2.*syntax error"):
        render("ok\n{% for %}")


def test_nesting_that_the_compiler_cannot_take_is_a_template_error() -> None:
    with pytest.raises(TemplateError):
        render("{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}")


def test_the_template_of_a_directory(tmp_path: Path) -> None:
    assert ChatTemplate.from_directory(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"bos_token": {"content": "<s>"}, "chat_template": "{{ bos_token }}config"}))
    template = ChatTemplate.from_directory(tmp_path)
    assert template is not None
    assert template.render(HI, 0.9) == "<s>config"
    named = [{"name": "rag", "template": "rag"}, {"name": "default", "template": "default"}]
    config.write_text(json.dumps({"chat_template": named}))
    template = ChatTemplate.from_directory(tmp_path)
    assert template is not None
    assert template.render(HI, 0.9) == "default"
    (tmp_path / "chat_template.jinja").write_text("file")
    template = ChatTemplate.from_directory(tmp_path)
    assert template is not None
    assert template.render(HI, 0.9) == "file"
    assert template.path == tmp_path / "chat_template.jinja"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("chat_template.jinja", b"\xff"),
        ("chat_template.jinja", b"{% if %}"),
        ("chat_template.jinja", b" " * 1_000_001),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", b'{"chat_template": 3}'),
    ],
)
def test_an_unreadable_template_is_named_with_its_cure(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TemplateError) as raised:
        ChatTemplate.from_directory(tmp_path)
    assert str(tmp_path / name) in raised.value.title
    assert raised.value.hint


def test_a_directory_in_place_of_the_template_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").mkdir()
    with pytest.raises(TemplateError, match="cannot be read"):
        ChatTemplate.from_directory(tmp_path)


def test_the_demo_has_a_template() -> None:
    assert ChatTemplate.from_directory(DEMO) is not None

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_fixtures import DATA, DEMO, MARKERS, TINY, demo_tokenizer, inkling_tokenizer, marked

from engine.events import TextDelta, ToolCallReady
from engine.messages import ToolCall
from engine.text import markers as m
from engine.text.channels import ChannelParser, ParserEvent
from engine.text.tokenizer import Tokenizer

CALL = '{"name":"get_weather","args":{"city":"Zürich"}}'
WEATHER = ToolCall("get_weather", {"city": "Zürich"})


def parse(ids: Iterable[int], parser: ChannelParser | None = None) -> tuple[ChannelParser, list[ParserEvent]]:
    parser = parser or ChannelParser(inkling_tokenizer())
    events = [event for id_ in ids for event in parser.push(id_)]
    return parser, events + parser.finish()


def read(*parts: str) -> tuple[str, str, tuple[ToolCall, ...]]:
    parser, events = parse(marked(*parts))
    shown = {"text": "", "reasoning": "", "tool": ""}
    for event in events:
        if isinstance(event, TextDelta):
            shown[event.channel] += event.text
    assert (shown["text"], shown["reasoning"]) == (parser.text, parser.reasoning)
    assert tuple(event.call for event in events if isinstance(event, ToolCallReady)) == parser.tool_calls
    return parser.reasoning, parser.text, parser.tool_calls


def test_reasoning_then_answer() -> None:
    assert read(
        m.CONTENT_THINKING, "Weigh it up.", m.END_MESSAGE,
        m.MESSAGE_MODEL, m.CONTENT_TEXT, "Café, 日本語, 🙂.", m.END_MESSAGE, m.END_SAMPLING,
    ) == ("Weigh it up.", "Café, 日本語, 🙂.", ())  # fmt: skip


def test_an_answer_of_the_demo() -> None:
    case = json.loads((DATA / "demo_prompts.json").read_text(encoding="utf-8"))[1]
    parser, _ = parse(case["greedy_ids"], ChannelParser(Tokenizer.from_directory(DEMO, [8316])))
    assert parser.reasoning.startswith("The user wants to know: Why is the sky blue?")
    assert parser.text.startswith("Sunlight contains all colors.")
    assert parser.text.endswith("every part of the sky.")


@pytest.mark.parametrize("ending", [(m.END_MESSAGE, m.END_SAMPLING), (m.END_SAMPLING,), ()])
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ((m.CONTENT_TEXT, "Yes, it is."), ("", "Yes, it is.", ())),
        ((m.CONTENT_TEXT, "Yes"), ("", "Yes", ())),
        ((m.CONTENT_TEXT,), ("", "", ())),
        (("Yes, it is.",), ("", "Yes, it is.", ())),
        (("Yes",), ("", "Yes", ())),
        ((m.CONTENT_THINKING, "Hm"), ("Hm", "", ())),
        (("get_weather", m.CONTENT_TOOL_JSON, CALL), ("", "", (WEATHER,))),
        ((m.CONTENT_TOOL_JSON, CALL), ("", "", (WEATHER,))),
        ((m.CONTENT_TEXT, "get_weather", m.CONTENT_TOOL_JSON, CALL), ("", "", (WEATHER,))),
        ((m.MESSAGE_MODEL, m.CONTENT_TEXT, "Yes."), ("", "Yes.", ())),
        ((m.END_MESSAGE, m.MESSAGE_MODEL, m.CONTENT_TEXT, "Yes."), ("", "Yes.", ())),
        (("<|content_xml|>", "<a/>"), ("", "<a/>", ())),
        (("<|unused_7|>", m.CONTENT_TEXT, "Yes."), ("", "Yes.", ())),
    ],
)
def test_any_first_block(
    start: tuple[str, ...], ending: tuple[str, ...], expected: tuple[str, str, tuple[ToolCall, ...]]
) -> None:
    assert read(*start, *ending) == expected


def test_the_name_of_an_author_does_not_show() -> None:
    assert read("assistant", m.CONTENT_TEXT, "Yes.", m.END_MESSAGE) == ("", "Yes.", ())
    assert read("assistant", m.CONTENT_THINKING, "Hm.", m.END_MESSAGE) == ("Hm.", "", ())


def test_blocks_of_one_channel_are_separated() -> None:
    assert read(
        m.CONTENT_THINKING, "One.", m.END_MESSAGE, m.MESSAGE_MODEL, m.CONTENT_TEXT, "Two.", m.END_MESSAGE,
        m.MESSAGE_MODEL, m.CONTENT_THINKING, "Three.", m.END_MESSAGE, m.MESSAGE_MODEL, m.CONTENT_TEXT, "Four.",
    ) == ("One.\n\nThree.", "Two.\n\nFour.", ())  # fmt: skip


def test_unused_markers_inside_a_text_do_not_show() -> None:
    assert read(m.CONTENT_TEXT, "One", "<|unused_7|>", " two", "<|endoftext|>", ".") == ("", "One two.", ())


def test_calls_back_to_back() -> None:
    second = ToolCall("f", {})
    for between in ((m.END_MESSAGE, m.MESSAGE_MODEL), (), ("\n",)):
        assert read(
            "get_weather", m.CONTENT_TOOL_JSON, CALL, *between, "f", m.CONTENT_TOOL_JSON, '{"name":"f","args":{}}'
        ) == (
            "",
            "",
            (WEATHER, second),
        )


def test_text_before_and_after_calls() -> None:
    assert read(
        m.CONTENT_TEXT, "Let me look. ", m.CONTENT_TOOL_JSON, CALL, " Done.", m.END_MESSAGE
    ) == ("", "Let me look. \n\n Done.", (WEATHER,))  # fmt: skip
    assert read(m.CONTENT_TEXT, "Sure", m.CONTENT_TOOL_JSON, CALL) == ("", "Sure", (WEATHER,))


def test_a_call_is_ready_as_soon_as_its_object_is_closed() -> None:
    parser = ChannelParser(inkling_tokenizer())
    events = [parser.push(id_) for id_ in marked("get_weather", m.CONTENT_TOOL_JSON, CALL)]
    assert events[-1] == [ToolCallReady(WEATHER)]
    assert not any(events[:-1])


@pytest.mark.parametrize(
    ("name", "written", "call"),
    [
        ("f", '{"name":"g","args":{"a":"}{\\""}}', ToolCall("g", {"a": '}{"'})),
        ("f", '{"args":{"a":1}}', ToolCall("f", {"a": 1})),
        ("f", '{"name":"","args":{}}', ToolCall("f", {})),
        ("f", '{"name":"g","arguments":"{\\"a\\": 1}"}', ToolCall("g", {"a": 1})),
        ("f", '{"city":"x"}', ToolCall("f", {"city": "x"})),
        ("f", '{"name":"g"}', ToolCall("g", {})),
        ("f", ' \n{"name":"g","args":{"text":"a\nb"}}', ToolCall("g", {"text": "a\nb"})),
        ("look.up-2", '{"args":{}}', ToolCall("look.up-2", {})),
    ],
)
def test_spellings_of_a_call(name: str, written: str, call: ToolCall) -> None:
    assert read(name, m.CONTENT_TOOL_JSON, written, m.END_MESSAGE) == ("", "", (call,))


@pytest.mark.parametrize(
    "written",
    [
        '{"name":"f","args":{',
        '{"name":"f","args":{]}}',
        '{"name":"f","args":[1]}',
        '{"name":"f","args":"x"}',
        '{"name":["f"],"args":{}}',
        '{"name":"<|f|>","args":{}}',
        "not JSON",
        "[]",
        '{"a":' * 5000,
    ],
)
def test_a_call_that_cannot_be_read_is_shown_as_text(written: str) -> None:
    assert read("lookup", m.CONTENT_TOOL_JSON, written, m.END_MESSAGE) == ("", "lookup" + written, ())


def test_a_call_without_any_name_is_shown_as_text() -> None:
    assert read(m.CONTENT_TOOL_JSON, '{"a":1}', m.END_MESSAGE) == ("", '{"a":1}', ())


def test_text_around_a_call_that_cannot_be_read_is_kept() -> None:
    assert read(m.CONTENT_TEXT, "I call lookup", m.CONTENT_TOOL_JSON, "{}}", m.CONTENT_TOOL_JSON, "x") == (
        "",
        "I call lookup\n\n}\n\nx",
        (ToolCall("lookup", {}),),
    )


def test_a_tool_that_takes_plain_text() -> None:
    assert read("run", m.CONTENT_TOOL_TEXT, "ls -l {", m.END_MESSAGE) == (
        "",
        "",
        (ToolCall("run", {"text": "ls -l {"}),),
    )
    assert read(m.CONTENT_TOOL_TEXT, "ls", m.END_MESSAGE) == ("", "ls", ())


def test_only_a_bare_identifier_is_held_back() -> None:
    parser = ChannelParser(inkling_tokenizer())
    shown = [parser.push(id_) for id_ in marked(m.CONTENT_TEXT, "so it")]
    assert [event for events in shown for event in events] == [
        TextDelta("text", "so "),
        TextDelta("text", "i"),
        TextDelta("text", "t"),
    ]


def test_a_long_identifier_is_not_held_back() -> None:
    parser = ChannelParser(inkling_tokenizer())
    assert any(parser.push(id_) for id_ in marked(m.CONTENT_TEXT, "x" * 70))


def test_nothing_is_held_back_for_a_tokenizer_that_knows_no_tools() -> None:
    tokenizer = demo_tokenizer()
    parser = ChannelParser(tokenizer)
    text = tokenizer.control_id(m.CONTENT_TEXT)
    assert text is not None
    parser.push(text)
    assert parser.push(tokenizer.encode("Yes")[0])


def test_raw_text_is_shown_at_once() -> None:
    parser = ChannelParser(inkling_tokenizer(), in_header=False)
    assert parser.push(marked("x")[0]) == [TextDelta("text", "x")]


def test_without_markers_everything_is_text() -> None:
    tokenizer = Tokenizer.from_directory(TINY, [2])
    ids = tokenizer.encode("Inkling attention")
    parser, events = parse(ids, ChannelParser(tokenizer))
    assert parser.text == "Inkling attention"
    assert len(events) == len(ids)


def test_a_character_cut_by_a_marker_does_not_leak_into_the_next_block() -> None:
    ids = [
        *marked(m.CONTENT_THINKING),
        *marked("🙂")[:2],
        *marked(m.END_MESSAGE, m.MESSAGE_MODEL, m.CONTENT_TEXT, "Hi."),
    ]
    parser, _ = parse(ids)
    assert (parser.reasoning, parser.text) == ("\ufffd", "Hi.")


def test_reasoning_is_counted() -> None:
    parser = ChannelParser(inkling_tokenizer())
    inside: list[bool] = []
    for id_ in marked(m.CONTENT_THINKING, "Hm.", m.END_MESSAGE, m.MESSAGE_MODEL, m.CONTENT_TEXT, "Yes."):
        inside.append(parser.in_reasoning)
        parser.push(id_)
    assert inside == [False, True, True, True, True, False, False, False, False, False, False]
    assert parser.reasoning_tokens == 3


PROSE = st.text(st.characters(codec="utf-8"), max_size=12).map(lambda text: f"{text} .")  # never a bare identifier
BLOCKS = st.one_of(
    st.tuples(st.just(m.CONTENT_THINKING), PROSE),
    st.tuples(st.just(m.CONTENT_TEXT), PROSE),
    st.tuples(st.just(m.CONTENT_TOOL_JSON), st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=3)),
)


@given(st.lists(BLOCKS, max_size=6))
def test_every_block_comes_out_in_its_channel(blocks: list[tuple[str, str | dict[str, str]]]) -> None:
    parts: list[str] = []
    reasoning: list[str] = []
    text: list[str] = []
    calls: list[ToolCall] = []
    for kind, payload in blocks:
        parts.append(m.MESSAGE_MODEL)
        if isinstance(payload, dict):
            call = {"name": "f", "args": payload}
            parts += ["f", kind, json.dumps(call, ensure_ascii=False), m.END_MESSAGE]
            calls.append(ToolCall("f", payload))
        else:
            parts += [kind, payload, m.END_MESSAGE]
            (reasoning if kind == m.CONTENT_THINKING else text).append(payload)
    assert read(*parts, m.END_SAMPLING) == ("\n\n".join(reasoning), "\n\n".join(text), tuple(calls))


@given(
    st.lists(st.sampled_from([*MARKERS, "the", "a.b", " ", "{", "}", '"', "é", '{"name":"f","args":{}}']), max_size=30)
)
def test_whatever_comes_no_marker_shows_and_no_text_is_lost(parts: list[str]) -> None:
    parser, events = parse(marked(*parts))
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert "<|" not in shown
    # Not a character of a name, so it cannot be the name of an author or a tool.
    called = "".join(str(call.arguments) for call in parser.tool_calls)
    assert (shown + called).count("é") == parts.count("é")


@given(st.lists(st.integers(0, 8400), max_size=40))
def test_any_ids_of_the_demo_can_be_read(ids: list[int]) -> None:
    tokenizer = demo_tokenizer()
    parser, events = parse(ids, ChannelParser(tokenizer))
    assert all(isinstance(event, TextDelta) and event.text for event in events)
    plain = tokenizer.decode(id_ for id_ in ids if not tokenizer.is_control(id_))
    if not any(map(tokenizer.is_control, ids)):
        # Blanks alone, where an author's name may stand, are none and no text either.
        assert parser.text == plain or parser.text == plain.strip() == ""

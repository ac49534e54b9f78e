from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_fixtures import (
    DATA,
    MARKERS,
    TINY,
    demo_template,
    demo_tokenizer,
    inkling_template,
    inkling_tokenizer,
    marked,
)

from engine.errors import PromptError, TemplateError
from engine.messages import Message, ToolCall
from engine.text import markers as m
from engine.text.chat import ChatEncoder, ChatPrompt, closing_ids, encode_chat
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

CASES: list[dict[str, Any]] = json.loads((DATA / "demo_prompts.json").read_text(encoding="utf-8"))
HI = Message("user", "Hi")

ANY_TEXT = st.text(max_size=20) | st.sampled_from([*MARKERS, "\ue000", " "])


@pytest.mark.parametrize("case", CASES, ids=[case["prompt"][:20] for case in CASES])
def test_the_demo_prompts(case: dict[str, Any]) -> None:
    prompt = encode_chat(demo_tokenizer(), demo_template(), [Message("user", case["prompt"])], case["effort"])
    assert list(prompt.ids) == case["prompt_ids"]
    assert prompt.boundaries == (0, len(prompt.ids) - 1)


@pytest.mark.parametrize("case", CASES, ids=[case["prompt"][:20] for case in CASES])
def test_the_next_prompt_extends_prompt_and_answer_of_the_demo(case: dict[str, Any]) -> None:
    question = Message("user", case["prompt"])
    answer = Message("assistant", "whatever was shown", token_ids=tuple(case["greedy_ids"]))
    prompt = encode_chat(demo_tokenizer(), demo_template(), [question, answer, HI], case["effort"])
    before = [*case["prompt_ids"], *case["greedy_ids"]]
    assert list(prompt.ids[: len(before)]) == before
    alone = encode_chat(demo_tokenizer(), demo_template(), [HI], case["effort"])
    user = demo_tokenizer().control_id(m.MESSAGE_USER)
    assert user is not None
    assert prompt.ids[prompt.boundaries[2] :] == alone.ids[alone.ids.index(user) :]


@st.composite
def answers(draw: st.DrawFn) -> tuple[int, ...]:
    """What a model may have generated: some blocks, perhaps cut anywhere."""
    blocks = draw(
        st.lists(
            st.sampled_from(
                [
                    [m.CONTENT_THINKING, "Hm.", m.END_MESSAGE],
                    [m.CONTENT_TEXT, "Hello there.", m.END_MESSAGE],
                    ["get_weather", m.CONTENT_TOOL_JSON, '{"name":"get_weather","args":{}}', m.END_MESSAGE],
                    ["no marker"],
                ]
            ),
            max_size=3,
        )
    )
    ids: list[int] = []
    for i, block in enumerate(blocks):
        ids += marked(*([m.MESSAGE_MODEL] if i else []), *block)
    ids += marked(m.END_SAMPLING)
    return tuple(ids[: draw(st.integers(0, len(ids)))])


@given(st.lists(st.tuples(ANY_TEXT, answers()), min_size=1, max_size=4), ANY_TEXT | st.none())
def test_a_warm_prompt_extends_the_one_before_and_equals_a_cold_one(
    turns: list[tuple[str, tuple[int, ...]]], system: str | None
) -> None:
    tokenizer, template = inkling_tokenizer(), inkling_template()
    encoder = ChatEncoder(tokenizer, template)
    messages = [] if system is None else [Message("system", system)]
    before: tuple[int, ...] = ()
    for question, answer in turns:
        messages.append(Message("user", question))
        prompt = encoder.encode(messages, 0.9)
        assert prompt.ids[: len(before)] == before
        assert prompt == encode_chat(tokenizer, template, messages, 0.9)
        check_boundaries(tokenizer, messages, prompt)
        before = prompt.ids + answer
        messages.append(Message("assistant", tokenizer.decode(answer), token_ids=answer))
    assert encoder.encode([*messages, HI], 0.9).ids[: len(before)] == before


def check_boundaries(tokenizer: Tokenizer, messages: list[Message], prompt: ChatPrompt) -> None:
    header = tokenizer.control_id(m.MESSAGE_MODEL)
    roles = {"user": m.MESSAGE_USER, "assistant": m.MESSAGE_MODEL, "system": m.MESSAGE_SYSTEM}
    assert len(prompt.boundaries) == len(messages) + 1
    assert prompt.boundaries[0] == 0
    for message, offset in list(zip(messages, prompt.boundaries, strict=False))[1:]:
        assert prompt.ids[offset] == tokenizer.control_id(roles[message.role])
    assert prompt.boundaries[-1] == len(prompt.ids) - 1
    assert prompt.ids[-1] == header


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["effort", "system", "edit", "retry", "next"]), max_size=5))
def test_an_encoder_that_remembers_gives_what_a_fresh_one_gives(changes: list[str]) -> None:
    tokenizer, template = inkling_tokenizer(), inkling_template()
    encoder = ChatEncoder(tokenizer, template)
    effort, messages = 0.9, [Message("system", "0"), Message("user", "a<|end_message|>")]
    for i, change in enumerate(["next", *changes]):
        match change:
            case "effort":
                effort = i / 10
            case "system":
                messages[0] = Message("system", str(i))
            case "edit":
                messages[1] = Message("user", f"edit {i} \ue000")
            case "retry":
                del messages[-2:]
            case _:
                pass
        answer = Message("assistant", "yes", token_ids=tuple(marked(m.CONTENT_TEXT, str(i), m.END_MESSAGE)))
        messages = messages or [Message("system", "0")]
        messages += [Message("user", f"question {i}"), answer]
        if len(messages) < 3:
            messages.append(HI)
        assert encoder.encode(messages, effort) == encode_chat(tokenizer, template, messages, effort)


def test_a_longer_conversation_is_not_rendered_from_every_turn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[int] = []
    original = ChatTemplate.render

    def render(self: ChatTemplate, messages: Sequence[Message], *args: Any, **options: Any) -> str:
        rendered.append(len(messages))
        return original(self, messages, *args, **options)

    monkeypatch.setattr(ChatTemplate, "render", render)
    encoder = ChatEncoder(demo_tokenizer(), demo_template())
    messages = [HI, Message("assistant", "Hello.", token_ids=(8314, 5, 8318, 8316))] * 20
    encoder.encode([*messages, HI], 0.9)
    rendered.clear()
    encoder.encode([*messages, HI, messages[1], HI], 0.9)
    assert len(rendered) == 3


@pytest.mark.parametrize(
    ("generated", "closing"),
    [
        ([], [m.CONTENT_TEXT, m.END_MESSAGE, m.END_SAMPLING]),
        ([m.CONTENT_TEXT], [m.END_MESSAGE, m.END_SAMPLING]),
        ([m.CONTENT_TEXT, "cut"], [m.END_MESSAGE, m.END_SAMPLING]),
        (["cut"], [m.END_MESSAGE, m.END_SAMPLING]),
        ([m.CONTENT_TEXT, "done", m.END_MESSAGE], [m.END_SAMPLING]),
        ([m.CONTENT_THINKING, "hm", m.END_MESSAGE, m.MESSAGE_MODEL], [m.CONTENT_TEXT, m.END_MESSAGE, m.END_SAMPLING]),
        ([m.CONTENT_TEXT, "done", m.END_MESSAGE, m.END_SAMPLING], []),
        ([m.CONTENT_TEXT, "no end", m.END_SAMPLING], []),
    ],
)
def test_a_cut_turn_gets_the_closing_tokens_that_it_lacks(generated: list[str], closing: list[str]) -> None:
    tokenizer, template = inkling_tokenizer(), inkling_template()
    ids = marked(*generated)
    answer = Message("assistant", None, token_ids=tuple(ids))
    prompt = encode_chat(tokenizer, template, [HI, answer, HI], 0.9)
    alone = encode_chat(tokenizer, template, [HI], 0.9).ids
    assert list(prompt.ids[len(alone) :][: len(ids) + len(closing) + 1]) == [
        *ids,
        *marked(*closing),
        *marked(m.MESSAGE_USER),
    ]


def test_a_turn_without_ids_is_encoded_from_its_text() -> None:
    tokenizer = inkling_tokenizer()
    ids = encode_chat(tokenizer, inkling_template(), [HI, Message("assistant", "Yes.", reasoning="Hm."), HI], 0.9).ids
    turn = marked(
        m.MESSAGE_MODEL, m.CONTENT_THINKING, "Hm.", m.END_MESSAGE,
        m.MESSAGE_MODEL, m.CONTENT_TEXT, "Yes.", m.END_MESSAGE, m.END_SAMPLING,
    )  # fmt: skip
    assert ",".join(map(str, turn)) in ",".join(map(str, ids))


FORGETFUL = (
    "{% for m in messages %}<|message_user|>"
    "{% if m.reasoning_content and loop.last %}<|content_thinking|>{{ m.reasoning_content }}{% endif %}"
    "<|content_text|>{{ m.content }}<|end_message|>{% endfor %}"
    "{% if add_generation_prompt %}<|message_model|>{% endif %}"
)


def test_a_template_that_rewrites_earlier_turns_is_followed() -> None:
    """It drops the reasoning of earlier turns, so their ids cannot be kept."""
    tokenizer, template = inkling_tokenizer(), ChatTemplate(FORGETFUL, Path("t.jinja"))
    ids = tuple(marked(m.CONTENT_THINKING, "Hm.", m.END_MESSAGE, m.END_SAMPLING))
    messages = [HI, Message("assistant", "Yes.", reasoning="Hm.", token_ids=ids), HI]
    prompt = encode_chat(tokenizer, template, messages, 0.9)
    user = [m.MESSAGE_USER, m.CONTENT_TEXT, "Hi", m.END_MESSAGE]
    turn = [m.MESSAGE_USER, m.CONTENT_TEXT, "Yes.", m.END_MESSAGE]
    assert list(prompt.ids) == marked(*user, *turn, *user, m.MESSAGE_MODEL)
    first = len(marked(*user))
    assert prompt.boundaries == (0, first, first, len(prompt.ids) - 1)


def test_what_is_remembered_is_not_taken_for_another_conversation() -> None:
    tokenizer = inkling_tokenizer()
    answer = Message("assistant", "Yes.", reasoning="Hm.", token_ids=tuple(marked("Yes.")))
    joined = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", Path("t.jinja"))
    for template, first, second in (
        (ChatTemplate(FORGETFUL, Path("t.jinja")), [HI, answer], [HI, answer, HI]),
        (joined, [Message("user", "ab"), Message("user", "c")], [Message("user", "a"), Message("user", "bc")]),
    ):
        encoder = ChatEncoder(tokenizer, template)
        encoder.encode(first, 0.9)
        assert encoder.encode(second, 0.9) == encode_chat(tokenizer, template, second, 0.9)


def test_what_is_remembered_is_not_taken_for_other_tools_or_another_effort() -> None:
    """This template writes both behind the last message, so that earlier turns tell nothing of them."""
    source = (
        "{% for m in messages %}<|message_user|>{{ m.content }}"
        "{% if loop.last %}{% if reasoning_effort > 0.5 %}hard{% endif %}{{ tools or '' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|message_model|>{% endif %}"
    )
    tokenizer, template = inkling_tokenizer(), ChatTemplate(source, Path("t.jinja"))
    for effort, tools in ((0.9, ()), (0.2, [{"name": "f"}])):
        encoder = ChatEncoder(tokenizer, template)
        assert encoder.encode([HI, HI], 0.2).boundaries[1] > 0
        assert encoder.encode([HI, HI], effort, tools) == encode_chat(tokenizer, template, [HI, HI], effort, tools)


def test_a_template_whose_rendering_shrinks_loses_and_repeats_nothing() -> None:
    source = "{% if add_generation_prompt %}12345678{% else %}{{ '12345678'[:5 - messages | length] }}{% endif %}"
    prompt = encode_chat(inkling_tokenizer(), ChatTemplate(source, Path("t.jinja")), [HI, HI], 0.9)
    assert inkling_tokenizer().decode(prompt.ids) == "12345678"


def test_system_messages_that_the_template_gathers_share_a_boundary() -> None:
    messages = [Message("system", "a"), Message("system", "b"), HI]
    prompt = encode_chat(inkling_tokenizer(), inkling_template(), messages, 0.9)
    user = inkling_tokenizer().control_id(m.MESSAGE_USER)
    assert user is not None
    assert prompt.boundaries == (0, 0, prompt.ids.index(user), len(prompt.ids) - 1)


def test_a_template_that_demands_a_user_message_is_asked_for_the_whole_only() -> None:
    source = (
        "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
        "{{ raise_exception('no user message') }}{% endif %}"
        "{% for m in messages %}<|message_user|>{{ m.content }}{% endfor %}"
    )
    template = ChatTemplate(source, Path("t.jinja"))
    prompt = encode_chat(inkling_tokenizer(), template, [Message("system", "a"), HI], 0.9)
    assert prompt.boundaries == (0, 0, len(prompt.ids))
    with pytest.raises(TemplateError, match="no user message"):
        encode_chat(inkling_tokenizer(), template, [Message("system", "a")], 0.9)


def test_a_tokenizer_without_markers_encodes_everything_from_text() -> None:
    tokenizer = Tokenizer.from_directory(TINY, [2])
    template = ChatTemplate("{% for m in messages %}{{ m.content }} {% endfor %}", Path("t.jinja"))
    prompt = encode_chat(
        tokenizer, template, [Message("user", "the"), Message("assistant", "of", token_ids=(9, 9))], 0.9
    )
    assert tokenizer.decode(prompt.ids) == "the of "
    assert closing_ids(tokenizer, (9, 9)) is None


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(PromptError, match="no messages"):
        encode_chat(demo_tokenizer(), demo_template(), [], 0.9)


def test_arguments_nested_too_deeply_are_refused() -> None:
    value: Any = "x"
    for _ in range(5000):
        value = [value]
    messages = [HI, Message("assistant", None, tool_calls=(ToolCall("f", {"a": value}),))]
    with pytest.raises(PromptError, match="nested"):
        encode_chat(inkling_tokenizer(), inkling_template(), messages, 0.9)

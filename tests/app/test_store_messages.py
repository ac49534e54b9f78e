"""Messages: sending, answers, branches, and what the model gets to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import MISSING, fields

import pytest
from store_samples import DRAFT, FULL_ANSWER, STATS, branched_chat, contents, exchange

from app.store.errors import MissingError
from app.store.export import export_json
from app.store.figures import draft_from_json, stats_from_json, to_json
from app.store.history import History
from app.store.importing import import_json
from app.store.records import Answer, Round, Trace
from engine.events import DraftStatus, Generation
from engine.messages import Message as ModelMessage
from engine.messages import ToolCall
from engine.stats import GenerationStats, StatsRecorder


@pytest.fixture
def history() -> Iterator[History]:
    with closing(History.in_memory()) as history:
        yield history


def test_an_answer_from_begin_to_end(history: History) -> None:
    sent = history.messages.send(history.chats.create().id, "hi")
    begun = history.messages.begin_answer(sent.id, model="demo", options={"seed": 3})
    assert (begun.state, begun.content, begun.role, begun.parent_id) == ("streaming", "", "assistant", sent.id)
    assert (begun.model, begun.options) == ("demo", {"seed": 3})
    history.messages.save_answer(begun.id, Answer(content="Small", token_ids=(7,)))
    saved = history.messages.get(begun.id)
    assert (saved.state, saved.content) == ("streaming", "Small")
    done = history.messages.finish_answer(begun.id, FULL_ANSWER)
    assert done == history.messages.get(begun.id)
    assert (done.state, done.content, done.reasoning) == ("done", FULL_ANSWER.content, FULL_ANSWER.reasoning)
    assert (done.stats, done.draft, done.tool_calls) == (STATS, DRAFT, FULL_ANSWER.tool_calls)
    assert (done.finish_reason, done.reasoning_s, done.reasoning_tokens) == ("stop", 0.4, 21)
    assert (done.model, done.options, done.error) == ("demo", {"seed": 3}, None)
    assert history.messages.trace(begun.id) == Trace(FULL_ANSWER.token_ids, FULL_ANSWER.rounds)


def test_a_failed_answer_says_why(history: History) -> None:
    begun = history.messages.begin_answer(history.messages.send(history.chats.create().id, "hi").id)
    failed = history.messages.finish_answer(begun.id, Answer(), state="failed", error="Out of memory.")
    assert (failed.state, failed.error) == ("failed", "Out of memory.")


def test_editing_never_drops_what_follows(history: History) -> None:
    chat = history.chats.create()
    first, _ = exchange(history, chat, "one", "answer one")
    second, _ = exchange(history, chat, "two", "answer two")
    edited = history.messages.edit(first.id, "one, better")
    assert contents(history.messages.path(chat.id)) == ["one, better"]
    assert (edited.siblings, edited.branch) == ((first.id, edited.id), (2, 2))
    exchange_path = contents(history.messages.activate(first.id))
    assert exchange_path == ["one", "answer one", "two", "answer two"]
    history.messages.edit(second.id, "two, better")
    assert contents(history.messages.path(chat.id)) == ["one", "answer one", "two, better"]


def test_regenerating_and_switching_back_returns_to_the_same_place(history: History) -> None:
    chat = history.chats.create()
    question, first = exchange(history, chat, "one", "first")
    exchange(history, chat, "two", "follows the first")
    second = history.messages.begin_answer(question.id)
    history.messages.finish_answer(second.id, Answer(content="second"))
    assert contents(history.messages.path(chat.id)) == ["one", "second"]
    assert history.messages.siblings(first.id) == (first.id, second.id)
    assert contents(history.messages.activate(first.id)) == ["one", "first", "two", "follows the first"]
    assert contents(history.messages.activate(second.id)) == ["one", "second"]
    assert contents(history.messages.activate(first.id)) == ["one", "first", "two", "follows the first"]


def test_activating_a_message_deep_in_another_branch(history: History) -> None:
    chat = history.chats.create()
    first, _ = exchange(history, chat, "one", "answer")
    _, deep = exchange(history, chat, "two", "deep answer")
    history.messages.edit(first.id, "another start")
    assert contents(history.messages.activate(deep.id)) == ["one", "answer", "two", "deep answer"]


def test_sending_follows_the_active_path_and_streams_may_finish_elsewhere(history: History) -> None:
    chat = history.chats.create()
    question = history.messages.send(chat.id, "one")
    slow = history.messages.begin_answer(question.id)
    edited = history.messages.edit(question.id, "other")
    history.messages.finish_answer(slow.id, Answer(content="late"))
    assert contents(history.messages.path(chat.id)) == ["other"]
    assert history.messages.send(chat.id, "next").parent_id == edited.id
    assert contents(history.messages.activate(question.id)) == ["one", "late"]


def test_context_is_the_way_to_the_message_with_the_ids_that_were_generated(history: History) -> None:
    chat = history.chats.create(system_prompt="Be brief.")
    first, answer = exchange(history, chat, "one", "ok")
    empty = history.messages.begin_answer(first.id)
    history.messages.finish_answer(empty.id, Answer(), state="failed", error="x")
    history.messages.activate(answer.id)
    second = history.messages.send(chat.id, "two")
    assert history.messages.context(second.id) == [
        ModelMessage("system", "Be brief."),
        ModelMessage("user", "one"),
        ModelMessage("assistant", "ok", token_ids=(111, 107)),
        ModelMessage("user", "two"),
    ]
    assert [turn.content for turn in history.messages.context(empty.id)] == ["Be brief.", "one"]
    history.chats.set_system_prompt(chat.id, "")
    assert [turn.role for turn in history.messages.context(first.id)] == ["user"]


def test_context_carries_reasoning_and_tool_calls(history: History) -> None:
    chat = branched_chat(history)
    turns = history.messages.context(history.messages.path(chat.id)[-1].id)
    assert turns[-1] == ModelMessage(
        "assistant",
        FULL_ANSWER.content,
        reasoning=FULL_ANSWER.reasoning,
        tool_calls=FULL_ANSWER.tool_calls,
        token_ids=FULL_ANSWER.token_ids,
    )
    history.messages.send(chat.id, "found: nothing", role="tool")
    assert history.messages.path(chat.id)[-1].role == "tool"


def test_what_a_generation_reports_comes_back_as_it_was(history: History) -> None:
    recorder = StatsRecorder(prompt_tokens=9, cached_tokens=2, started=0.0)
    recorder.token_times(1, 0.5)
    recorder.round(2, 1, 0.25)
    recorder.token_times(2, 1.0)
    stats = recorder.snapshot()
    draft = DraftStatus("mtp", "mtp", None, "stateful", 3)
    message = ModelMessage("assistant", "ok")
    generation = Generation("ok", "hm", (1, 2, 3), (ToolCall("f", {}),), "length", stats, draft, message)
    answer = Answer.of(generation, rounds=[Round(2, 2, 1, 250.0)], reasoning_s=0.1, reasoning_tokens=1)
    begun = history.messages.begin_answer(history.messages.send(history.chats.create().id, "hi").id)
    stored = history.messages.finish_answer(begun.id, answer)
    assert stats_from_json(stored.stats) == stats
    assert draft_from_json(stored.draft) == draft
    assert (stored.content, stored.reasoning, stored.finish_reason) == ("ok", "hm", "length")
    assert stored.tool_calls == generation.tool_calls
    assert history.messages.trace(begun.id) == Trace((1, 2, 3), (Round(2, 2, 1, 250.0),))


@pytest.mark.parametrize("raw", [None, {}, {"rounds": 1}, {**STATS, "plain_steps": 0, "near_ties": "many"}])
def test_figures_without_counters_are_no_figures(raw: dict[str, object] | None) -> None:
    assert stats_from_json(raw) is None


def test_figures_from_before_the_engine_had_one_of_them_are_read() -> None:
    status = DraftStatus("mtp", "mtp", None, "stateful", 3)
    stats = StatsRecorder(1, 0, 0.0).snapshot()
    for new in (one.name for one in fields(DraftStatus) if one.default is not MISSING):
        assert draft_from_json({k: v for k, v in to_json(status).items() if k != new}) == status
    for new in (one.name for one in fields(GenerationStats) if one.default is not MISSING):
        assert stats_from_json({k: v for k, v in to_json(stats).items() if k != new}) == stats


@pytest.mark.parametrize("odd", ["fast", True, [1.0, "x"], float("nan"), 10**400, {}])
def test_a_figure_of_another_type_is_unknown(odd: object) -> None:
    stats = StatsRecorder(1, 0, 0.0).snapshot()
    read = stats_from_json({**to_json(stats), "decode_tps": odd, "per_position": odd, "of_the_future": 1})
    assert read == stats


def test_text_that_is_no_unicode_is_stored_as_near_as_can_be(history: History) -> None:
    chat = history.chats.create(title="half \ud83d", system_prompt="\udc00")
    sent = history.messages.send(chat.id, "whole \ud83c\udf0a half \ud83c zero \0 end")
    assert sent.content == "whole 🌊 half \ufffd zero \0 end"
    assert history.chats.get(chat.id).title == "half \ufffd"
    begun = history.messages.begin_answer(sent.id, model="/models/\udcff")
    done = history.messages.finish_answer(begun.id, Answer(content="\ud800"), state="failed", error="\udfff")
    assert (done.content, done.error, done.model) == ("\ufffd", "\ufffd", "/models/\ufffd")


def test_what_a_model_writes_into_a_tool_call_is_stored_and_exported(history: History) -> None:
    deep: dict[str, object] = {}
    for _ in range(900):
        deep = {"in": deep}
    begun = history.messages.begin_answer(history.messages.send(history.chats.create().id, "hi").id)
    call = ToolCall("f", {"nan": float("nan"), "inf": [1e999, 1.5], "deep": deep, "\ud800": "\udfff"})
    done = history.messages.finish_answer(begun.id, Answer(tool_calls=(call,), stats={"decode_tps": float("inf")}))
    (stored,) = done.tool_calls
    assert (stored.arguments["nan"], stored.arguments["inf"], stored.arguments["\ud800"]) == (
        None,
        [None, 1.5],
        "\udfff",
    )
    assert done.stats == {"decode_tps": None}
    exported = export_json(history)
    import_json(history, exported)
    history.chats.duplicate(done.chat_id)


def test_messages_that_do_not_exist(history: History) -> None:
    for use in (
        lambda: history.messages.get(1),
        lambda: history.messages.edit(1, "x"),
        lambda: history.messages.begin_answer(1),
        lambda: history.messages.save_answer(1, Answer()),
        lambda: history.messages.finish_answer(1, Answer()),
        lambda: history.messages.activate(1),
        lambda: history.messages.context(1),
    ):
        with pytest.raises(MissingError, match="message is no longer"):
            use()
    assert history.messages.trace(1) == Trace((), ())


def test_a_second_instance_does_not_harm_an_answer_in_progress(history: History) -> None:
    begun = history.messages.begin_answer(history.messages.send(history.chats.create().id, "hi").id)
    assert history.messages.recover() == 1
    history.messages.save_answer(begun.id, Answer(content="still coming"))
    assert history.messages.get(begun.id).state == "streaming"
    done = history.messages.finish_answer(begun.id, Answer(content="all here", finish_reason="stop"))
    assert (done.state, done.finish_reason) == ("done", "stop")
    assert [hit.message_id for hit in history.search("all here")] == [begun.id]
    assert history.messages.recover() == 0

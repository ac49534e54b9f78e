"""Export and import: JSON loses nothing, Markdown can be read and comes back, and hostile files do no harm."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import Clock, branched_chat, contents, exchange

from app.store import importing
from app.store.errors import ImportFileError, MissingError, StoreError
from app.store.export import export_json, write_export
from app.store.history import History
from app.store.importing import import_file, import_json, import_markdown
from app.store.markdown import export_markdown
from app.store.records import Answer, Round
from engine.errors import UserError

Json = dict[str, Any]
_NUMBERS = st.integers(0, 2**31 - 1)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_OBJECTS = st.dictionaries(st.text(max_size=8), _JSON, max_size=3)
_ANSWERS = st.builds(
    Answer,
    content=st.text(),
    reasoning=st.text(),
    token_ids=st.lists(_NUMBERS, max_size=5).map(tuple),
    rounds=st.lists(st.builds(Round, _NUMBERS, _NUMBERS, _NUMBERS, st.floats(0, 1e6)), max_size=3).map(tuple),
    stats=st.none() | _OBJECTS,
    draft=st.none() | _OBJECTS,
    finish_reason=st.sampled_from([None, "stop", "length", "cancelled"]),
    reasoning_s=st.none() | st.floats(0, 1e6),
    reasoning_tokens=st.none() | _NUMBERS,
)


@pytest.fixture
def history() -> Iterator[History]:
    with closing(History.in_memory(clock=Clock(step=0.125))) as history:
        yield history


def document(history: History) -> Json:
    return json.loads(export_json(history))


class TestJson:
    def test_round_trip_with_every_field(self, history: History) -> None:
        chat = branched_chat(history)
        exported = export_json(history)
        history.chats.delete(chat.id)
        report = import_json(history, exported)
        assert report.messages == 5
        assert export_json(history) == exported
        (copied,) = history.chats.list()
        assert (copied.title, copied.pinned, copied.settings) == (chat.title, True, chat.settings)
        assert (copied.created_at, copied.updated_at) == (chat.created_at, chat.updated_at)
        old, new = history.messages.path(chat.id), history.messages.path(copied.id)
        assert [message.branch for message in new] == [message.branch for message in old]
        for before, after in zip(old, new, strict=True):
            assert history.messages.trace(after.id) == history.messages.trace(before.id)
            for name in ("role", "state", "content", "reasoning", "tool_calls", "stats", "draft", "options", "model"):
                assert getattr(after, name) == getattr(before, name)

    @given(data=st.data())
    @settings(max_examples=60)
    def test_round_trip_of_any_tree(self, data: st.DataObject) -> None:
        with closing(History.in_memory(clock=Clock(step=0.1))) as history:
            for _ in range(data.draw(st.integers(0, 2))):
                chat = history.chats.create(title=data.draw(st.text(max_size=20)), system_prompt=data.draw(st.text()))
                ids = [history.messages.send(chat.id, data.draw(st.text())).id]
                for _ in range(data.draw(st.integers(0, 6))):
                    at = data.draw(st.sampled_from(ids))
                    match data.draw(st.sampled_from(["edit", "answer", "send", "activate"])):
                        case "edit":
                            ids.append(history.messages.edit(at, data.draw(st.text())).id)
                        case "answer":
                            ids.append(history.messages.begin_answer(at, options=data.draw(_OBJECTS)).id)
                            history.messages.finish_answer(ids[-1], data.draw(_ANSWERS))
                        case "send":
                            ids.append(history.messages.send(chat.id, data.draw(st.text())).id)
                        case _:
                            history.messages.activate(at)
            exported = export_json(history)
            exported.encode()
            with closing(History.in_memory()) as other:
                import_json(other, exported)
                assert export_json(other) == exported

    def test_several_chats_by_choice_and_not_the_deleted_ones(self, history: History) -> None:
        one, two, three = (history.chats.create(title=title) for title in ("one", "two", "three"))
        history.chats.delete(two.id)
        assert [chat["title"] for chat in document(history)["chats"]] == ["one", "three"]
        chosen = json.loads(export_json(history, [three.id, one.id]))["chats"]
        assert [chat["title"] for chat in chosen] == ["three", "one"]
        assert json.loads(export_json(history, []))["chats"] == []
        with pytest.raises(MissingError):
            export_json(history, [two.id])

    def test_an_answer_in_progress_is_exported_as_stopped(self, history: History) -> None:
        history.messages.begin_answer(history.messages.send(history.chats.create().id, "hi").id)
        exported = export_json(history)
        assert json.loads(exported)["chats"][0]["messages"][1]["state"] == "stopped"
        import_json(history, exported)

    def test_a_minimal_file_by_hand(self, history: History) -> None:
        message = {"role": "user", "state": "done", "content": "hi", "created_at": 2}
        chat = {"created_at": 1, "updated_at": 2, "messages": [{"id": 9, **message}, {"id": 4, "parent": 9, **message}]}
        text = json.dumps({"format": "inkstand-chats", "version": 1, "chats": [chat]})
        (chat_id,) = import_json(history, text).chat_ids
        assert contents(history.messages.path(chat_id)) == ["hi", "hi"]
        assert [hit.chat.id for hit in history.search("hi")] == [chat_id]


def wrecked(change: Callable[[Json], object]) -> Callable[[Json], str]:
    def wreck(valid: Json) -> str:
        change(valid)
        return json.dumps(valid)

    return wreck


def chat_field(name: str, value: object) -> Callable[[Json], str]:
    return wrecked(lambda valid: valid["chats"][0].update({name: value}))


def message_field(name: str, value: object, index: int = 1) -> Callable[[Json], str]:
    return wrecked(lambda valid: valid["chats"][0]["messages"][index].update({name: value}))


DEEP: Json = {}
for _ in range(80):
    DEEP = {"in": DEEP}

HOSTILE: dict[str, tuple[Callable[[Json], str], str]] = {
    "no JSON": (lambda _: "{", "no valid JSON"),
    "a list": (lambda _: "[]", "an object"),
    "a number too large": (lambda _: '{"format": 1e999}', "1e999 is too large"),
    "not a number": (lambda _: '{"format": NaN}', "NaN is no JSON number"),
    "digits without end": (lambda _: '{"format": ' + "1" * 10_000 + "}", "no valid JSON"),
    "nested without end": (lambda _: "[" * 200_000, "nested too deeply"),
    "nested too deeply to be written": (lambda _: '{"format":' + "[" * 300 + "]" * 300 + "}", "nested too deeply"),
    "another format": (wrecked(lambda valid: valid.update(format="notes")), r'^format is "notes"'),
    "format of another type": (
        wrecked(lambda valid: valid.update(format=[1] * 100)),
        r"^format is \[1, 1.*…; it must be",
    ),
    "no version": (wrecked(lambda valid: valid.pop("version")), "^version is missing"),
    "true as version": (wrecked(lambda valid: valid.update(version=True)), "^version is true"),
    "newer version": (wrecked(lambda valid: valid.update(version=2)), "version 2; this Inkstand reads up to version 1"),
    "no chats": (wrecked(lambda valid: valid.pop("chats")), "^chats is missing"),
    "chats as object": (wrecked(lambda valid: valid.update(chats={})), "^chats is {}"),
    "too many chats": (wrecked(lambda valid: valid.update(chats=[0] * 20_001)), "at most 20,000 entries"),
    "chat as number": (wrecked(lambda valid: valid["chats"].append(3)), r"^chats\[1\] is 3; it must be an object"),
    "title as number": (chat_field("title", 3), r"chats\[0\]\.title is 3"),
    "long title": (chat_field("title", "x" * 1_001), r"chats\[0\]\.title .* at most 1,000 characters"),
    "pinned as number": (chat_field("pinned", 1), r"chats\[0\]\.pinned is 1; it must be true or false"),
    "time as text": (chat_field("created_at", "now"), r"chats\[0\]\.created_at"),
    "time before all": (chat_field("updated_at", -1), r"chats\[0\]\.updated_at is -1"),
    "time after all": (chat_field("updated_at", 1e300), r"chats\[0\]\.updated_at is 1e\+300"),
    "time as enormous integer": (chat_field("updated_at", 10**400), r"chats\[0\]\.updated_at"),
    "prompt null": (chat_field("system_prompt", None), r"chats\[0\]\.system_prompt is null"),
    "settings as list": (chat_field("settings", []), r"chats\[0\]\.settings is \[\]"),
    "hot settings": (chat_field("settings", {"temperature": "hot"}), r"chats\[0\]\.settings: temperature is 'hot'"),
    "messages missing": (wrecked(lambda valid: valid["chats"][0].pop("messages")), r"chats\[0\]\.messages is missing"),
    "message as text": (wrecked(lambda valid: valid["chats"][0]["messages"].append("hi")), r"messages\[5\] is \"hi\""),
    "id twice": (message_field("id", 1), r"messages\[1\]\.id is 1; it must be a number that no other"),
    "id as text": (message_field("id", "1"), r"messages\[1\]\.id is \"1\""),
    "own parent": (message_field("parent", 2), r"messages\[1\]\.parent is 2; it must be null or the id of a message f"),
    "circle": (message_field("parent", 4, index=0), r"messages\[0\]\.parent is 4"),
    "parent unknown": (message_field("parent", 77), r"messages\[1\]\.parent is 77"),
    "parent as flag": (message_field("parent", False), r"messages\[1\]\.parent is false"),
    "two active": (message_field("active", True, index=2), r"messages\[2\]\.active is true; .* message 2 beside it"),
    "role unknown": (message_field("role", "root"), r"messages\[1\]\.role is \"root\""),
    "role as list": (message_field("role", []), r"messages\[1\]\.role is \[\]"),
    "still streaming": (message_field("state", "streaming"), r"messages\[1\]\.state is \"streaming\""),
    "content as object": (message_field("content", {}), r"messages\[1\]\.content is {}"),
    "content missing": (wrecked(lambda v: v["chats"][0]["messages"][1].pop("content")), r"\.content is missing"),
    "name as number": (message_field("name", 5), r"messages\[1\]\.name is 5"),
    "token negative": (message_field("token_ids", [1, -1]), r"messages\[1\]\.token_ids\[1\] is -1"),
    "token too large": (message_field("token_ids", [2**31]), r"token_ids\[0\] is 2147483648"),
    "token as float": (message_field("token_ids", [1.0]), r"token_ids\[0\] is 1.0"),
    "tokens as text": (message_field("token_ids", "12"), r"messages\[1\]\.token_ids is \"12\""),
    "round short": (message_field("rounds", [[1, 2, 3]]), r"rounds\[0\] is \[1, 2, 3\]"),
    "round as object": (message_field("rounds", [{}]), r"rounds\[0\] is {}"),
    "round with text": (message_field("rounds", [[1, 0, 0, 2.5], [1, 2, 3, "4"]]), r"rounds\[1\]"),
    "stats as list": (message_field("stats", [1]), r"messages\[1\]\.stats is \[1\]"),
    "stats nested": (message_field("stats", DEEP), r"messages\[1\]\.stats .* nested at most 64 deep"),
    "options as text": (message_field("options", "x"), r"messages\[1\]\.options"),
    "tool call as text": (message_field("tool_calls", ["x"]), r"tool_calls\[0\] is \"x\""),
    "tool call nameless": (message_field("tool_calls", [{}]), r"tool_calls\[0\]\.name is missing"),
    "tool arguments nested": (
        message_field("tool_calls", [{"name": "f", "arguments": DEEP}]),
        r"tool_calls\[0\]\.arguments",
    ),
    "seconds negative": (message_field("reasoning_s", -0.5), r"messages\[1\]\.reasoning_s is -0.5"),
    "tokens as fraction": (message_field("reasoning_tokens", 0.5), r"messages\[1\]\.reasoning_tokens is 0.5"),
}


class TestHostileJson:
    @pytest.mark.parametrize("case", HOSTILE)
    def test_is_refused_by_name_and_nothing_is_imported(self, history: History, case: str) -> None:
        branched_chat(history)
        before = export_json(history)
        make, message = HOSTILE[case]
        with pytest.raises(ImportFileError, match=message) as caught:
            import_json(history, make(json.loads(before)))
        assert len(caught.value.title) < 400
        assert caught.value.hint
        assert export_json(history) == before

    def test_a_fault_in_the_last_chat_imports_none(self, history: History) -> None:
        branched_chat(history)
        valid = document(history)
        valid["chats"] += [copy.deepcopy(valid["chats"][0]) for _ in range(20)]
        valid["chats"][-1]["messages"][-1]["role"] = "?"
        with pytest.raises(ImportFileError, match=r"chats\[20\]\.messages\[4\]\.role"):
            import_json(history, json.dumps(valid))
        assert len(history.chats.list()) == 1

    @given(data=st.data())
    @settings(max_examples=150)
    def test_any_change_to_a_valid_file_is_imported_whole_or_refused(self, data: st.DataObject) -> None:
        with closing(History.in_memory()) as history:
            branched_chat(history)
            before = export_json(history)
            damaged = json.loads(before)
            for _ in range(data.draw(st.integers(1, 3))):
                change_somewhere(data, damaged)
            try:
                report = import_json(history, json.dumps(damaged))
            except UserError:
                assert export_json(history) == before
            else:
                exported = export_json(history, report.chat_ids)
                exported.encode()
                with closing(History.in_memory()) as other:
                    import_json(other, exported)
                    assert export_json(other) == exported
                    for chat in other.chats.list():
                        for message in other.messages.path(chat.id):
                            other.messages.context(message.id)
                            other.messages.trace(message.id)

    @given(st.text() | st.binary().map(lambda data: data.decode("latin-1")) | _JSON.map(json.dumps))
    def test_any_text_is_refused_or_imported(self, text: str) -> None:
        with closing(History.in_memory()) as history:
            try:
                import_json(history, text)
            except UserError:
                assert history.chats.list() == []


def change_somewhere(data: st.DataObject, value: Any) -> None:
    """Replaces, removes or repeats one value of a JSON document in place."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(value[key], dict | list) and data.draw(st.integers(0, 4)):
            value = value[key]
            continue
        match data.draw(st.sampled_from(["replace", "remove", "repeat"])):
            case "replace":
                value[key] = data.draw(_JSON)
            case "remove":
                del value[key]
            case _:
                if isinstance(value, list):
                    value.append(copy.deepcopy(value[key]))
                else:
                    value[data.draw(st.sampled_from(keys))] = value[key]
        return


class TestMarkdown:
    def test_reads_well(self, history: History) -> None:
        chat = history.chats.create(title="Tide pools", system_prompt="Answer in verse.")
        sent = history.messages.send(chat.id, "Write a haiku")
        answer = history.messages.begin_answer(sent.id)
        history.messages.finish_answer(answer.id, Answer(content="Small pools", reasoning="Five, seven, five."))
        lines = export_markdown(history, chat.id).splitlines()
        assert [line for line in lines if line and not line.startswith("<!--")] == [
            "# Tide pools",
            "## System prompt",
            "Answer in verse.",
            "## You",
            "Write a haiku",
            "## Inkling",
            "<details><summary>Reasoning</summary>",
            "Five, seven, five.",
            "</details>",
            "Small pools",
        ]

    def test_is_the_active_path(self, history: History) -> None:
        chat = branched_chat(history)
        text = export_markdown(history, chat.id)
        assert "Small pools hold the sky" in text
        assert '"word": "tide\\ud800"' in text
        assert "The sea br" not in text
        text.encode()

    @given(
        prompt=st.text(),
        turns=st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=4),
    )
    def test_text_comes_back_character_by_character(self, prompt: str, turns: list[tuple[str, str, str]]) -> None:
        self.check_round_trip(prompt, turns)

    @pytest.mark.parametrize(
        "text",
        [
            "<!-- inkstand:user -->",
            "<!-- \\inkstand:user -->\n<!-- \\\\inkstand:assistant -->",
            "## You\n\n# Title\n",
            "\n\nblank lines around\n\n\n",
            "</details>\n\n",
            "carriage\r\nreturns\rhere\r\n",
            "line\u2028separator\x0bpage\x0c",
            "```\n<!-- inkstand:answer -->\n```",
            "",
        ],
    )
    def test_text_that_looks_like_the_frame(self, text: str) -> None:
        self.check_round_trip(text, [(text, text, text)])

    def check_round_trip(self, prompt: str, turns: list[tuple[str, str, str]]) -> None:
        with closing(History.in_memory(clock=Clock(step=0.125))) as history:
            chat = history.chats.create(title="Any", system_prompt=prompt)
            for question, reasoning, content in turns:
                begun = history.messages.begin_answer(history.messages.send(chat.id, question).id)
                history.messages.finish_answer(begun.id, Answer(content=content, reasoning=reasoning))
            text = export_markdown(history, chat.id)
            (copied,) = import_markdown(history, text).chat_ids
            assert history.chats.get(copied).system_prompt == prompt
            assert history.chats.get(copied).title == "Any"
            old, new = history.messages.path(chat.id), history.messages.path(copied)
            for before, after in zip(old, new, strict=True):
                for name in ("role", "content", "reasoning", "created_at"):
                    assert getattr(after, name) == getattr(before, name)
            assert export_markdown(history, copied) == text

    def test_an_editor_that_changes_line_ends(self, history: History) -> None:
        chat = history.chats.create(title="Tides")
        exchange(history, chat, "one\ntwo", "three\nfour")
        text = "\ufeff" + export_markdown(history, chat.id).replace("\n", "\r\n")
        (copied,) = import_markdown(history, text).chat_ids
        assert history.chats.get(copied).title == "Tides"
        assert contents(history.messages.path(copied)) == ["one\ntwo", "three\nfour"]

    def test_a_file_by_hand(self, history: History) -> None:
        text = "<!-- inkstand:user -->\nHow do tides work?\n<!-- inkstand:assistant 2026-01-31 -->\nThe moon."
        (chat_id,) = import_markdown(history, text).chat_ids
        assert history.chats.get(chat_id).title == "How do tides work?"
        path = history.messages.path(chat_id)
        assert contents(path) == ["How do tides work?", "The moon."]
        assert path[1].created_at == 1_769_817_600.0

    @pytest.mark.parametrize("when", ["yesterday", "0001-01-01T00:00:00+00:00", "9999-99-99"])
    def test_odd_times_do_no_harm(self, history: History, when: str) -> None:
        (chat_id,) = import_markdown(history, f"<!-- inkstand:user {when} -->\nhi\n").chat_ids
        assert history.messages.path(chat_id)[0].created_at >= 0
        export_markdown(history, chat_id)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("# Notes\n\nHello", "No message was found"),
            ("", "No message was found"),
            ("<!-- inkstand:prompt -->\nBe brief.", "No message was found"),
            ("# T\n<!-- inkstand:reasoning -->\nhm", 'Line 2: "reasoning" stands before the first message'),
        ],
    )
    def test_other_markdown_is_refused(self, history: History, text: str, message: str) -> None:
        with pytest.raises(ImportFileError, match=message):
            import_markdown(history, text)
        assert history.chats.list() == []

    @given(st.text(alphabet="<!- inkstad:userwpomg>\r\n# \\x/", max_size=200))
    def test_any_text_is_refused_or_imported(self, text: str) -> None:
        with closing(History.in_memory()) as history:
            try:
                import_markdown(history, text)
            except UserError:
                assert history.chats.list() == []


class TestFiles:
    def test_json_and_markdown_are_told_apart_by_their_contents(self, history: History, tmp_path: Path) -> None:
        chat = branched_chat(history)
        write_export(tmp_path / "chat.txt", export_json(history))
        write_export(tmp_path / "note.txt", export_markdown(history, chat.id))
        assert import_file(history, tmp_path / "chat.txt").messages == 5
        assert import_file(history, tmp_path / "note.txt").messages == 2

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda path: path.mkdir(), "is not a file"),
            (os.mkfifo, "is not a file"),
            (lambda path: None, "cannot be read"),
            (lambda path: path.write_bytes(b"{\xff\xfe"), "not text in UTF-8 \\(byte 1\\)"),
            (lambda path: path.write_bytes(b""), "No message was found"),
        ],
    )
    def test_what_is_no_such_file(
        self, history: History, tmp_path: Path, make: Callable[[Path], object], message: str
    ) -> None:
        make(tmp_path / "in.json")
        with pytest.raises(ImportFileError, match=message):
            import_file(history, tmp_path / "in.json")

    def test_a_huge_file_is_not_even_read(self, history: History, tmp_path: Path) -> None:
        huge = tmp_path / "huge.json"
        with huge.open("wb") as file:
            file.truncate(importing.MAX_BYTES + 1)
        with pytest.raises(ImportFileError, match=r"268 MB; at most 268 MB"):
            import_file(history, huge)

    def test_writing_replaces_in_one_step(self, tmp_path: Path) -> None:
        target = tmp_path / "out.md"
        write_export(target, "old")
        write_export(target, "new\r\n")
        assert target.read_bytes() == b"new\r\n"
        assert [file.name for file in tmp_path.iterdir()] == ["out.md"]

    def test_a_place_that_cannot_be_written_keeps_what_is_there(self, tmp_path: Path) -> None:
        (tmp_path / "out.md").mkdir()
        with pytest.raises(StoreError, match="could not be written"):
            write_export(tmp_path / "out.md", "new")
        assert [file.name for file in tmp_path.iterdir()] == ["out.md"]

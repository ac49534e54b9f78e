"""The list of chats: order, names, copies, deletion with undo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import Clock, branched_chat, contents, exchange

from app.store.errors import MissingError
from app.store.export import export_json
from app.store.history import History
from app.store.records import Answer
from app.store.titles import copy_title, derive_title, suggested_name


@pytest.fixture
def clock() -> Clock:
    return Clock(step=1.0)


@pytest.fixture
def history(clock: Clock) -> Iterator[History]:
    with closing(History.in_memory(clock=clock)) as history:
        yield history


def titles(history: History) -> list[str]:
    return [chat.title for chat in history.chats.list()]


def test_newest_update_first_and_pinned_above_all(history: History) -> None:
    one, two, three = (history.chats.create(title=title) for title in ("one", "two", "three"))
    assert titles(history) == ["three", "two", "one"]
    history.messages.send(one.id, "hello")
    assert titles(history) == ["one", "three", "two"]
    history.chats.set_pinned(two.id, True)
    assert titles(history) == ["two", "one", "three"]
    history.messages.edit(history.messages.send(three.id, "hello").id, "hello again")
    assert titles(history) == ["two", "three", "one"]
    history.chats.set_pinned(two.id, False)
    assert titles(history) == ["three", "one", "two"]


def test_only_the_conversation_counts_as_an_update(history: History) -> None:
    chat = history.chats.create(title="one")
    history.chats.create(title="two")
    history.chats.rename(chat.id, "renamed")
    history.chats.set_system_prompt(chat.id, "Be brief.")
    history.chats.set_settings(chat.id, {"temperature": 0})
    history.chats.set_unsent(chat.id, "almost")
    assert titles(history) == ["two", "renamed"]


def test_the_first_message_names_the_chat_and_a_given_name_stays(history: History) -> None:
    chat = history.chats.create()
    assert chat.display_title == "New chat"
    first = history.messages.send(chat.id, "\n\n## How do **tides** work?\nExplain it.")
    assert history.chats.get(chat.id).title == "How do **tides** work?"
    history.messages.edit(first.id, "Never mind")
    history.messages.send(chat.id, "something else")
    assert history.chats.get(chat.id).title == "How do **tides** work?"
    assert history.chats.rename(chat.id, "  My \n tides ").title == "My tides"
    assert history.chats.rename(chat.id, " ").title == "How do **tides** work?"
    assert history.chats.rename(history.chats.create().id, "").title == ""


def test_settings_and_prompt_are_kept(history: History) -> None:
    chat = history.chats.create(system_prompt="Be brief.", settings={"effort": "low"})
    history.chats.set_settings(chat.id, {"temperature": 0.5, "future": [1]})
    history.chats.set_system_prompt(chat.id, "Be long.")
    kept = history.chats.get(chat.id)
    assert (kept.system_prompt, kept.settings) == ("Be long.", {"temperature": 0.5, "future": [1]})


def test_a_duplicate_has_every_branch_and_leads_its_own_life(history: History) -> None:
    chat = branched_chat(history)
    copy = history.chats.duplicate(chat.id)
    assert copy.title == f"{chat.title} copy"
    assert (copy.system_prompt, copy.settings, copy.pinned) == (chat.system_prompt, chat.settings, False)
    originals, copies = history.messages.path(chat.id), history.messages.path(copy.id)
    assert contents(copies) == contents(originals)
    assert [m.branch for m in copies] == [m.branch for m in originals]
    assert history.messages.trace(copies[1].id) == history.messages.trace(originals[1].id)
    assert copies[1].stats == originals[1].stats
    history.messages.send(copy.id, "only in the copy")
    assert history.messages.path(chat.id) == originals
    assert history.chats.duplicate(chat.id).title == f"{chat.title} copy 2"
    assert history.chats.duplicate(copy.id).title == f"{chat.title} copy 3"


def test_duplicating_in_the_middle_of_an_answer(history: History) -> None:
    chat = history.chats.create()
    answer = history.messages.begin_answer(history.messages.send(chat.id, "hi").id)
    copy = history.chats.duplicate(chat.id)
    assert history.messages.path(copy.id)[-1].state == "stopped"
    assert history.messages.get(answer.id).state == "streaming"
    assert history.chats.duplicate(history.chats.create().id).title == ""


def test_a_deleted_chat_is_gone_until_undone(history: History) -> None:
    chat = branched_chat(history)
    before = export_json(history)
    history.chats.delete(chat.id)
    assert history.chats.list() == []
    assert history.search("haiku") == []
    for use in (history.chats.get, history.chats.duplicate, history.chats.delete):
        with pytest.raises(MissingError):
            use(chat.id)
    assert history.chats.undo_delete(chat.id) == chat
    assert export_json(history) == before
    assert [hit.chat for hit in history.search("haiku")] == [chat]


def test_an_answer_goes_on_in_a_deleted_chat(history: History) -> None:
    chat = history.chats.create()
    sent = history.messages.send(chat.id, "hi")
    history.chats.delete(chat.id)
    answer = history.messages.begin_answer(sent.id)
    history.messages.finish_answer(answer.id, Answer(content="done"))
    history.chats.undo_delete(chat.id)
    assert contents(history.messages.path(chat.id)) == ["hi", "done"]


def test_purging_takes_only_what_was_deleted_long_ago(history: History, clock: Clock) -> None:
    old, recent, kept = (history.chats.create(title=title) for title in ("old", "recent", "kept"))
    for chat in (old, recent, kept):
        exchange(history, chat, f"ask {chat.title}", "reply")
        history.chats.set_unsent(chat.id, "almost")
    history.chats.delete(old.id)
    clock.now += 1_000
    history.chats.delete(recent.id)
    assert history.chats.purge_deleted(500) == 1
    with pytest.raises(MissingError):
        history.chats.undo_delete(old.id)
    assert history.chats.undo_delete(recent.id) == history.chats.get(recent.id)
    history.chats.delete(recent.id)
    assert history.chats.purge_deleted(0) == 1
    assert history.chats.list() == [history.chats.get(kept.id)]
    with history.database.read() as connection:
        for table, count in (("messages", 2), ("traces", 1), ("unsent", 1), ("chats", 1)):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)


def test_a_chat_deeper_than_the_nesting_of_triggers_is_purged(history: History) -> None:
    chat = history.chats.create()
    with history.database.write() as connection:
        connection.executemany(
            "INSERT INTO messages (chat_id, parent_id, active, role, state, content, created_at) "
            "VALUES (?, ?, 1, 'user', 'done', 'deep', 0)",
            [(chat.id, parent) for parent in (None, *range(1, 3_000))],
        )
    assert len(history.messages.path(chat.id)) == 3_000
    history.chats.delete(chat.id)
    assert history.chats.purge_deleted(0) == 1


def test_purged_text_is_not_left_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(History.open(path)) as history:
        chat = history.chats.create()
        exchange(history, chat, "where is the zanzibarite", "it is hidden")
        history.chats.delete(chat.id)
        history.chats.purge_deleted(0)
    assert b"zanzibarite" not in path.read_bytes()


def test_what_is_in_the_composer_survives(history: History) -> None:
    chat = history.chats.create()
    assert history.chats.unsent(chat.id) == ""
    history.chats.set_unsent(chat.id, "half a\nthought")
    assert history.chats.unsent(chat.id) == "half a\nthought"
    history.chats.set_unsent(chat.id, "")
    assert history.chats.unsent(chat.id) == ""
    with pytest.raises(MissingError):
        history.chats.set_unsent(chat.id + 1, "for nobody")


def test_chats_that_do_not_exist(history: History) -> None:
    for use in (
        lambda: history.chats.get(1),
        lambda: history.chats.rename(1, "x"),
        lambda: history.chats.set_pinned(1, True),
        lambda: history.chats.undo_delete(1),
        lambda: history.messages.path(1),
        lambda: history.messages.send(1, "x"),
    ):
        with pytest.raises(MissingError, match="chat is no longer"):
            use()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello", "Hello"),
        ("> - ### Quoted  heading ###", "Quoted heading ###"),
        ("```python\nprint(1)\n```", "python"),
        ("***\n\nAfter the rule", "After the rule"),
        ("??", "??"),
        ("  \n\t ", ""),
        ("", ""),
        ("潮だまりについて", "潮だまりについて"),
        ("a" * 70, "a" * 59 + "…"),
        ("word " * 20, "word word word word word word word word word word word…"),
        (
            "One, two, three, four, five, six, seven, eight, nine, ten, eleven",
            "One, two, three, four, five, six, seven, eight, nine, ten…",
        ),
    ],
)
def test_titles_from_text(text: str, title: str) -> None:
    assert derive_title(text) == title


@given(st.text())
def test_any_text_gives_a_short_title_on_one_line(text: str) -> None:
    title = derive_title(text)
    assert len(title) <= 60
    assert len(title.splitlines()) <= 1
    assert bool(title) or not any(character.isalnum() for character in text)


def test_titles_of_copies() -> None:
    assert copy_title("Tides", {"Tides"}) == "Tides copy"
    assert copy_title("Tides copy", {"Tides copy"}) == "Tides copy 2"
    assert copy_title("Tides copy 2", {"Tides copy", "Tides copy 2"}) == "Tides copy 3"


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Tide pools", "Tide pools.md"),
        ("../../etc/passwd", "etc passwd.md"),
        ("What: is <this>?", "What is this.md"),
        ("", "Chat.md"),
        ("...", "Chat.md"),
        ("NUL", "Chat NUL.md"),
        ("con.txt", "Chat con.txt.md"),
        ("a\0b\nc", "a b c.md"),
        ("潮", "潮.md"),
    ],
)
def test_file_names_from_titles(title: str, name: str) -> None:
    assert suggested_name(title, ".md") == name


def test_what_was_left_in_the_composer_and_is_sent_is_not_left_there(history: History) -> None:
    chat, other = history.chats.create(), history.chats.create()
    for each in (chat, other):
        history.chats.set_unsent(each.id, "almost")
    history.messages.send(chat.id, "almost")
    assert (history.chats.unsent(chat.id), history.chats.unsent(other.id)) == ("", "almost")

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.background import Background
from app.bridge import Bridge
from app.controllers.answer import LiveAnswer
from app.controllers.answers import AnswerQueue
from app.controllers.chat import ChatController
from app.controllers.chats import ChatsController, Entry
from app.controllers.replay import Replay, first_difference
from app.engine_host import EngineHost, LoadRequest
from app.scripted import Said, Script, scripted_loader
from app.settings import Sampling, Settings
from app.store.errors import BusyError
from app.store.figures import draft_from_json
from app.store.history import History
from app.store.records import Message
from engine.errors import UserError
from engine.events import DraftStatus, TextDelta
from engine.worker import EngineWorker

TEXT = "Small pools hold the sky, starfish rest on silent stones, the sea breathes them in. " * 4


class Desk:
    """The controllers around a scripted engine and a history on disk, without a window."""

    def __init__(self, script: Script, path: Path) -> None:
        self.script = script
        self.path = path
        self.bridge = Bridge()
        self.host = EngineHost(scripted_loader(script), EngineWorker(), self.bridge)
        self.history = History.open(path, busy_timeout_s=0.1)
        self.queue = AnswerQueue(self.host, self.history, self.bridge)
        self.settings = Settings(sampling=Sampling(temperature=0.0))
        self.chat = ChatController(self.history, self.host, self.queue, lambda: self.settings, seed=lambda: 7)
        self.errors: list[UserError] = []
        self.chat.failed.connect(self.errors.append)
        self.queue.trouble.connect(self.errors.append)

    def close(self) -> None:
        self.queue.stop_all()
        self.host.close(5)
        self.bridge.close()
        self.queue.close()
        self.history.close()

    def stored(self, message_id: int) -> Message:
        return self.history.messages.get(message_id)


@pytest.fixture
def desk(tmp_path: Path, qapp, wait):
    made = Desk(Script(lambda _m: Said(TEXT, "Thinking first."), rate=0), tmp_path / "history.sqlite3")
    made.host.load(LoadRequest(Path("x"), "Demo"))
    wait(lambda: made.host.facts)
    yield made
    made.close()


def settle(desk: Desk, wait) -> Message:
    wait(lambda: not desk.queue.busy)
    return desk.chat.path[-1]


def test_a_message_is_answered_and_everything_is_kept(desk: Desk, wait) -> None:
    added: list[Message] = []
    desk.chat.added.connect(added.append)
    assert desk.chat.send("Hello")
    assert [m.role for m in added] == ["user", "assistant"]
    answer = settle(desk, wait)
    assert (answer.state, answer.content, answer.reasoning) == ("done", TEXT, "Thinking first.")
    assert desk.stored(answer.id) == answer
    assert answer.stats is not None
    assert answer.stats["rounds"] > 5
    assert draft_from_json(answer.draft) == DraftStatus("auto", "mtp", None, "stateful", 5, auto=True)
    assert answer.reasoning_tokens
    assert answer.options["sampling"]["seed"] == 7
    trace = desk.history.messages.trace(answer.id)
    assert sum(one.tokens for one in trace.rounds) == len(trace.token_ids) == answer.stats["completion_tokens"]
    context = desk.history.messages.context(answer.id)
    assert context[-1].token_ids == trace.token_ids
    assert desk.chat.chat is not None
    assert desk.chat.chat.title == "Hello"


def test_everything_of_the_engine_happens_on_one_thread(desk: Desk, wait) -> None:
    for text in ("one", "two"):
        desk.chat.send(text)
        settle(desk, wait)
    assert len(desk.script.threads) == 1
    assert threading.get_ident() not in desk.script.threads


def test_an_answer_lands_in_its_chat_when_another_is_opened(desk: Desk, wait) -> None:
    desk.script.rate = 400
    desk.chat.send("first chat")
    first = desk.chat.chat
    assert first is not None
    answer = desk.chat.path[-1].id
    wait(lambda: desk.chat.path[-1].content)
    desk.chat.blank()
    shown: list[object] = []
    desk.chat.streamed.connect(lambda message, _pieces: shown.append(message))
    desk.chat.send("second chat")
    second = desk.chat.path[-1].id
    assert desk.queue.chats == {first.id, desk.chat.chat.id}  # pyright: ignore[reportOptionalMemberAccess]
    settle(desk, wait)
    assert all(message.id == second for message in shown)  # pyright: ignore[reportAttributeAccessIssue]
    assert desk.stored(answer).content == TEXT
    assert desk.stored(answer).state == "done"
    assert desk.stored(second).content == TEXT
    desk.chat.open(first.id)
    assert [m.content for m in desk.chat.path] == ["first chat", TEXT]


def test_going_back_to_a_streaming_chat_shows_what_has_come(desk: Desk, wait) -> None:
    desk.script.rate = 300
    desk.chat.send("one")
    chat = desk.chat.chat
    assert chat is not None
    wait(lambda: len(desk.chat.path[-1].content) > 40)
    desk.chat.blank()
    desk.chat.open(chat.id)
    message = desk.chat.path[-1]
    assert message.state == "streaming"
    assert len(message.content) > 40
    assert settle(desk, wait).content == TEXT


def test_stop_keeps_what_came_and_the_next_turn_works(desk: Desk, wait) -> None:
    desk.script.rate = 200
    desk.chat.send("go")
    wait(lambda: len(desk.chat.path[-1].content) > 20)
    desk.chat.stop()
    answer = settle(desk, wait)
    assert answer.state == "stopped"
    assert TEXT.startswith(answer.content)
    assert 20 < len(answer.content) < len(TEXT)
    assert answer.finish_reason == "cancelled"
    desk.script.rate = 0
    desk.chat.send("again")
    assert settle(desk, wait).content == TEXT


def test_stopping_an_answer_that_waits_never_starts_it(desk: Desk, wait) -> None:
    desk.script.rate = 300
    desk.chat.send("one")
    desk.chat.blank()
    desk.chat.send("two")
    waiting = desk.chat.path[-1].id
    desk.chat.stop()
    wait(lambda: not desk.queue.busy)
    assert (desk.stored(waiting).state, desk.stored(waiting).content) == ("stopped", "")


def test_edits_and_other_answers_are_branches_and_drop_nothing(desk: Desk, wait) -> None:
    desk.chat.send("question")
    first = settle(desk, wait)
    desk.chat.send("follow-up")
    settle(desk, wait)
    desk.chat.regenerate(first.id)
    second = settle(desk, wait)
    assert [m.content for m in desk.chat.path] == ["question", TEXT]
    assert second.siblings == (first.id, second.id)
    desk.chat.switch(second.id, -1)
    assert [m.content for m in desk.chat.path] == ["question", TEXT, "follow-up", TEXT]
    desk.chat.switch(first.id, -1)
    assert desk.chat.path[1].id == first.id, "there is none before the first"
    question = desk.chat.path[0]
    desk.chat.edit(question.id, "another question")
    settle(desk, wait)
    assert [m.content for m in desk.chat.path] == ["another question", TEXT]
    desk.chat.switch(desk.chat.path[0].id, -1)
    assert [m.content for m in desk.chat.path] == ["question", TEXT, "follow-up", TEXT]
    desk.chat.retry(desk.chat.path[2].id)
    settle(desk, wait)
    assert len(desk.chat.path[-1].siblings) == 2


def test_nothing_is_sent_while_an_answer_of_the_chat_runs(desk: Desk, wait) -> None:
    desk.script.rate = 300
    desk.chat.send("one")
    assert not desk.chat.send("two")
    assert len(desk.chat.path) == 2
    assert not desk.chat.send("   ")
    settle(desk, wait)


def test_the_models_failure_stands_in_its_message_with_the_cure(desk: Desk, wait) -> None:
    desk.script.failure = UserError("The context is full.", "Start a new chat.")
    desk.chat.send("one")
    answer = settle(desk, wait)
    assert (answer.state, answer.error) == ("failed", "The context is full.\nStart a new chat.")
    desk.script.failure = KeyError("a bug")
    desk.chat.regenerate(answer.id)
    bug = settle(desk, wait)
    assert bug.state == "failed"
    assert "KeyError" in desk.queue.report(bug.id)
    desk.chat.regenerate(bug.id)
    assert settle(desk, wait).content == TEXT


def test_a_streaming_answer_is_on_disk_before_it_ends(desk: Desk, wait) -> None:
    desk.script.rate = 60
    desk.chat.send("one")
    answer = desk.chat.path[-1].id
    other = History.open(desk.path)
    try:
        wait(lambda: other.messages.get(answer).content, 5)
        assert desk.queue.busy
        assert TEXT.startswith(other.messages.get(answer).content)
    finally:
        other.close()
    desk.chat.stop()
    wait(lambda: not desk.queue.busy)


def test_a_write_lock_held_elsewhere_costs_nothing(desk: Desk, wait) -> None:
    desk.script.rate = 200
    desk.chat.send("one")
    answer = desk.chat.path[-1].id
    lock = sqlite3.connect(desk.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    settle(desk, wait)
    assert any(isinstance(error, BusyError) for error in desk.errors)
    assert desk.chat.path[-1].content == TEXT, "it is in sight all the same"
    assert not desk.chat.send("two"), "and what cannot be stored is not sent"
    lock.execute("ROLLBACK")
    lock.close()
    wait(lambda: desk.stored(answer).state == "done", 5)
    assert desk.stored(answer).content == TEXT


def test_switching_in_the_middle_changes_the_rounds_and_not_the_text(desk: Desk, wait) -> None:
    desk.script.rate = 400
    desk.chat.send("plain text")
    wait(lambda: desk.chat.running and len(desk.chat.running.live.rounds) > 4)
    desk.host.set_drafting(False)
    wait(lambda: desk.chat.running and desk.chat.running.live.rounds[-1].drafted == 0)
    desk.host.set_drafting(True)
    desk.host.set_depth(2)
    answer = settle(desk, wait)
    drafted = {one.drafted for one in desk.history.messages.trace(answer.id).rounds}
    assert drafted == {0, 4, 2}
    assert answer.content == TEXT
    desk.host.set_depth(None)


def test_effort_and_prompt_belong_to_the_chat(desk: Desk, wait) -> None:
    desk.chat.blank()
    desk.chat.set_system_prompt("Be brief.")
    desk.chat.set_effort("none")
    desk.chat.send("hi")
    answer = settle(desk, wait)
    assert answer.reasoning == ""
    assert desk.history.messages.context(answer.id)[0].content == "Be brief."
    chat = desk.chat.chat
    assert chat is not None
    desk.chat.blank()
    assert (desk.chat.system_prompt, desk.chat.effort) == ("", "high")
    desk.chat.open(chat.id)
    assert (desk.chat.system_prompt, desk.chat.effort) == ("Be brief.", "none")


def test_a_replay_runs_the_same_turn_the_other_way(desk: Desk, wait) -> None:
    desk.chat.send("one")
    answer = settle(desk, wait)
    request = desk.chat.request_for(answer.id)
    assert request is not None
    assert request.sampling["seed"] == 7
    ids = desk.history.messages.trace(answer.id).token_ids
    replay = Replay(desk.host, request, answer, ids, drafting=False)
    done: list[Message] = []
    replay.finished.connect(done.append)
    replay.start()
    wait(lambda: done)
    assert done[0].content == TEXT
    assert replay.live.stats is not None
    assert replay.live.stats.rounds == 0
    assert replay.difference().index is None
    desk.script.answers = lambda _m: Said(TEXT.replace("starfish", "crabs"), "Thinking first.")
    other = Replay(desk.host, request, answer, ids, drafting=False)
    other.finished.connect(done.append)
    other.start()
    wait(lambda: len(done) == 2)
    found = other.difference()
    assert found.index is not None
    assert (found.first, found.second) == (" starfi", " crabs")
    assert desk.stored(answer.id) == answer, "the chat is as it was"


def test_first_difference() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [1, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2


def test_a_batch_that_ends_an_answer_counts_its_text_once(desk: Desk, wait) -> None:
    desk.chat.send("one")
    message = replace(settle(desk, wait), state="streaming", content="")
    live = LiveAnswer(message)
    events = [(0.0, TextDelta("text", "all of it"))]
    pieces, state = live.take(events)
    assert (pieces, state, live.message.content) == ([("text", "all of it")], None, "all of it")


def test_the_list_of_chats(desk: Desk, wait, tmp_path: Path) -> None:
    background = Background(desk.bridge)
    chats = ChatsController(desk.history, lambda: desk.queue.chats, background)
    listed: list[list[Entry]] = []
    deleted: list[object] = []
    chats.listed.connect(listed.append)
    chats.deleted.connect(deleted.append)
    notices: list[str] = []
    imported: list[int] = []
    chats.notice.connect(notices.append)
    chats.imported.connect(imported.append)
    for title in ("Tide pools", "Pancakes"):
        desk.chat.blank()
        desk.chat.send(title)
        settle(desk, wait)
    chats.refresh()
    assert [e.chat.title for e in listed[-1]] == ["Pancakes", "Tide pools"]
    tide = listed[-1][1].chat.id
    chats.pin(tide, True)
    assert [e.chat.title for e in listed[-1]] == ["Tide pools", "Pancakes"]
    chats.rename(tide, " Rock pools ")
    assert listed[-1][0].chat.title == "Rock pools"
    chats.search("starfish")
    assert {e.chat.title for e in listed[-1]} == {"Rock pools", "Pancakes"}
    assert all("starfish" in e.snippet and e.message_id for e in listed[-1])
    chats.search("")
    copy = chats.duplicate(tide)
    assert copy is not None
    chats.delete(copy.id)
    assert len(listed[-1]) == 2
    assert len(deleted) == 1
    chats.undo(copy.id)
    assert len(listed[-1]) == 3
    for name in ("chat.md", "chat.json"):
        chats.export(tide, tmp_path / name)
        wait(lambda name=name: notices and notices[-1] == f"Saved {name}.")
        assert "starfish" in (tmp_path / name).read_text(encoding="utf-8")
        chats.import_from(tmp_path / name)
        wait(lambda: notices[-1] == "Imported 1 chat.")
    assert len(listed[-1]) == 5
    assert len(imported) == 2
    failed: list[UserError] = []
    chats.failed.connect(failed.append)
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    chats.import_from(tmp_path / "bad.json")
    wait(lambda: failed)
    background.close()

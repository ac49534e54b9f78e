"""Find in chat, hits of a search, selections that stay, and what is copied."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from test_window import done, last_view, type_and_send

from app.chat_text import as_markdown
from app.composition import Gui
from app.find import literal, places, terms
from app.scripted import Said, Script
from app.store.records import Answer
from app.views.chat.user_message import UserMessage

TALK = 60
"""Messages, so many that most have no widget."""


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("Tide pools, tide", "TIDE", [(0, 4), (12, 16)]),
        ("Café", "cafe", [(0, 4)]),
        ("😀 pool", "pool", [(3, 7)]),
        ("a+b a+b", "a+b", [(0, 3), (4, 7)]),
        ("pool", "x", []),
    ],
)
def test_places_are_counted_as_the_document_counts(text: str, query: str, found: list[tuple[int, int]]) -> None:
    pattern = literal(query)
    assert pattern is not None
    assert places(text, pattern) == found


def test_nothing_to_look_for_is_no_pattern() -> None:
    assert literal("") is None
    assert terms("  ") is None
    words = terms("pool tide")
    assert words is not None
    assert places("The tide pools", words) == [(4, 8), (9, 13)]


def answer(text: str) -> Answer:
    return Answer(
        content=text, reasoning="", tool_calls=(), token_ids=(), rounds=(), stats=None, draft=None,
        finish_reason="stop", reasoning_s=None, reasoning_tokens=None,
    )  # fmt: skip


@pytest.fixture
def talk(gui: Gui) -> Gui:
    """A chat of which only the end is in sight. Every tenth answer says "heron", in bold."""
    history = gui.services.history
    chat = history.chats.create(title="Birds")
    for i in range(TALK // 2):
        message = history.messages.send(chat.id, f"Question {i}: what flies there?")
        began = history.messages.begin_answer(message.id, model="m", options={})
        text = f"Answer {i}.\n\nA **heron** by the pool." if i % 10 == 0 else f"Answer {i}. " + "Reeds. " * 60
        history.messages.finish_answer(began.id, answer(text), state="done")
    gui.services.chats.refresh()
    gui.window.chats.open(chat.id)
    return gui


def look_for(gui: Gui, wait, text: str) -> None:
    gui.window.menus.actions["find"].trigger()
    bar = gui.window.page.find_bar
    bar.field.clear()
    QTest.keyClicks(bar.field, text)
    wait(lambda: gui.window.page.finder.complete)


def test_find_reaches_messages_that_have_no_widget_yet(talk: Gui, wait) -> None:
    page = talk.window.page
    first_heron = page.transcript.messages[1].id
    assert page.transcript.view(first_heron) is None
    look_for(talk, wait, "heron by")
    bar, finder = page.find_bar, page.finder
    assert bar.isVisible()
    assert bar.label.text().endswith("of 3"), "found as it is shown, across the markup"
    finder.step(1 - (finder.current or 0) - 1)
    assert bar.label.text() == "1 of 3"
    view = page.transcript.view(first_heron)
    assert view is not None
    assert [mark.color for mark in view.body.marks] == ["found_now"]
    QTest.keyClick(bar.field, Qt.Key.Key_Return)
    assert bar.label.text() == "2 of 3"
    QTest.keyClick(bar.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClick(bar.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert bar.label.text() == "3 of 3", "around the ends"
    talk.window.menus.actions["find_next"].trigger()
    assert bar.label.text() == "1 of 3"
    hit = finder.hits[0]
    view = page.transcript.view(hit.message_id)
    assert view is not None
    top = view.y() + view.body.y() + view.body.top_of(hit.start)
    assert 0 <= top < page.transcript.viewport().height(), "in sight"
    QTest.keyClick(bar.field, Qt.Key.Key_Escape)
    assert not bar.isVisible()
    assert not view.body.marks


def test_find_says_what_is_not_there_and_follows_what_is_typed(talk: Gui, wait) -> None:
    bar = talk.window.page.find_bar
    look_for(talk, wait, "heronn")
    assert bar.label.text() == "Not found"
    assert not bar.next.isEnabled()
    QTest.keyClick(bar.field, Qt.Key.Key_Backspace)
    wait(lambda: talk.window.page.finder.complete)
    assert bar.label.text().endswith("of 3")
    bar.field.clear()
    assert bar.label.text() == ""
    talk.window.new_chat()
    assert bar.isHidden()


def test_a_new_answer_is_looked_through_as_well(talk: Gui, script: Script, wait) -> None:
    look_for(talk, wait, "heron")
    found = talk.window.page.find_bar.label.text()
    script.answers = lambda _messages: Said("Another heron, and a heron.")
    type_and_send(talk, "more?")
    wait(lambda: done(talk))
    wait(lambda: talk.window.page.finder.complete)
    assert len(talk.window.page.finder.hits) == 5
    assert talk.window.page.find_bar.label.text() == found.replace("of 3", "of 5")
    assert talk.window.page.transcript.at_end, "the end of an answer does not scroll back to the hit"
    talk.window.page.transcript.scroll_to_end()
    assert len(last_view(talk).body.marks) == 2


def test_a_match_in_the_folded_part_of_a_long_message_unfolds_it(talk: Gui, wait) -> None:
    history = talk.services.history
    chat = history.chats.create(title="Long")
    message = history.messages.send(chat.id, "word " * 2000 + "needle")
    talk.window.chats.open(chat.id)
    look_for(talk, wait, "needle")
    view = talk.window.page.transcript.view(message.id)
    assert isinstance(view, UserMessage)
    assert "needle" in view.body.plain_text()
    assert len(view.body.marks) == 1


def test_hits_of_the_sidebar_are_marked_in_the_transcript(talk: Gui, wait) -> None:
    sidebar = talk.window.sidebar
    talk.window.new_chat()
    talk.window.menus.actions["search_chats"].trigger()
    sidebar.search.setText("pool heron")
    wait(lambda: sidebar.model.index(0).data() == "Results")
    sidebar.list.setCurrentIndex(sidebar.model.index(1))
    wait(lambda: talk.window.page.finder.complete)
    page = talk.window.page
    assert page.find_bar.isVisible()
    assert page.find_bar.label.text().endswith("of 6"), "each of the words"
    hit = page.finder.hits[page.finder.current or 0]
    view = page.transcript.view(hit.message_id)
    assert view is not None
    assert len(view.body.marks) == 2
    assert not page.find_bar.field.hasFocus(), "the arrow keys go on in the list"


# -- selections -------------------------------------------------------------------------------


def test_a_selection_stays_while_the_answer_streams_and_after_it(gui: Gui, script: Script, wait) -> None:
    script.answers, script.rate = lambda _m: Said("One line here.\n\n" + "More words follow. " * 400), 300
    type_and_send(gui, "one")
    wait(lambda: gui.services.chat.path and len(gui.services.chat.path[-1].content) > 60)
    view = last_view(gui)
    wait(lambda: "More" in view.body.plain_text())
    left, shift = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier
    QTest.mouseClick(view.body, left, pos=QPoint(0, 8))
    QTest.mouseClick(view.body, left, shift, pos=QPoint(40, 8))
    chosen = view.body.selected_text()
    assert chosen
    assert "One line here.".startswith(chosen)
    length = len(view.body.source)
    wait(lambda: len(view.body.source) > length + 100)
    assert view.body.selected_text() == chosen
    script.rate = 0
    wait(lambda: done(gui))
    assert last_view(gui).body.selected_text() == chosen


def test_a_selection_stays_when_it_is_scrolled_out_and_back(talk: Gui, qapp: QApplication) -> None:
    talk.window.activateWindow()
    transcript = talk.window.page.transcript
    last = transcript.messages[-1].id
    view = transcript.view(last)
    assert view is not None
    view.body.setFocus()
    QTest.keyClick(view.body, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    source = view.body.source
    bar = transcript.verticalScrollBar()
    for value in range(bar.maximum(), -1, -max(1, bar.maximum() // 40)):
        bar.setValue(value)
        qapp.processEvents()
    assert transcript.view(last) is None
    QTest.keyClick(transcript, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == source, "copied from out of sight"
    bar.setValue(bar.maximum())
    back = transcript.view(last)
    assert back is not None
    assert back.body.selected_text() == source
    # Another selection ends it.
    other = transcript.view(transcript.visible_ids[-2])
    assert other is not None
    other.body.select_all()
    assert not back.body.has_selection


def test_the_whole_chat_is_copied_as_markdown(gui: Gui, wait) -> None:
    type_and_send(gui, "A haiku, please")
    wait(lambda: done(gui))
    gui.window.menus.actions["copy_chat"].trigger()
    text = QGuiApplication.clipboard().text()
    assert text.startswith("# A haiku, please\n\n## You\n\nA haiku, please\n\n## Inkling\n\n## Tide pools")
    assert "They ask" not in text, "not what was thought"
    assert as_markdown("T", []) == "# T\n"

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QTextCursor, QWheelEvent
from PySide6.QtWidgets import QApplication

from app.rounds import as_text, runs
from app.store.records import Message, Round
from app.theme import Theme
from app.views.chat.message import AssistantMessage
from app.views.chat.pacer import FRAME_MS
from app.views.chat.pool import KEPT
from app.views.chat.rounds import document_positions, spans
from app.views.chat.transcript import Transcript
from app.views.chat.user_message import UserMessage
from engine.messages import ToolCall

Wait = Callable[..., None]


def message(number: int, content: str = "", *, state: str = "done", reasoning: str = "") -> Message:
    """Even numbers are the user's, odd ones the model's."""
    user = number % 2 == 0
    text = content or ("A question?" if user else "An answer. " * (1 + number % 40))
    return Message(
        id=number,
        chat_id=1,
        parent_id=number - 1 if number else None,
        role="user" if user else "assistant",
        state=state,  # pyright: ignore[reportArgumentType]
        content=text,
        reasoning=reasoning,
        name=None,
        tool_calls=(),
        tool_call_id=None,
        stats=None,
        draft=None,
        finish_reason=None,
        error=None,
        created_at=1e9,
        model="",
        options={},
        reasoning_s=None,
        reasoning_tokens=None,
        siblings=(number,),
    )


@pytest.fixture
def transcript(theme: Theme, qapp: QApplication) -> Iterator[Transcript]:
    view = Transcript(theme)
    view.resize(800, 600)
    view.show()
    qapp.processEvents()
    yield view
    view.close()
    view.deleteLater()
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def wheel(view: Transcript, lines: int) -> None:
    at = QPointF(view.viewport().rect().center())
    event = QWheelEvent(
        at,
        QPointF(view.viewport().mapToGlobal(at.toPoint())),
        QPoint(0, lines * 40),
        QPoint(0, lines * 120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(view.viewport(), event)


def top_of(view: Transcript, message_id: int) -> int:
    widget = view.view(message_id)
    assert widget is not None
    return widget.y()


def test_two_thousand_messages_need_a_few_widgets(transcript: Transcript, qapp: QApplication) -> None:
    began = time.perf_counter()
    transcript.set_messages([message(i) for i in range(2000)])
    qapp.processEvents()
    assert time.perf_counter() - began < 1.5  # 0.1 s alone; the bench holds the promised bound
    assert transcript.view(1999) is not None, "it opens at its end"
    assert len(transcript.findChildren(AssistantMessage)) < 15
    bar = transcript.verticalScrollBar()
    for i in range(60):
        bar.setValue(bar.maximum() * i // 60)
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    made = transcript.findChildren(AssistantMessage) + transcript.findChildren(UserMessage)
    assert len(made) <= KEPT + len(transcript.visible_ids)


def test_what_was_laid_out_before_the_window_is_shown_leaves_nothing_behind(theme: Theme, qapp: QApplication) -> None:
    """Answers that turn out higher than estimated push messages out of sight that have a widget by then."""
    view = Transcript(theme)
    view.resize(800, 400)
    view.set_messages([message(2 * i + 1, "|a|b|\n|-|-|\n" + "|1|2|\n" * 3) for i in range(8)])
    view.show()
    qapp.processEvents()
    made = view.findChildren(AssistantMessage) + view.findChildren(UserMessage)
    shown = {widget.message.id for widget in made if widget.isVisible()}
    assert len(made) > len(shown) == len(view.visible_ids)
    assert shown == set(view.visible_ids)
    view.close()
    view.deleteLater()
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def test_no_text_moves_while_estimates_become_heights(transcript: Transcript) -> None:
    transcript.set_messages([message(i, "word " * (300 if i % 3 else 3)) for i in range(200)])
    bar = transcript.verticalScrollBar()
    for _ in range(150):
        before = {i: top_of(transcript, i) for i in transcript.visible_ids}
        value = bar.value()
        bar.setValue(value - 60)
        if value < 60:
            break
        stayed = [i for i in transcript.visible_ids if i in before]
        moved = {top_of(transcript, i) - before[i] for i in stayed}
        assert moved == {60}, "everything in sight moves by what was scrolled"


def stream(view: Transcript, number: int, pieces: int) -> Message:
    """Stream a long answer, flushing after each piece."""
    current = message(number, " ", state="streaming")
    current = replace(current, content="")
    view.append(current)
    for i in range(pieces):
        text = f"Paragraph {i} of the answer.\n\n"
        current = replace(current, content=current.content + text)
        view.stream(current, [("text", text)])
        view._pacer.flush()
    return current


def test_a_streaming_answer_is_followed_at_the_end(transcript: Transcript) -> None:
    transcript.set_messages([message(i) for i in range(20)])
    stream(transcript, 21, 40)
    bar = transcript.verticalScrollBar()
    assert transcript.at_end
    assert bar.value() == bar.maximum()


def test_the_end_of_an_answer_is_followed_too(transcript: Transcript) -> None:
    transcript.set_messages([message(i) for i in range(20)])
    current = stream(transcript, 21, 30)
    transcript.finish(replace(current, state="done", content=current.content + "more\n\n" * 8))
    bar = transcript.verticalScrollBar()
    assert bar.value() == bar.maximum()


def test_the_end_of_an_answer_renders_only_what_is_new(transcript: Transcript) -> None:
    current = stream(transcript, 1, 30)
    view = transcript.view(1)
    assert isinstance(view, AssistantMessage)
    document = view.body.markdown.document
    changes: list[int] = []
    document.contentsChange.connect(lambda position, _removed, _added: changes.append(position))
    length = document.characterCount()
    call = ToolCall("clock", {"zone": "UTC"}, "1")
    transcript.finish(replace(current, state="done", content=current.content + "The end.", tool_calls=(call,)))
    assert view.body.markdown.document is document
    assert min(changes) > length - 60, "the last paragraph and what follows"
    assert '"zone": "UTC"' in view.body.plain_text()
    assert view.body.plain_text() == view.body.accessibleDescription()


def test_an_answer_that_ends_out_of_sight_is_rendered_when_it_is_seen(transcript: Transcript) -> None:
    transcript.set_messages([message(i) for i in range(60)])
    current = stream(transcript, 61, 3)
    transcript.verticalScrollBar().setValue(0)
    view = transcript._pool.get(61)
    assert isinstance(view, AssistantMessage)
    long = current.content + "More and more. " * 2000
    maximum = transcript.verticalScrollBar().maximum()
    transcript.finish(replace(current, state="done", content=long))
    assert "More" not in view.body.plain_text()
    assert transcript.verticalScrollBar().maximum() > maximum + 2000
    assert transcript.verticalScrollBar().value() == 0
    transcript.scroll_to_end()
    assert transcript.view(61) is view
    assert view.body.plain_text().count("More") == 2000


def test_folded_reasoning_is_not_rendered(transcript: Transcript) -> None:
    current = replace(message(1, " ", state="streaming"), content="", reasoning="First *thought*. ")
    transcript.set_messages([current])
    view = transcript.view(1)
    assert isinstance(view, AssistantMessage)
    reasoning = view.reasoning
    current = replace(current, reasoning=current.reasoning + "Second **thou", content="So.")
    transcript.stream(current, [("reasoning", "Second **thou"), ("text", "So.")])
    transcript.finish(replace(current, state="done"))
    assert reasoning.body.plain_text() == ""
    reasoning.head.click()
    assert reasoning.body.plain_text() == "First thought. Second **thou"
    transcript._restyle()
    assert reasoning.body.plain_text() == "First thought. Second **thou"
    reasoning.head.click()
    transcript._restyle()
    reasoning.head.click()
    assert reasoning.body.plain_text() == "First thought. Second **thou"


def test_slow_rendering_is_followed_by_a_pause(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    current = stream(transcript, 1, 1)
    transcript.stream(current, [("text", "x")])
    assert transcript._pacer.pause_ms == FRAME_MS
    view = transcript.view(1)
    assert isinstance(view, AssistantMessage)
    monkeypatch.setattr(view, "flush", lambda _message: time.sleep(0.05))
    transcript._pacer.flush()
    assert transcript._pacer.pause_ms >= 200


def test_what_the_reader_unfolds_stays_under_the_pointer(transcript: Transcript) -> None:
    messages = [message(i, reasoning="Thought. " * 200 if i % 2 else "") for i in range(40)]
    transcript.set_messages(messages)
    view = transcript.view(39)
    assert isinstance(view, AssistantMessage)
    top = top_of(transcript, 39)
    view.reasoning.head.click()
    assert top_of(transcript, 39) == top
    assert not transcript.at_end


def test_scrolling_up_is_never_stolen(transcript: Transcript) -> None:
    transcript.set_messages([message(i) for i in range(40)])
    current = stream(transcript, 41, 20)
    wheel(transcript, 3)
    assert not transcript.at_end
    value = transcript.verticalScrollBar().value()
    tops = {i: top_of(transcript, i) for i in transcript.visible_ids}
    for i in range(40):
        text = f"More {i}.\n\n"
        current = replace(current, content=current.content + text)
        transcript.stream(current, [("text", text)])
        transcript._pacer.flush()
    transcript.finish(replace(current, state="done"))
    assert transcript.verticalScrollBar().value() == value
    assert {i: top_of(transcript, i) for i in transcript.visible_ids} == tops
    assert transcript._jump.isVisible()
    transcript._theme.set(reduce_motion=True)
    transcript._jump.click()
    assert transcript.at_end


def test_the_way_down_is_short_and_can_be_cut(transcript: Transcript, theme: Theme, wait: Wait) -> None:
    transcript.set_messages([message(i) for i in range(60)])
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() - 500)
    began = time.monotonic()
    transcript._jump.click()
    assert bar.value() < bar.maximum()
    wait(lambda: transcript.at_end)
    assert time.monotonic() - began < 1
    theme.set(reduce_motion=True)
    bar.setValue(bar.maximum() - 500)
    transcript._jump.click()
    assert bar.value() == bar.maximum()


def test_what_streams_out_of_sight_is_there_later(transcript: Transcript) -> None:
    transcript.set_messages([message(i) for i in range(60)])
    current = replace(message(61, " ", state="streaming"), content="")
    transcript.append(current)
    transcript.verticalScrollBar().setValue(0)
    for i in range(30):
        current = replace(current, content=current.content + f"part {i} ")
        transcript.stream(current, [("text", f"part {i} ")])
    transcript.finish(replace(current, state="done"))
    transcript.scroll_to_end()
    view = transcript.view(61)
    assert view is not None
    assert view.body.plain_text().strip() == " ".join(f"part {i}" for i in range(30))


def test_a_smaller_window_keeps_the_column_and_the_place(transcript: Transcript, qapp: QApplication) -> None:
    transcript.set_messages([message(i, "word " * 120) for i in range(100)])
    transcript.verticalScrollBar().setValue(3000)
    transcript.resize(1400, 600)
    qapp.processEvents()
    assert all(transcript.view(i).width() == 720 for i in transcript.visible_ids)  # pyright: ignore[reportOptionalMemberAccess]
    transcript.resize(420, 600)
    qapp.processEvents()
    assert all(transcript.view(i).width() == 420 - 48 for i in transcript.visible_ids)  # pyright: ignore[reportOptionalMemberAccess]
    assert not transcript.at_end


def test_an_edit_survives_scrolling_away(transcript: Transcript) -> None:
    transcript.set_messages([message(i) for i in range(200)])
    transcript.show_message(100)
    view = transcript.view(100)
    assert isinstance(view, UserMessage)
    view.start_edit()
    editor = view._editor
    assert editor is not None
    editor.setPlainText("changed text")
    bar = transcript.verticalScrollBar()
    for i in range(50):
        bar.setValue(bar.maximum() * i // 50)
    transcript.show_message(100)
    sent: list[tuple[int, str]] = []
    transcript.edited.connect(lambda number, text: sent.append((number, text)))
    again = transcript.view(100)
    assert again is view
    again._send_edit()  # pyright: ignore[reportAttributeAccessIssue]
    assert sent == [(100, "changed text")]


def test_reasoning_unfolds_and_pushes_the_rest_down(transcript: Transcript) -> None:
    transcript.set_messages([message(0), message(1, "Short.", reasoning="Long thought. " * 60), message(2)])
    view = transcript.view(1)
    assert isinstance(view, AssistantMessage)
    below, body = top_of(transcript, 2), view.reasoning.body
    assert body.isHidden()
    view.reasoning.head.click()
    assert body.isVisible()
    assert "Long thought." in body.plain_text()
    assert top_of(transcript, 2) - below > 60


def test_a_huge_message_is_folded(transcript: Transcript) -> None:
    began = time.perf_counter()
    transcript.set_messages([message(0, "x" * 5_000_000), message(1)])
    assert time.perf_counter() - began < 1
    view = transcript.view(0)
    assert isinstance(view, UserMessage)
    assert view.height() < 1500
    assert view.message.content == "x" * 5_000_000


# -- rounds ---------------------------------------------------------------------------------------

TEXT = "**Small** pools\n\n- hold `the` sky\n\n```python\nprint(1)\n```\nEnd."
PIECES = [
    "think",
    "ing",
    "",
    "**Sm",
    "all** po",
    "ols\n\n- h",
    "old `the`",
    " sky\n\n```py",
    "thon\nprint(1",
    ")\n```",
    "\nEnd",
    ".",
    "",
]
ROUNDS = [Round(1, 0, 0, 10.0), Round(4, 4, 3, 30.0), Round(5, 4, 4, 31.0), Round(2, 4, 1, 29.0), Round(1, 4, 0, 28.0)]


def test_runs_cover_the_text_in_order() -> None:
    found = runs(range(len(PIECES)), ROUNDS, TEXT, lambda i: PIECES[i].encode())
    assert [run.number for run in found] == [2, 3, 4]
    assert "".join(TEXT[run.start : run.end] for run in found) == TEXT
    assert TEXT[found[0].bonus : found[0].end] == "all** po"
    assert found[1].tip == "Round 3: 4 of 4 drafts accepted, 31.0 ms"
    words = as_text(TEXT, found)
    assert words.count("\n") == len(found) - 1
    assert "Round 4: 1 of 4 drafts accepted" in words


def test_a_character_over_two_tokens_goes_to_the_last() -> None:
    ids = [0, 1, 2]
    pieces = [b"a\xf0\x9f", b"\x98\x80", b"b"]
    found = runs(ids, [Round(2, 1, 1, 1.0), Round(1, 1, 0, 1.0)], "a😀b", lambda i: pieces[i])
    assert [("a😀b"[r.start : r.bonus], "a😀b"[r.bonus : r.end]) for r in found] == [("a", "😀"), ("", "b")]


def test_tints_stand_on_the_shown_characters(transcript: Transcript) -> None:
    transcript.set_messages([message(0), message(1, TEXT)])
    view = transcript.view(1)
    assert isinstance(view, AssistantMessage)
    markdown = view.body.markdown
    shown = markdown.document.toPlainText()
    positions = document_positions(markdown)
    for word in ("Small", "pools", "hold", "the", "sky", "print(1)", "End."):
        assert positions[TEXT.index(word)] == shown.index(word), word
    found = runs(range(len(PIECES)), ROUNDS, TEXT, lambda i: PIECES[i].encode())
    tints = spans(markdown, TEXT, found)
    assert all(a.end <= b.start for a, b in pairwise(tints))
    transcript.decorate(1, lambda shown_view: shown_view.set_rounds(spans(shown_view.body.markdown, TEXT, found)))
    rect = view.body.markdown.document.documentLayout().blockBoundingRect(view.body.markdown.document.firstBlock())
    assert "drafts accepted" in view.body.tip_at(QPointF(rect.left() + 20, rect.center().y()))


def test_tints_stand_on_the_shown_characters_after_emoji(transcript: Transcript) -> None:
    pieces = ["🌊 **Tide** ", "pools 🦀🐚 ", "hold ", "👩‍🔬 the ", "sky.\n\n", "- 🐙 arms\n", "- `eight🐙` of ", "them"]
    text = "".join(pieces)
    transcript.set_messages([message(0), message(1, text)])
    view = transcript.view(1)
    assert isinstance(view, AssistantMessage)
    document = view.body.markdown.document

    def shown(start: int, end: int) -> str:
        cursor = QTextCursor(document)
        cursor.setPosition(start)
        cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
        return cursor.selectedText().strip()

    positions = document_positions(view.body.markdown)
    for word in ("🌊", "Tide", "🦀", "hold", "👩‍🔬", "sky", "🐙", "arms", "eight🐙", "them"):
        place = positions[text.index(word)]
        assert shown(place, place + len(word.encode("utf-16-le")) // 2) == word
    rounds = [Round(len(pieces[i : i + 2]), 1, 1, 30.0) for i in range(0, len(pieces), 2)]
    tints = spans(view.body.markdown, text, runs(range(len(pieces)), rounds, text, lambda i: pieces[i].encode()))
    assert [shown(tint.start, tint.end) for tint in tints] == [
        "🌊 Tide", "pools 🦀🐚", "hold", "👩‍🔬 the", "sky.", "🐙 arms", "eight🐙 of", "them",
    ]  # fmt: skip


def test_tints_stand_on_the_shown_characters_after_line_ends_of_two_characters(transcript: Transcript) -> None:
    pieces = ["one\r\n\r\n", "two ", "three\r\n", "\r\nfour ", "five\r", "six"]
    text = "".join(pieces)
    transcript.set_messages([message(0), message(1, text)])
    view = transcript.view(1)
    assert isinstance(view, AssistantMessage)
    found = runs(range(6), [Round(1, 1, 0, 1.0)] * 6, text, lambda i: pieces[i].encode())
    shown = view.body.markdown.document.toPlainText()
    tints = spans(view.body.markdown, text, found)
    assert [shown[tint.start : tint.end].strip() for tint in tints] == ["one", "two", "three", "four", "five", "six"]


def test_tints_come_back_with_the_widget_and_the_theme(transcript: Transcript, theme: Theme) -> None:
    transcript.set_messages([message(i) for i in range(300)])
    applied: list[int] = []
    transcript.decorate(299, lambda view: applied.append(view.message.id))
    bar = transcript.verticalScrollBar()
    for i in range(40):
        bar.setValue(bar.maximum() * i // 40)
    transcript.scroll_to_end()
    assert len(applied) == 2
    theme.set(mode="dark")
    assert len(applied) == 3

"""One message of the transcript as a widget that knows its height at any width."""

from __future__ import annotations

import json
import time

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.crash import BUG
from app.store.figures import draft_from_json, stats_from_json
from app.store.records import Message
from app.theme import Theme
from app.views.chat.focus_chain import chain_focus
from app.views.chat.parts import Branches, Callout, Cure, Reasoning
from app.views.chat.spans import Span
from app.views.chat.text_body import TextBody
from app.views.controls import IconButton
from app.views.labels import Label, tip_of
from app.wording import footer, truth

FINISH_NOTES = {
    "context": (
        "The context is full, so the answer ends here.",
        "Start a new chat, or load the model with a longer context if it was made for one.",
        (Cure("New chat", "new-chat"), Cure("Settings…", "settings:Model")),
    ),
    "length": (
        "The answer reached the most tokens that an answer may have.",
        "Raise the limit in the settings.",
        (Cure("Settings…", "limit"),),
    ),
}
"""Title, hint and buttons of answers that did not end by themselves, by the reason."""


def clock(moment: float) -> str:
    return time.strftime("%H:%M", time.localtime(moment))


def display_source(message: Message) -> str:
    """The answer and its tool calls as one Markdown text."""
    calls = [
        f"\n\n```json {call.name}\n{json.dumps({'tool': call.name, 'arguments': call.arguments}, indent=2)}\n```"
        for call in message.tool_calls
    ]
    return message.content + "".join(calls)


class AssistantMessage(QWidget):
    """Signals: resized (ask `height_for` again), action(name, message id), link(address), selecting."""

    resized = Signal()
    action = Signal(str, int)
    link = Signal(str)
    selecting = Signal()

    def __init__(self, theme: Theme, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.message = message
        self._callout: Callout | None = None
        self._running_since: float | None = None
        self.reasoning = Reasoning(theme, self)
        self.reasoning.hide()
        self.body = TextBody(theme, "Answer from Inkling", self)
        self._figures = Label(theme, "", self, color="text_3", delta=-2, tabular=True, wrap=True)
        self._truth = Label(theme, "", self, color="text_3", delta=-2, wrap=True)
        self._branches = Branches(theme, self)
        self._actions = {
            name: IconButton(theme, icon, label, self, size=24, color="text_3")
            for name, icon, label in (
                ("copy", "copy", "Copy answer"),
                ("regenerate", "retry", "Regenerate"),
                ("replay", "compare", "Replay the other way"),
                ("rounds", "rounds", "Show rounds"),
            )
        }
        self._actions["rounds"].setCheckable(True)
        self.reasoning.resized.connect(self.resized)
        self.body.height_changed.connect(self.resized)
        for body in (self.body, self.reasoning.body):
            body.link_clicked.connect(self.link)
            body.selecting.connect(lambda body=body: self._select_only(body))
        for name, button in self._actions.items():
            button.clicked.connect(lambda _checked=False, name=name: self.action.emit(name, self.message.id))
        self._branches.step.connect(self._step)
        self.show_message(message)

    # -- content ------------------------------------------------------------------------------

    def show_message(self, message: Message) -> None:
        """Show another state of the message."""
        self.message = message
        streaming = message.state == "streaming"
        self.body.show_source(display_source(message), final=not streaming)
        self.reasoning.show_source(message.reasoning, final=not streaming)
        self._refresh()

    def add(self, channel: str, text: str) -> None:
        """More of the answer; painted with the next `flush`."""
        (self.reasoning.body if channel == "reasoning" else self.body).append(text)

    def flush(self, message: Message) -> None:
        """Paint what `add` brought, with the figures of `message`, which still streams."""
        was, self.message = self.message, message
        if self.reasoning.expanded and self.reasoning.body.markdown.pending:
            self.reasoning.body.flush()
        if self.body.markdown.pending:
            self.body.flush()
        if bool(was.reasoning) != bool(message.reasoning) or bool(was.content) != bool(message.content):
            self._refresh()
            self.resized.emit()
        else:
            self._refresh_summary()

    def _refresh_summary(self) -> None:
        message = self.message
        thinking = message.state == "streaming" and not message.content
        self.reasoning.set_summary(message.reasoning_s, message.reasoning_tokens, thinking)

    def _refresh(self) -> None:
        message = self.message
        streaming = message.state == "streaming"
        self.reasoning.setVisible(bool(message.reasoning))
        self._refresh_summary()
        stats, draft = stats_from_json(message.stats), draft_from_json(message.draft)
        figures = "" if streaming else footer(stats)
        if message.state == "stopped":
            figures = f"Stopped  ·  {figures}" if figures else "Stopped"
        self._figures.set_text(figures)
        text, differs = ("", False) if streaming else truth(draft, stats)
        self._truth.set_text(text)
        self._truth.set_color("warning" if differs else "text_3")
        self._truth.setToolTip(tip_of(text))
        self._figures.setAccessibleName(f"Figures: {self._figures.text()}")
        self._truth.setAccessibleName(f"What ran: {text}")
        self._branches.set_branch(*message.branch)
        for name, button in self._actions.items():
            needs_rounds = name in ("replay", "rounds")
            usable = stats is not None and message.state != "failed" if needs_rounds else True
            button.setVisible(not streaming and usable)
        self._show_callout()
        self.update()

    def _show_callout(self) -> None:
        if self._callout is not None:
            self._callout.hide()
            self._callout.deleteLater()
            self._callout = None
        message = self.message
        again = Cure("Try again", "regenerate")
        if message.state == "failed":
            title, _, hint = (message.error or "The answer failed.").partition("\n")
            cures = [again, Cure("Show report", "report")] if title == BUG else [again]
            self._callout = Callout(self._theme, title, hint, cures, self, danger=True)
        elif message.state == "done" and message.finish_reason in FINISH_NOTES:
            title, hint, cures = FINISH_NOTES[message.finish_reason]
            self._callout = Callout(self._theme, title, hint, cures, self, danger=False)
        if self._callout is not None:
            self._callout.action.connect(self._act)
            self._callout.show()
            # Made last, its buttons would come last of the whole window.
            chain_focus(self.body, [self._callout])

    def unfold(self) -> None:
        """Answers are always shown whole."""

    def copy_selection(self) -> None:
        """What is selected in the answer or in its reasoning."""
        for body in (self.body, self.reasoning.body):
            body.copy()

    def _select_only(self, chosen: TextBody) -> None:
        for body in (self.body, self.reasoning.body):
            if body is not chosen:
                body.clear_selection()
        self.selecting.emit()

    def set_rounds(self, spans: list[Span]) -> None:
        """Tint the answer's rounds, or nothing."""
        self.body.set_spans(spans)
        self._actions["rounds"].setChecked(bool(spans))

    def _act(self, name: str) -> None:
        self.action.emit(name, self.message.id)

    def _step(self, by: int) -> None:
        self.action.emit("next" if by > 0 else "previous", self.message.id)

    def restyle(self) -> None:
        self.body.restyle()
        self.reasoning.restyle()
        self._refresh()

    # -- geometry -----------------------------------------------------------------------------

    def height_for(self, width: int) -> int:
        """Lay the parts out at `width` and return the height they take."""
        y = 28
        message = self.message
        if message.reasoning:
            height = self.reasoning.height_for(width)
            self.reasoning.setGeometry(0, y, width, height)
            y += height + 4
        has_text = bool(self.body.source)
        self.body.setVisible(has_text)
        if has_text:
            height = self.body.height_for(width)
            self.body.setGeometry(0, y, width, height)
            y += height
        elif message.state == "streaming" and not message.reasoning:
            y += 24
        if self._callout is not None:
            height = self._callout.height_for(width)
            self._callout.setGeometry(0, y + 8, width, height)
            y += height + 8
        if message.state == "streaming":
            return y + 16
        return self._place_footer(width, y + 6)

    def _place_footer(self, width: int, y: int) -> int:
        x = -4
        for button in self._actions.values():
            if not button.isHidden():
                button.move(x, y)
                x += 26
        if not self._branches.isHidden():
            self._branches.adjustSize()
            self._branches.move(x, y)
            x += self._branches.width() + 4
        metrics = QFontMetrics(self._figures.font())
        wanted = metrics.horizontalAdvance(self._figures.text()) + 4
        x += 8
        if x + wanted > width:
            x, y = 0, y + 24
        height = max(24, self._figures.heightForWidth(width - x)) if wanted > width - x else 24
        self._figures.setGeometry(x, y, min(wanted, width - x), height)
        x, y = x + wanted + 4, y + height - 24
        self._truth.setVisible(bool(self._truth.text()))
        if self._truth.isHidden():
            return y + 24 + 16
        room = width - x
        needed = metrics.horizontalAdvance(self._truth.text()) + 4
        if room >= needed:
            self._truth.setGeometry(width - needed, y, needed, 24)
            return y + 24 + 16
        height = max(20, self._truth.heightForWidth(width))
        self._truth.setGeometry(0, y + 24, width, height)
        return y + 24 + height + 16

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self._theme.color("text"))
        painter.setFont(self._theme.font(-1, weight=600))
        name = QRectF(0, 0, self.width(), 24)
        painter.drawText(name, Qt.AlignmentFlag.AlignVCenter, "Inkling")
        advance = painter.fontMetrics().horizontalAdvance("Inkling")
        painter.setPen(self._theme.color("text_3"))
        painter.setFont(self._theme.font(-2))
        painter.drawText(
            name.adjusted(advance + 8, 0.5, 0, 0), Qt.AlignmentFlag.AlignVCenter, clock(self.message.created_at)
        )
        if self.message.state == "streaming" and not self.message.content and not self.message.reasoning:
            painter.drawText(QRectF(0, 28, self.width(), 24), Qt.AlignmentFlag.AlignVCenter, "Reading the prompt…")

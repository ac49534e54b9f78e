"""The list of messages: widgets exist only for what is in sight, and the text never moves under the reader.

Heights of messages that were never shown are estimated from their length. When one comes into sight its true height
takes the place of the estimate and the scroll position is corrected by the difference, so nothing jumps.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QWidget

from app.store.records import Message
from app.theme import COLUMN, GRID, Theme
from app.views.chat.message import AssistantMessage
from app.views.chat.user_message import SHOWN, UserMessage
from app.views.controls import RoundButton

FRAME_MS = 33
"""A streaming answer is painted at most every so many milliseconds."""
KEPT = 24
"""Widgets kept after they left the view, so that going back is free."""
PAD = 3 * GRID
MessageWidget = AssistantMessage | UserMessage
Decorator = Callable[[AssistantMessage], None]


class Transcript(QAbstractScrollArea):
    """Signals: action(name, message id), edited(message id, new text), link(address)."""

    action = Signal(str, int)
    edited = Signal(int, str)
    link = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._messages: list[Message] = []
        self._heights: list[int] = []
        self._measured: list[bool] = []
        self._index: dict[int, int] = {}
        self._views: OrderedDict[int, MessageWidget] = OrderedDict()
        self._visible: list[int] = []
        self._dirty: set[int] = set()
        self._width = 0
        self._stick = True
        self._busy = False
        self._decorators: dict[int, Decorator] = {}
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Conversation")
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.verticalScrollBar().setSingleStep(5 * GRID)
        self._jump = RoundButton(theme, "arrow-down", "Jump to the latest message", self, filled=False)
        self._jump.hide()
        self._jump.clicked.connect(self.scroll_to_end)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._flush)
        theme.changed.connect(self._restyle)

    # -- content ------------------------------------------------------------------------------

    def set_messages(self, messages: Sequence[Message]) -> None:
        """Show another conversation from its end, or the same one along another branch from where it is."""
        same = bool(self._messages) and bool(messages) and self._messages[0].chat_id == messages[0].chat_id
        known = {m.id: h for m, h, done in zip(self._messages, self._heights, self._measured, strict=True) if done}
        if not same:
            self._drop_all()
            self._stick = True
        self._messages = list(messages)
        self._index = {message.id: i for i, message in enumerate(messages)}
        self._heights = [known.get(m.id) or self._estimate(m) for m in messages]
        self._measured = [m.id in known for m in messages]
        for message in messages:
            view = self._views.get(message.id)
            if view is not None and view.message != message:
                view.show_message(message)
                self._measured[self._index[message.id]] = False
        self._layout()

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self._index[message.id] = len(self._messages)
        self._messages.append(message)
        self._heights.append(self._estimate(message))
        self._measured.append(False)
        self._layout()

    def stream(self, message: Message, pieces: Sequence[tuple[str, str]]) -> None:
        """More of a streaming answer: `message` as it is now and the (channel, text) that are new in it."""
        i = self._index.get(message.id)
        if i is None:
            return
        self._messages[i] = message
        view = self._views.get(message.id)
        if isinstance(view, AssistantMessage):
            for channel, text in pieces:
                view.add(channel, text)
        self._dirty.add(message.id)
        if not self._timer.isActive():
            self._timer.start(FRAME_MS)

    def finish(self, message: Message) -> None:
        """The final state of an answer, shown at once."""
        i = self._index.get(message.id)
        if i is None:
            return
        self._messages[i] = message
        self._dirty.discard(message.id)
        view = self._views.get(message.id)
        if view is not None:
            view.show_message(message)
            self._measured[i] = False
        self._layout()

    @property
    def messages(self) -> Sequence[Message]:
        return self._messages

    def view(self, message_id: int) -> MessageWidget | None:
        """The widget of a message in sight."""
        return self._views.get(message_id) if message_id in self._visible else None

    @property
    def visible_ids(self) -> Sequence[int]:
        return self._visible

    def decorate(self, message_id: int, decorator: Decorator | None) -> None:
        """Apply `decorator` to the answer's widget now and whenever it is made again."""
        if decorator is None:
            self._decorators.pop(message_id, None)
        else:
            self._decorators[message_id] = decorator
        view = self._views.get(message_id)
        if isinstance(view, AssistantMessage):
            if decorator is None:
                view.set_rounds([])
            else:
                decorator(view)

    # -- scrolling ----------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """Whether the view follows new text."""
        return self._stick

    def scroll_to_end(self) -> None:
        self._stick = True
        self._layout()

    def show_message(self, message_id: int) -> None:
        """Scroll so that a message's top is in sight."""
        i = self._index.get(message_id)
        if i is None:
            return
        self._stick = False
        for _ in range(2):
            # Twice: the first pass replaces estimates around it by true heights.
            bar = self.verticalScrollBar()
            self._set_value(min(self._tops()[i] - GRID, bar.maximum()))
            self._layout()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        if self._busy:
            return
        bar = self.verticalScrollBar()
        self._stick = bar.value() >= bar.maximum() - 4
        self._layout()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.verticalScrollBar()
        if event.key() == Qt.Key.Key_Home:
            bar.setValue(0)
        elif event.key() == Qt.Key.Key_End:
            self.scroll_to_end()
        else:
            super().keyPressEvent(event)

    # -- layout -------------------------------------------------------------------------------

    def _column(self) -> tuple[int, int]:
        """Left edge and width of the text column."""
        # Of the whole width, so that the text does not move aside when the scroll bar comes.
        available = self.width()
        width = max(200, min(COLUMN, available - 2 * PAD))
        return max(0, (available - width) // 2), width

    def _estimate(self, message: Message) -> int:
        width = max(200, self._width or COLUMN)
        text = message.content if message.role != "user" else message.content[:SHOWN]
        glyph, line = self._theme.base * 0.56, self._theme.base * 1.65
        lines = text.count("\n") + len(text) * glyph / width + 1
        return round(90 + lines * line)

    def _tops(self) -> list[int]:
        return [PAD, *(PAD + total for total in accumulate(self._heights))]

    def _layout(self) -> None:
        """Make, measure and place what is in sight."""
        if self._busy:
            return
        self._busy = True
        try:
            left, width = self._column()
            if width != self._width:
                self._rewidth(width)
            height = self.viewport().height()
            value = self.verticalScrollBar().value()
            tops, total, first, last = self._tops(), 0, 0, 0
            for _ in range(12):
                tops = self._tops()
                total = tops[-1] + PAD
                value = total - height if self._stick else value
                value = max(0, min(value, total - height))
                first = max(0, bisect_right(tops, value, hi=len(self._messages)) - 1)
                last = bisect_right(tops, value + height, hi=len(self._messages))
                fresh = [
                    i for i in range(first, last) if not self._measured[i] or self._messages[i].id not in self._views
                ]
                if not fresh:
                    break
                anchor = next((i for i in range(first, last) if i not in fresh), None)
                for i in fresh:
                    self._measure(i, width)
                if anchor is not None and not self._stick:
                    value += self._tops()[anchor] - tops[anchor]
            self._place(range(first, last), tops, left, width, value)
            self._set_value(value, total - height)
        finally:
            self._busy = False
        self._show_jump(total - height - value)

    def _measure(self, i: int, width: int) -> None:
        self._heights[i] = self._ensure(i).height_for(width)
        self._measured[i] = True

    def _rewidth(self, width: int) -> None:
        old, self._width = self._width, width
        if old:
            self._heights = [round(90 + (h - 90) * old / width) if h > 90 else h for h in self._heights]
        else:
            self._heights = [self._estimate(m) for m in self._messages]
        self._measured = [False] * len(self._messages)

    def _place(self, shown: range, tops: Sequence[int], left: int, width: int, value: int) -> None:
        ids = [self._messages[i].id for i in shown]
        for gone in self._visible:
            if gone not in ids and gone in self._views:
                self._views[gone].hide()
        for i, message_id in zip(shown, ids, strict=True):
            view = self._ensure(i)
            self._views.move_to_end(message_id)
            view.setGeometry(left, tops[i] - value, width, self._heights[i])
            if view.isHidden():
                view.show()
        if ids != self._visible:
            self._visible = ids
            self._evict()
            self._chain()

    def _set_value(self, value: int, maximum: int | None = None) -> None:
        bar, was = self.verticalScrollBar(), self._busy
        self._busy = True
        if maximum is not None:
            bar.setRange(0, max(0, maximum))
            bar.setPageStep(max(1, self.viewport().height() - 2 * PAD))
        bar.setValue(value)
        self._busy = was

    def _ensure(self, i: int) -> MessageWidget:
        message = self._messages[i]
        view = self._views.get(message.id)
        if view is None:
            view = self._make(message)
            self._views[message.id] = view
            decorator = self._decorators.get(message.id)
            if decorator is not None and isinstance(view, AssistantMessage):
                decorator(view)
        elif view.message is not message:
            # It changed while it was out of sight.
            view.show_message(message)
        return view

    def _make(self, message: Message) -> MessageWidget:
        view: MessageWidget
        if message.role == "user":
            view = UserMessage(self._theme, message, self.viewport())
            view.edited.connect(self.edited)
        else:
            view = AssistantMessage(self._theme, message, self.viewport())
        view.action.connect(self.action)
        view.link.connect(self.link)
        view.resized.connect(lambda message_id=message.id: self._resized(message_id))
        return view

    def _resized(self, message_id: int) -> None:
        i = self._index.get(message_id)
        if i is not None and not self._busy:
            self._measured[i] = False
            self._layout()

    def _evict(self) -> None:
        for message_id in list(self._views):
            if len(self._views) <= len(self._visible) + KEPT:
                return
            view = self._views[message_id]
            editing = isinstance(view, UserMessage) and view.editing
            focus = QApplication.focusWidget()
            focused = focus is not None and view.isAncestorOf(focus)
            if message_id in self._visible or editing or focused:
                continue
            del self._views[message_id]
            view.deleteLater()

    def _drop_all(self) -> None:
        for view in self._views.values():
            view.hide()
            view.deleteLater()
        self._views.clear()
        self._visible = []
        self._decorators.clear()
        self._dirty.clear()

    def _chain(self) -> None:
        """Keyboard focus goes through the messages from top to bottom, whatever order they were made in."""
        previous: QWidget = self
        for message_id in self._visible:
            for child in self._views[message_id].findChildren(QWidget):
                if child.focusPolicy() & Qt.FocusPolicy.TabFocus:
                    QWidget.setTabOrder(previous, child)
                    previous = child

    # -- streaming ----------------------------------------------------------------------------

    def _flush(self) -> None:
        began = time.perf_counter()
        dirty, self._dirty = self._dirty, set()
        changed = False
        for message_id in dirty:
            i = self._index.get(message_id)
            view = self._views.get(message_id)
            if i is None or not isinstance(view, AssistantMessage):
                continue
            if message_id in self._visible:
                self._busy = True
                view.flush(self._messages[i])
                self._busy = False
                height = view.height_for(self._width)
                changed = changed or height != self._heights[i]
                self._heights[i] = height
        if changed:
            self._layout()
        # A slow paint (a huge table) is followed by a pause, so that the window stays at hand.
        spent = 1000 * (time.perf_counter() - began)
        self._pause = max(FRAME_MS, round(4 * spent))
        if self._dirty:
            self._timer.start(self._pause)

    def _restyle(self) -> None:
        for message_id in list(self._views):
            if message_id not in self._visible:
                self._views.pop(message_id).deleteLater()
        self._measured = [False] * len(self._messages)
        for view in self._views.values():
            self._busy = True
            view.restyle()
            self._busy = False
        for message_id, decorator in self._decorators.items():
            view = self._views.get(message_id)
            if isinstance(view, AssistantMessage):
                decorator(view)
        self.viewport().update()
        self._layout()

    # -- events -------------------------------------------------------------------------------

    def _show_jump(self, below: int) -> None:
        self._jump.setVisible(below > 240)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._jump.move((self.width() - 32) // 2, self.height() - 48)
        self._layout()

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self.viewport()).fillRect(event.rect(), self._theme.color("window"))

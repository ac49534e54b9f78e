"""The list of messages: widgets exist only for what is in sight, and the text never moves under the reader.

Heights of messages that were never shown are estimated from their length. When one comes into sight its true height
takes the place of the estimate and the scroll position is corrected by the difference, so nothing jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QWidget

from app.store.records import Message
from app.theme import COLUMN, GRID, Theme
from app.views.chat.focus_chain import chain_focus
from app.views.chat.heights import estimate
from app.views.chat.jump import JumpButton
from app.views.chat.message import AssistantMessage
from app.views.chat.pacer import Pacer
from app.views.chat.pool import Decorator, Marker, MessagePool, MessageWidget
from app.views.chat.rows import Rows
from app.views.chat.user_message import SHOWN, UserMessage

PAD = 3 * GRID


class Transcript(QAbstractScrollArea):
    """Signals: action(name, message id), edited(message id, new text), link(address)."""

    action = Signal(str, int)
    edited = Signal(int, str)
    link = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._rows = Rows(PAD, self._estimate)
        self._pool = MessagePool(theme, self.viewport(), self._connect)
        self._visible: list[int] = []
        self._width = 0
        self._stick = True
        self._busy = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Conversation")
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.verticalScrollBar().setSingleStep(5 * GRID)
        self._jump = JumpButton(theme, self.verticalScrollBar(), self.scroll_to_end, self)
        self._pacer = Pacer(self._paint, self)
        theme.changed.connect(self._restyle)

    # -- content ------------------------------------------------------------------------------

    def set_messages(self, messages: Sequence[Message]) -> None:
        """Show another conversation from its end, or the same one along another branch from where it is."""
        if not self._rows.reset(messages):
            self._pool.clear()
            self._visible = []
            self._pacer.clear()
            self._stick = True
        for message in messages:
            view = self._pool.get(message.id)
            if view is not None and view.message != message:
                self._update(view, message)
        self._layout()

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self._rows.append(message)
        self._layout()

    def stream(self, message: Message, pieces: Sequence[tuple[str, str]]) -> None:
        """More of a streaming answer: `message` as it is now and the (channel, text) that are new in it."""
        if self._rows.replace(message) is None:
            return
        view = self._pool.get(message.id)
        if isinstance(view, AssistantMessage):
            for channel, text in pieces:
                view.add(channel, text)
        self._pacer.add(message.id)

    def finish(self, message: Message) -> None:
        """The final state of an answer, shown at once."""
        i = self._rows.replace(message)
        if i is None:
            return
        self._pacer.discard(message.id)
        view = self._pool.get(message.id)
        if view is not None and message.id in self._visible:
            self._update(view, message)
        else:
            # Rendered when it comes into sight.
            self._rows.guess(i)
        self._layout()

    def _update(self, view: MessageWidget, message: Message) -> None:
        """Show a message's new state; it grows or shrinks without being what the reader did."""
        was, self._busy = self._busy, True
        view.show_message(message)
        self._busy = was
        i = self._rows.place(message.id)
        if i is not None:
            self._rows.heights.outdate(i)

    @property
    def messages(self) -> Sequence[Message]:
        return self._rows.messages

    def view(self, message_id: int) -> MessageWidget | None:
        """The widget of a message in sight."""
        return self._pool.get(message_id) if message_id in self._visible else None

    @property
    def visible_ids(self) -> Sequence[int]:
        return self._visible

    def decorate(self, message_id: int, decorator: Decorator | None) -> None:
        """Apply `decorator` to the answer's widget now and whenever it is made again."""
        self._pool.decorate(message_id, decorator)

    def set_marker(self, marker: Marker | None) -> None:
        """Mark what was looked for in all messages, those that get a widget later included."""
        self._pool.set_marker(marker)

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
        i = self._rows.place(message_id)
        if i is None:
            return
        self._stick = False
        for _ in range(2):
            # Twice: the first pass replaces estimates around it by true heights.
            bar = self.verticalScrollBar()
            self._set_value(min(self._rows.heights.tops()[i] - GRID, bar.maximum()))
            self._layout()

    def reveal(self, message_id: int, place: Callable[[MessageWidget], int]) -> None:
        """Scroll so that a place in a message is in sight, not at all where it is already.

        Args:
            place: pixels from the top of the message's widget.
        """
        i = self._rows.place(message_id)
        if i is None:
            return
        if self.view(message_id) is None:
            self.show_message(message_id)
        view = self.view(message_id)
        if view is None:
            return
        offset, height, bar = place(view), self.viewport().height(), self.verticalScrollBar()
        at = self._rows.heights.tops()[i] + offset
        if not bar.value() + PAD <= at <= bar.value() + height - 2 * PAD:
            self._stick = False
            self._set_value(max(0, min(at - height // 3, bar.maximum())))
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
        elif event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        else:
            super().keyPressEvent(event)

    def copy_selection(self) -> None:
        """What is selected in a message, in sight or not."""
        view = self._pool.selected()
        if view is not None:
            view.copy_selection()

    # -- layout -------------------------------------------------------------------------------

    def _column(self) -> tuple[int, int]:
        """Left edge and width of the text column."""
        # Of the whole width, so that the text does not move aside when the scroll bar comes.
        available = self.width()
        width = max(200, min(COLUMN, available - 2 * PAD))
        return max(0, (available - width) // 2), width

    def _estimate(self, message: Message) -> int:
        text = message.content if message.role != "user" else message.content[:SHOWN]
        return estimate(text, self._width or COLUMN, self._theme.base)

    def _layout(self, fixed: int | None = None) -> None:
        """Make, measure and place what is in sight.

        Args:
            fixed: place in the list of the message whose top stays where it is, whatever grows or shrinks.
        """
        if self._busy:
            return
        self._busy = True
        try:
            left, width = self._column()
            if width != self._width:
                old, self._width = self._width or width, width
                self._rows.heights.rewrap(old, width)
            height = self.viewport().height()
            value = self.verticalScrollBar().value()
            tops, total, shown = self._rows.heights.tops(), 0, range(0)
            for _ in range(12):
                tops = self._rows.heights.tops()
                total = tops[-1] + PAD
                value = total - height if self._stick and fixed is None else value
                value = max(0, min(value, total - height))
                shown = self._rows.heights.in_sight(tops, value, height)
                fresh = [i for i in shown if self._stale(i)]
                if not fresh:
                    break
                anchor = next((i for i in shown if i not in fresh), None) if fixed is None else fixed
                for i in fresh:
                    self._rows.heights.measure(i, self._ensure(i).height_for(width))
                if anchor is not None and (fixed is not None or not self._stick):
                    value += self._rows.heights.tops()[anchor] - tops[anchor]
            self._place(shown, tops, left, width, value)
            self._set_value(value, total - height)
        finally:
            self._busy = False
        self._jump.show_for(total - height - value)

    def _stale(self, i: int) -> bool:
        return self._rows.heights.measured(i) is None or self._rows[i].id not in self._pool

    def _place(self, shown: range, tops: Sequence[int], left: int, width: int, value: int) -> None:
        ids = [self._rows[i].id for i in shown]
        for gone in self._visible:
            view = self._pool.get(gone)
            if gone not in ids and view is not None:
                focus = QApplication.focusWidget()
                if focus is not None and view.isAncestorOf(focus):
                    # Qt would pass the focus on to any widget; from here a selection can still be copied.
                    self.setFocus(Qt.FocusReason.OtherFocusReason)
                view.hide()
        for i in shown:
            view = self._ensure(i)
            view.setGeometry(left, tops[i] - value, width, self._rows.heights[i])
            if view.isHidden():
                view.show()
        if ids != self._visible:
            self._visible = ids
            self._pool.evict(ids)
            shown_views = (self._pool.get(message_id) for message_id in ids)
            chain_focus(self, [view for view in shown_views if view is not None])

    def _set_value(self, value: int, maximum: int | None = None) -> None:
        bar, was = self.verticalScrollBar(), self._busy
        self._busy = True
        if maximum is not None:
            bar.setRange(0, max(0, maximum))
            bar.setPageStep(max(1, self.viewport().height() - 2 * PAD))
        bar.setValue(value)
        self._busy = was

    def _ensure(self, i: int) -> MessageWidget:
        return self._pool.ensure(self._rows[i])

    def _connect(self, view: MessageWidget) -> None:
        """Wire a widget that the pool has made."""
        if isinstance(view, UserMessage):
            view.edited.connect(self.edited)
        view.action.connect(self.action)
        view.link.connect(self.link)
        message_id = view.message.id
        view.selecting.connect(lambda: self._pool.select_only(message_id))
        view.resized.connect(lambda: self._resized(message_id))

    def _resized(self, message_id: int) -> None:
        i = self._rows.place(message_id)
        if i is not None and not self._busy:
            # The reader unfolded or edits something: it must not move away under the pointer.
            self._rows.heights.outdate(i)
            self._layout(fixed=i)
            bar = self.verticalScrollBar()
            self._stick = bar.value() >= bar.maximum() - 4

    # -- streaming ----------------------------------------------------------------------------

    def _paint(self, grown: Collection[int]) -> None:
        changed = False
        for message_id in grown:
            i = self._rows.place(message_id)
            view = self._pool.get(message_id)
            if i is None or message_id not in self._visible or not isinstance(view, AssistantMessage):
                continue
            self._busy = True
            view.flush(self._rows[i])
            self._busy = False
            height = view.height_for(self._width)
            changed = changed or height != self._rows.heights[i]
            self._rows.heights.measure(i, height)
        if changed:
            self._layout()

    def _restyle(self) -> None:
        self._rows.heights.outdate()
        was, self._busy = self._busy, True
        self._pool.restyle(self._visible)
        self._busy = was
        self.viewport().update()
        self._layout()
        # Labels inside the messages hear of the change after this.
        QTimer.singleShot(0, self, self._measure_again)

    def _measure_again(self) -> None:
        self._rows.heights.outdate()
        self._layout()

    # -- events -------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._jump.place(self.width(), self.height())
        self._layout()

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self.viewport()).fillRect(event.rect(), self._theme.color("window"))

"""Find in chat: a slim line above the transcript."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QToolButton, QVBoxLayout, QWidget

from app.find import literal, terms
from app.theme import GRID, Theme
from app.views.chat.finder import Finder
from app.views.controls import IconButton
from app.views.labels import Hairline, Label, Surface
from app.wording import count


class FindBar(Surface):
    """Return goes to the next place, Shift+Return to the one before, Escape closes. Signal: closed."""

    closed = Signal()

    def __init__(self, theme: Theme, finder: Finder, parent: QWidget | None = None) -> None:
        super().__init__(theme, "panel", parent)
        self._finder = finder
        self.field = QLineEdit(self)
        self.field.setPlaceholderText("Find in this chat")
        self.field.setAccessibleName("Find in this chat")
        self.field.setClearButtonEnabled(True)
        for button in self.field.findChildren(QToolButton):
            button.setAccessibleName("Clear")
        self.field.setMaximumWidth(40 * GRID)
        self.label = Label(theme, "", self, color="text_2", delta=-1, tabular=True)
        self.previous = IconButton(theme, "chevron-up", "Find previous", self)
        self.next = IconButton(theme, "chevron-down", "Find next", self)
        self.done = IconButton(theme, "close", "Close the find bar", self)
        line = QHBoxLayout()
        line.setContentsMargins(2 * GRID, GRID - 2, GRID + 4, GRID - 2)
        line.setSpacing(GRID // 2)
        line.addWidget(self.field, 1)
        line.addSpacing(GRID // 2)
        line.addWidget(self.label)
        line.addStretch(1)
        for widget in (self.previous, self.next, self.done):
            line.addWidget(widget)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(line)
        layout.addWidget(Hairline(theme, self))
        self.field.textEdited.connect(self._typed)
        self.field.textChanged.connect(self._changed)
        self.field.installEventFilter(self)
        self.previous.clicked.connect(lambda: finder.step(-1))
        self.next.clicked.connect(lambda: finder.step(1))
        self.done.clicked.connect(self.close_bar)
        finder.changed.connect(self._show)
        self.hide()
        self._show()

    def open_bar(self) -> None:
        """Ready to type; what was looked for last is selected."""
        was_hidden = self.isHidden()
        self.show()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()
        if was_hidden and self.field.text():
            self._finder.start(literal(self.field.text()))

    def show_search(self, query: str, message_id: int) -> None:
        """The words of a search over all chats, from the message where it found them; the focus stays where it is."""
        self.show()
        self.field.setText(query)
        self._finder.start(terms(query), at=message_id)

    def close_bar(self) -> None:
        if not self.isHidden():
            self.hide()
            self._finder.stop()
            self.closed.emit()

    def step(self, by: int) -> None:
        """For the shortcuts, which also open the bar."""
        if self.isHidden():
            self.open_bar()
        else:
            self._finder.step(by)

    def _typed(self, text: str) -> None:
        self._finder.start(literal(text))

    def _changed(self, text: str) -> None:
        if not text:
            # Its clear button does not count as typing.
            self._finder.stop()

    def _show(self) -> None:
        finder = self._finder
        found = len(finder.hits)
        usable = found > 0
        self.previous.setEnabled(usable)
        self.next.setEnabled(usable)
        if not self.field.text():
            text = ""
        elif not found:
            text = "Not found" if finder.complete else "Looking…"
        else:
            total = count(found) + ("" if finder.complete else "+")
            text = total if finder.current is None else f"{count(finder.current + 1)} of {total}"
        self.label.set_text(text)
        self.label.setAccessibleName(f"Find in chat: {text}")
        self.label.set_color("danger" if text == "Not found" else "text_2")

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field and event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() == Qt.Key.Key_Escape:
                self.close_bar()
                return True
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                back = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
                self._finder.step(-1 if back else 1)
                return True
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close_bar()
        else:
            super().keyPressEvent(event)

"""What the user wrote: a bubble with plain text, attachments as chips, edited in place."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QObject, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QPlainTextEdit, QPushButton, QWidget

from app.attachments import split
from app.store.records import Message
from app.theme import Theme
from app.views.chat.message import clock
from app.views.chat.parts import Branches
from app.views.chat.text_body import TextBody
from app.views.controls import IconButton, TextButton

SHOWN = 3_000
"""Characters of a long message that stand in the transcript until it is unfolded."""
UNFOLDED = 200_000


class UserMessage(QWidget):
    """Signals: resized, action(name, message id), edited(message id, new text), link(address), selecting."""

    resized = Signal()
    action = Signal(str, int)
    edited = Signal(int, str)
    link = Signal(str)
    selecting = Signal()

    def __init__(self, theme: Theme, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.message = message
        self._bubble = self._caption = QRectF()
        self._chips: list[TextButton] = []
        self._unfolded = False
        self._text = ""
        self._prefix = ""
        self._editor: QPlainTextEdit | None = None
        self._editor_buttons: list[QPushButton] = []
        self.body = TextBody(theme, "Your message", self)
        self._more = TextButton(theme, "Show all", "Show the whole message", self, color="accent", delta=-1)
        self._branches = Branches(theme, self)
        self._actions = {
            name: IconButton(theme, icon, label, self, size=24, color="text_3")
            for name, icon, label in (
                ("copy", "copy", "Copy message"),
                ("edit", "edit", "Edit and send again"),
                ("retry", "retry", "Retry from here"),
            )
        }
        self.body.height_changed.connect(self.resized)
        self.body.link_clicked.connect(self.link)
        self.body.selecting.connect(self.selecting)
        self._more.clicked.connect(self.unfold)
        self._branches.step.connect(self._step)
        for name, button in self._actions.items():
            if name != "edit":
                button.clicked.connect(lambda _checked=False, name=name: self.action.emit(name, self.message.id))
        self._actions["edit"].clicked.connect(lambda _checked=False: self.start_edit())
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        self.message = message
        attachments, self._text = split(message.content)
        self._prefix = message.content[: len(message.content) - len(self._text)]
        for chip in self._chips:
            chip.hide()
            chip.deleteLater()
        self._chips = []
        for attachment in attachments:
            label = f"{attachment.name}  {attachment.size}"
            chip = TextButton(self._theme, label, f"Attached text {label}", self, icon="file", delta=-1)
            chip.clicked.connect(
                lambda _c=False, name=attachment.name: self.action.emit(f"attachment:{name}", self.message.id)
            )
            chip.show()
            self._chips.append(chip)
        self._show_text()
        self._branches.set_branch(*message.branch)
        self.update()

    def _show_text(self) -> None:
        limit = UNFOLDED if self._unfolded else SHOWN
        folded = len(self._text) > limit
        self.body.set_plain(self._text[:limit] + ("…" if folded else ""))
        self._more.setVisible(folded and not self._unfolded)

    def unfold(self) -> None:
        """Show all of a long message."""
        if not self._more.isHidden():
            self._unfolded = True
            self._show_text()
            self.resized.emit()

    def copy_selection(self) -> None:
        self.body.copy()

    def _step(self, by: int) -> None:
        self.action.emit("next" if by > 0 else "previous", self.message.id)

    # -- editing ------------------------------------------------------------------------------

    @property
    def editing(self) -> bool:
        return self._editor is not None

    def start_edit(self, content: str | None = None) -> None:
        """Turn the bubble into an editor.

        Args:
            content: what a message that could not be sent would have said; by default what this one says.
        """
        if self._editor is not None:
            return
        text = self._text if content is None else content.removeprefix(self._prefix)
        editor = QPlainTextEdit(text, self)
        editor.setFont(self._theme.font(1))
        editor.setAccessibleName("Edit message")
        editor.installEventFilter(self)
        editor.moveCursor(editor.textCursor().MoveOperation.End)
        send, cancel = QPushButton("Send", self), QPushButton("Cancel", self)
        send.setProperty("primary", True)
        send.clicked.connect(self._send_edit)
        cancel.clicked.connect(self.cancel_edit)
        self._editor, self._editor_buttons = editor, [cancel, send]
        editor.textChanged.connect(self.resized)
        for widget in (editor, *self._editor_buttons):
            widget.show()
        self.resized.emit()
        editor.setFocus()

    def cancel_edit(self) -> None:
        if self._editor is not None:
            for widget in (self._editor, *self._editor_buttons):
                widget.hide()
                widget.deleteLater()
            self._editor, self._editor_buttons = None, []
            self.resized.emit()
            self.action.emit("edited", self.message.id)

    def _send_edit(self) -> None:
        if self._editor is not None and self._editor.toPlainText().strip():
            text = self._prefix + self._editor.toPlainText()
            self.cancel_edit()
            self.edited.emit(self.message.id, text)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._editor and event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() == Qt.Key.Key_Escape:
                self.cancel_edit()
                return True
            enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            if enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                self._send_edit()
                return True
        return super().eventFilter(watched, event)

    def restyle(self) -> None:
        self._show_text()
        self.update()

    # -- geometry -----------------------------------------------------------------------------

    def height_for(self, width: int) -> int:
        y = 0
        for chip in self._chips:
            size = chip.sizeHint()
            wide = min(size.width(), width)
            chip.setGeometry(width - wide, y, wide, size.height())
            y += size.height() + 4
        y = self._place_editor(width, y) if self._editor is not None else self._place_bubble(width, y)
        for widget in (*self._actions.values(), self._branches):
            widget.setVisible(not self.editing and (widget is not self._branches or self.message.branch[1] > 1))
        x = width
        for button in reversed(self._actions.values()):
            x -= 26
            button.move(x + 4, y + 2)
        if self.message.branch[1] > 1:
            self._branches.adjustSize()
            x -= self._branches.width()
            self._branches.move(x, y + 2)
        self._caption = QRectF(0, y + 2, x - 8, 24)
        return y + (8 if self.editing else 26) + 12

    def _place_bubble(self, width: int, y: int) -> int:
        self.body.setVisible(bool(self._text))
        if not self._text:
            return y
        most = min(width - 64, 560)
        self.body.height_for(most - 28)
        used = math.ceil(self.body.markdown.document.idealWidth())
        inner = min(most - 28, max(used, 24))
        height = self.body.height_for(inner)
        self._bubble = QRectF(width - inner - 28, y, inner + 28, height + 18)
        self.body.setGeometry(int(self._bubble.left()) + 14, y + 9, inner, height)
        if not self._more.isHidden():
            self._more.setGeometry(int(self._bubble.left()) + 8, y + 9 + height + 2, 80, 26)
            self._bubble.setHeight(self._bubble.height() + 28)
        return y + int(self._bubble.height())

    def _place_editor(self, width: int, y: int) -> int:
        assert self._editor is not None
        self.body.hide()
        self._more.hide()
        self._bubble = QRectF()
        rows = max(3, min(14, self._editor.document().blockCount() + 1))
        height = rows * self._editor.fontMetrics().lineSpacing() + 20
        self._editor.setGeometry(0, y, width, height)
        x, y = width, y + height + 8
        for button in reversed(self._editor_buttons):
            size = button.sizeHint()
            x -= size.width()
            button.setGeometry(x, y, size.width(), size.height())
            x -= 8
        return y + 28

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color("bubble"))
        if not self.body.isHidden():
            painter.drawRoundedRect(self._bubble, 14, 14)
        if not self.editing:
            painter.setPen(self._theme.color("text_3"))
            painter.setFont(self._theme.font(-2))
            flags = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
            painter.drawText(self._caption, flags, f"You  {clock(self.message.created_at)}")

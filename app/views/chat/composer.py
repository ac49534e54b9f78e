"""Where messages are written: Enter sends, Shift+Enter breaks the line, files and long pastes become attachments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QMimeData, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QDropEvent,
    QFocusEvent,
    QInputMethodEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QWidget

from app.attachments import LONG_PASTE, Attachment, compose, read_attachment, split
from app.theme import Theme
from app.views.controls import IconButton, RoundButton, TextButton
from engine.errors import UserError

MOST_LINES = 10


class Editor(QPlainTextEdit):
    """The text field. Signals: submitted, pasted(long text), files_dropped(paths), page(-1 or 1), escaped, focused."""

    submitted = Signal()
    pasted = Signal(str)
    files_dropped = Signal(object)
    page = Signal(int)
    escaped = Signal()
    focused = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._composing = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Message")
        self.setPlaceholderText("Message Inkling")
        # Its frame is the composer's.
        self.setStyleSheet("QPlainTextEdit { background: transparent; border: none; padding: 0; }")
        self.document().setDocumentMargin(0)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focused.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focused.emit()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        super().inputMethodEvent(event)
        if event.preeditString():
            self._composing = True
        elif self._composing:
            # The Enter that commits may still arrive as a key, in this same turn of the event loop.
            QTimer.singleShot(0, self, self._composed)

    def _composed(self) -> None:
        self._composing = False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, shift = event.key(), event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not shift:
            if not self._composing:
                self.submitted.emit()
            return
        if key == Qt.Key.Key_Escape:
            self.escaped.emit()
            return
        if key in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown) and self.blockCount() <= MOST_LINES:
            self.page.emit(-1 if key == Qt.Key.Key_PageUp else 1)
            return
        super().keyPressEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasUrls() or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        paths = [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()]
        if paths:
            self.files_dropped.emit(paths)
            return
        text = source.text()
        if len(text) > LONG_PASTE:
            self.pasted.emit(text)
        else:
            self.insertPlainText(text)


class Composer(QWidget):
    """Signals: sent(content), changed (text or attachments), attach (files are to be chosen), stopped, page(direction),
    waiting (something was to be sent while an answer comes in), failed(UserError), resized."""

    sent = Signal(str)
    changed = Signal()
    attach = Signal()
    waiting = Signal()
    stopped = Signal()
    page = Signal(int)
    failed = Signal(object)
    resized = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._running = False
        self._attachments: list[Attachment] = []
        self._chips: list[TextButton] = []
        self.editor = Editor(self)
        self.attach_button = IconButton(theme, "attach", "Attach files…", self)
        self.button = RoundButton(theme, "send", "Send", self)
        self.editor.submitted.connect(self.send)
        self.editor.pasted.connect(self._pasted)
        self.editor.files_dropped.connect(self.attach_files)
        self.editor.page.connect(self.page)
        self.editor.escaped.connect(self._escape)
        self.editor.focused.connect(self.update)
        self.editor.textChanged.connect(self._changed)
        self.editor.textChanged.connect(self.changed)
        self.attach_button.clicked.connect(self.attach)
        self.button.clicked.connect(self._press)
        self.setAcceptDrops(True)
        theme.changed.connect(self._restyle)
        self._restyle()
        self._changed()

    # -- content ------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        return self.editor.toPlainText()

    def set_text(self, text: str) -> None:
        self.editor.setPlainText(text)
        self.editor.moveCursor(self.editor.textCursor().MoveOperation.End)

    @property
    def content(self) -> str:
        """What sending would send."""
        return compose(self.text.strip(), self._attachments)

    @property
    def unsent(self) -> str:
        """All that is in it, for `restore`."""
        return compose(self.text, self._attachments)

    def restore(self, unsent: str) -> None:
        """Show what `unsent` was."""
        attachments, text = split(unsent)
        self._set_attachments(attachments)
        self.set_text(text)

    def clear(self) -> None:
        self.editor.clear()
        self._set_attachments([])

    def set_running(self, running: bool) -> None:
        """While an answer is on its way the button stops it."""
        if running != self._running:
            self._running = running
            self.button.set_icon(*(("stop", "Stop") if running else ("send", "Send")))
            self._changed()

    def send(self) -> None:
        if not self.content.strip():
            return
        if self._running:
            self.waiting.emit()
        else:
            self.sent.emit(self.content)

    def _press(self) -> None:
        if self._running:
            self.stopped.emit()
        else:
            self.send()

    def _escape(self) -> None:
        if self._running:
            self.stopped.emit()

    def attach_files(self, paths: Sequence[Path]) -> None:
        for path in paths:
            try:
                self._set_attachments([*self._attachments, read_attachment(path)])
            except UserError as error:
                self.failed.emit(error)

    def _pasted(self, text: str) -> None:
        number = 1 + sum(a.name.startswith("Pasted text") for a in self._attachments)
        name = "Pasted text" if number == 1 else f"Pasted text {number}"
        self._set_attachments([*self._attachments, Attachment(name, text)])

    def _set_attachments(self, attachments: list[Attachment]) -> None:
        self._attachments = attachments
        for chip in self._chips:
            chip.hide()
            chip.deleteLater()
        self._chips = []
        for attachment in attachments:
            label = f"{attachment.name}  {attachment.size}  ×"
            chip = TextButton(self._theme, label, f"Remove attachment {attachment.name}", self, icon="file", delta=-1)
            chip.clicked.connect(lambda _checked=False, attachment=attachment: self._remove(attachment))
            chip.show()
            self._chips.append(chip)
        self._changed()
        self.changed.emit()

    def _remove(self, attachment: Attachment) -> None:
        self._set_attachments([a for a in self._attachments if a is not attachment])
        self.editor.setFocus()

    # -- looks --------------------------------------------------------------------------------

    def _restyle(self) -> None:
        self.editor.setFont(self._theme.font(1))
        # The placeholder is painted in the viewport's, which a style sheet keeps from following.
        self.editor.viewport().setFont(self._theme.font(1))
        palette = self.editor.palette()
        palette.setColor(QPalette.ColorRole.Text, self._theme.color("text"))
        palette.setColor(QPalette.ColorRole.PlaceholderText, self._theme.color("text_3"))
        self.editor.setPalette(palette)
        self._changed()
        self.update()

    def _changed(self) -> None:
        self.button.setEnabled(self._running or bool(self._attachments or not self.editor.document().isEmpty()))
        self.updateGeometry()
        self._place()

    def _text_height(self) -> int:
        line = self.editor.fontMetrics().lineSpacing()
        # In a QPlainTextEdit the document's height counts lines.
        lines = max(1, min(MOST_LINES, int(self.editor.document().size().height())))
        return line * lines + 4

    def sizeHint(self) -> QSize:
        chips = 32 if self._chips else 0
        return QSize(400, max(32, self._text_height()) + chips + 16)

    def minimumSizeHint(self) -> QSize:
        return QSize(200, self.sizeHint().height())

    def _place(self) -> None:
        x, top = 12, 8
        for chip in self._chips:
            width = min(chip.sizeHint().width(), 220)
            chip.setGeometry(x, top, width, 28)
            x += width + 4
        top += 32 if self._chips else 0
        height = self._text_height()
        self.editor.setGeometry(44, top + max(0, (32 - height) // 2), self.width() - 44 - 52, height)
        self.attach_button.move(9, self.height() - 38)
        self.button.move(self.width() - 40, self.height() - 40)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()
        self.resized.emit()
        # The wrap changed with the width, so the height may have, too.
        QTimer.singleShot(0, self, self._changed)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        focus = self.editor.hasFocus()
        painter.setPen(QPen(self._theme.color("accent" if focus else "border"), 1))
        painter.setBrush(self._theme.color("field"))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 20, 20)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls() or event.mimeData().hasText():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        self.editor.insertFromMimeData(event.mimeData())
        event.acceptProposedAction()

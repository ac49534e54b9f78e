"""Shows one Markdown document at its full height: paints, selects, copies, opens links when clicked.

A QTextEdit lays the whole document out again whenever its height changes, which a growing answer does all the time;
this widget leaves the layout to the document, which then touches only what was added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QMimeData, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
)
from PySide6.QtWidgets import QMenu, QWidget

from app.theme import Theme
from app.views.chat.backdrop import Backdrop
from app.views.chat.copy_button import CopyButton
from app.views.chat.look import CODE_HEAD, Look
from app.views.chat.markdown import LINE
from app.views.chat.markdown_document import MarkdownDocument, unified
from app.views.chat.selection import PARAGRAPH, Selection
from app.views.chat.spans import Span, SpanLayer
from app.views.controls import focus_ring
from app.views.labels import tip_of


class TextBody(QWidget):
    """Signals:
    height_changed: the document grew or shrank; ask `height_for` again.
    link_clicked: an address with a harmless scheme.
    selecting: a selection begins, so that others end.
    """

    height_changed = Signal()
    link_clicked = Signal(str)
    selecting = Signal()

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None, *, quiet: bool = False) -> None:
        super().__init__(parent)
        self._theme = theme
        self._quiet = quiet
        self._markdown = self._new_document()
        self._selection = Selection(self._markdown.document)
        self._selecting = False
        self._pressed_link = ""
        self._tints = SpanLayer()
        self._marks = SpanLayer()
        self._buttons: list[CopyButton] = []
        self._height = 0
        self._complete = False
        """Rendered to the end, with nothing held back."""
        self.setAccessibleName(name)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.IBeamCursor)

    # -- content ------------------------------------------------------------------------------

    def _new_document(self) -> MarkdownDocument:
        return MarkdownDocument(QTextDocument(self), Look.of(self._theme, quiet=self._quiet))

    @property
    def markdown(self) -> MarkdownDocument:
        return self._markdown

    @property
    def source(self) -> str:
        return self._markdown.source

    def show_source(self, text: str, *, final: bool, render: bool = True) -> None:
        """Show `text`, keeping what is rendered of it: to render all of a long answer again at its end would stop the
        window.

        Args:
            final: nothing will follow.
            render: now; otherwise with the next flush.
        """
        text = unified(text)
        if not text.startswith(self.source):
            self._restart()
        self.append(text[len(self.source) :])
        if render and (self._markdown.pending or (final and not self._complete)):
            self.flush(final=final)

    def set_source(self, text: str, *, final: bool = True) -> None:
        """Show `text` from scratch."""
        self._restart()
        self.append(text)
        self.flush(final=final)

    def _restart(self) -> None:
        width, old = self._markdown.document.textWidth(), self._markdown.document
        self._markdown = self._new_document()
        old.deleteLater()
        self._markdown.document.setTextWidth(width)
        self._selection = Selection(self._markdown.document)
        self._tints = self._marks = SpanLayer()
        self._complete = False

    def set_plain(self, text: str) -> None:
        """Show `text` as it is, without Markdown."""
        self._restart()
        self._markdown.set_plain(text)
        self.setAccessibleDescription(text)
        self.update()

    def append(self, text: str) -> None:
        self._markdown.append(text)

    def flush(self, *, final: bool = False) -> None:
        """Render what `append` brought."""
        top = self._markdown.flush(final=final)
        self._complete = final
        if final:
            self.setAccessibleDescription(self.plain_text())
        self._place_buttons(top)
        height = math.ceil(self._markdown.height)
        if height != self._height:
            self._height = height
            self.height_changed.emit()
        self.update(0, max(0, int(top) - 4), self.width(), self.height())

    def restyle(self, *, render: bool = True) -> None:
        """Render again after the theme changed; `render`: now, otherwise with the next flush."""
        source = self.source
        self._restart()
        self.append(source)
        if render:
            self.flush(final=True)

    def plain_text(self) -> str:
        return self._markdown.document.toPlainText().replace(LINE, "\n").replace(PARAGRAPH, "\n")

    def height_for(self, width: int) -> int:
        """Height in logical pixels when `width` wide."""
        document = self._markdown.document
        if document.textWidth() != width:
            document.setTextWidth(width)
            self._place_buttons()
        self._height = math.ceil(self._markdown.height)
        return self._height

    def set_spans(self, spans: Sequence[Span]) -> None:
        """Tint runs of characters; `spans` ascend and do not overlap."""
        self._tints = SpanLayer(spans)
        self.update()

    @property
    def spans(self) -> Sequence[Span]:
        return self._tints.spans

    def set_marks(self, marks: Sequence[Span]) -> None:
        """Mark what was looked for, above the tints; `marks` ascend and do not overlap."""
        if marks != self._marks.spans:
            self._marks = SpanLayer(marks)
            self.update()

    @property
    def marks(self) -> Sequence[Span]:
        return self._marks.spans

    def top_of(self, position: int) -> int:
        """Where the line with a place in the document begins, in pixels from the top."""
        block = self._markdown.document.findBlock(position)
        top = self._markdown.document.documentLayout().blockBoundingRect(block).top()
        line = block.layout().lineForTextPosition(position - block.position())
        return int(top + (line.y() if line.isValid() else 0.0))

    def _place_buttons(self, unchanged: float = 0.0) -> None:
        """One copy button in the head of each code block; those of blocks above `unchanged` stand where they are."""
        blocks = self._markdown.decorations.code
        while len(self._buttons) > len(blocks):
            self._buttons.pop().deleteLater()
        known = len(self._buttons)
        for i in range(known, len(blocks)):
            self._buttons.append(CopyButton(self._theme, "Copy code", lambda i=i: self._code(i), self))
        layout, document = self._markdown.document.documentLayout(), self._markdown.document
        for i in range(len(blocks) - 1, -1, -1):
            top = layout.blockBoundingRect(document.findBlock(blocks[i].start)).top()
            if i < known and top < unchanged:
                break
            self._buttons[i].move(int(document.textWidth()) - 30, int(top - CODE_HEAD) - 7)
            self._buttons[i].show()

    def _code(self, index: int) -> str:
        return self._markdown.decorations.code[index].source

    # -- painting -----------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        clip = QRectF(event.rect())
        backdrop = Backdrop(painter, self._markdown.document, self._theme, clip)
        backdrop.decorations(self._markdown.decorations)
        backdrop.spans(self._tints)
        backdrop.spans(self._marks)
        context = QAbstractTextDocumentLayout.PaintContext()
        context.clip = clip
        palette = QPalette(context.palette)
        palette.setColor(QPalette.ColorRole.Text, self._theme.color("text_2" if self._quiet else "text"))
        context.palette = palette
        if self._selection:
            selection = QAbstractTextDocumentLayout.Selection()
            selection.cursor = self._selection.cursor
            fmt = QTextCharFormat()
            fmt.setBackground(self._theme.color("selection"))
            selection.format = fmt
            context.selections = [selection]
        painter.setClipRect(clip)
        self._markdown.document.documentLayout().draw(painter, context)
        if self.hasFocus() and not self._selection and self._keyboard_focus:
            focus_ring(painter, QRectF(self.rect()), 6, self._theme)

    _keyboard_focus = False

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._keyboard_focus = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        # What is scrolled out of sight loses the focus as well, but not what is selected in it.
        kept = (
            Qt.FocusReason.PopupFocusReason,
            Qt.FocusReason.ActiveWindowFocusReason,
            Qt.FocusReason.OtherFocusReason,
        )
        if event.reason() not in kept and self.isVisible():
            self.clear_selection()
        self.update()

    # -- selection ----------------------------------------------------------------------------

    def _hit(self, position: QPointF) -> int:
        return self._markdown.document.documentLayout().hitTest(position, Qt.HitTestAccuracy.FuzzyHit)

    def select_all(self) -> None:
        self.selecting.emit()
        self._selection.take_all()
        self.update()

    def clear_selection(self) -> None:
        if self._selection:
            self._selection.clear()
            self.update()

    @property
    def has_selection(self) -> bool:
        return bool(self._selection)

    def selected_text(self) -> str:
        """The selection as it stands in the source: the whole of it is the source itself."""
        return self._selection.text(self.source)

    def copy(self) -> None:
        """The selection to the clipboard, with newlines as newlines."""
        if self._selection:
            data = QMimeData()
            data.setText(self.selected_text())
            QGuiApplication.clipboard().setMimeData(data)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            event.ignore()
            return
        self._keyboard_focus = False
        self._pressed_link = self._markdown.document.documentLayout().anchorAt(event.position())
        at = self._hit(event.position())
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self._selection.extend(at)
        else:
            self._selection.start(at)
        self.selecting.emit()
        self._selecting = True
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._selecting and event.buttons() & Qt.MouseButton.LeftButton:
            self._selection.extend(self._hit(event.position()))
            self.update()
            return
        link = self._markdown.document.documentLayout().anchorAt(event.position())
        self.setCursor(Qt.CursorShape.PointingHandCursor if link else Qt.CursorShape.IBeamCursor)
        self.setToolTip(tip_of(link) or self.tip_at(event.position()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._selecting = False
            link = self._markdown.document.documentLayout().anchorAt(event.position())
            if link and link == self._pressed_link and not self._selection:
                self.link_clicked.emit(link)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._selection.take(QTextCursor.SelectionType.WordUnderCursor, self._hit(event.position()))
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all()
        else:
            event.ignore()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.addAction("Copy", self.copy).setEnabled(bool(self._selection))
        menu.addAction("Copy message as Markdown", lambda: QGuiApplication.clipboard().setText(self.source))
        menu.addAction("Select all", self.select_all)
        # Here the keyboard reaches them.
        links = self._markdown.links()
        if links:
            menu.addSeparator()
            for link in links:
                menu.addAction(f"Open {link[:60]}", lambda _checked=False, link=link: self.link_clicked.emit(link))
        menu.exec(event.globalPos())
        menu.deleteLater()

    def tip_at(self, position: QPointF) -> str:
        """What is known about the round under the pointer, or nothing."""
        at = self._markdown.document.documentLayout().hitTest(position, Qt.HitTestAccuracy.ExactHit)
        span = self._tints.at(at)
        return span.tip if span is not None else ""

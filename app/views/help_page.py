"""One page of the help: passages and drawings below each other, as wide as the transcript's column."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QResizeEvent, QTextDocument
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.find import places, terms
from app.help_pages import HelpPage, page_of
from app.theme import COLUMN, GRID, Theme
from app.views.chat.look import Look
from app.views.chat.markdown import parser, safe_link
from app.views.chat.markdown_document import MarkdownDocument
from app.views.chat.spans import Span
from app.views.chat.text_body import TextBody
from app.views.figure import Figure
from app.views.labels import Surface

_KEYS = re.compile(r"`((?:(?:Ctrl|Alt|Shift)\+)+[^`\s]+|F\d+)`")
MARGIN = 4 * GRID
GAP = 2 * GRID


def native_keys(source: str) -> str:
    """`source` with its shortcuts as the system writes them: Ctrl is Cmd on a Mac."""

    def native(match: re.Match[str]) -> str:
        return f"`{QKeySequence(match[1]).toString(QKeySequence.SequenceFormat.NativeText)}`"

    return _KEYS.sub(native, source)


def _opens(link: str) -> bool:
    return page_of(link) is not None or safe_link(link)


def _join_lines(state: StateCore) -> None:
    """A line break in a page is a blank, as in a book; in a chat it is meant."""
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type, child.content = "text", " "


def page_parser() -> MarkdownIt:
    """The Markdown of the transcript, but for line breaks."""
    markdown = parser()
    markdown.core.ruler.push("join_lines", _join_lines)
    return markdown


class HelpText(TextBody):
    """A passage whose links may lead to other pages."""

    def _new_document(self) -> MarkdownDocument:
        return MarkdownDocument(QTextDocument(self), Look.of(self._theme), page_parser(), opens=_opens)


class _Column(Surface):
    """The widgets of a page, placed by their heights."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "window")
        self.widgets: list[HelpText | Figure] = []

    def place(self, width: int) -> None:
        """Take `width` and the height that the widgets need at it."""
        inner = max(20 * GRID, min(COLUMN, width - 2 * MARGIN))
        y = MARGIN
        for widget in self.widgets:
            height = widget.height_for(inner)
            widget.setGeometry(MARGIN, y, inner, height)
            widget.show()
            y += height + GAP
        self.resize(width, y + MARGIN)


class HelpPageView(QScrollArea):
    """Shows a page and scrolls it. Signal: link_clicked(address)."""

    link_clicked = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._query = ""
        self._column = _Column(theme)
        self.setWidget(self._column)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        theme.changed.connect(self._restyle)

    @property
    def passages(self) -> list[HelpText]:
        return [widget for widget in self._column.widgets if isinstance(widget, HelpText)]

    def show_page(self, page: HelpPage) -> None:
        """Show `page` from its top."""
        for widget in self._column.widgets:
            widget.hide()
            widget.deleteLater()
        self._column.widgets = []
        for part in page.parts:
            if isinstance(part, str):
                text = HelpText(self._theme, page.title, self._column)
                text.set_source(native_keys(part))
                text.link_clicked.connect(self.link_clicked)
                text.selecting.connect(lambda chosen=text: self._one_selection(chosen))
                self._column.widgets.append(text)
            else:
                self._column.widgets.append(Figure(self._theme, part.file, part.text, self._column))
        self.setAccessibleName(page.title)
        self._place()
        self.verticalScrollBar().setValue(0)
        self.mark(self._query)

    def mark(self, query: str) -> None:
        """Mark the words of `query` and scroll to the first."""
        self._query = query
        pattern = terms(query)
        first: int | None = None
        for text in self.passages:
            found = [] if pattern is None else places(text.plain_text(), pattern)
            text.set_marks([Span(start, end, "found", "") for start, end in found])
            if found and first is None:
                first = text.y() + text.top_of(found[0][0])
        if first is not None and not 0 <= first - self.verticalScrollBar().value() < self.viewport().height() - MARGIN:
            self.verticalScrollBar().setValue(first - MARGIN)

    def _one_selection(self, chosen: HelpText) -> None:
        for text in self.passages:
            if text is not chosen:
                text.clear_selection()

    def _restyle(self) -> None:
        for widget in self._column.widgets:
            widget.restyle()
        self._place()
        self.mark(self._query)

    def _place(self) -> None:
        self._column.place(self.viewport().width())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

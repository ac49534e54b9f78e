"""Markdown to the blocks of a QTextDocument. HTML stays text, images become links, nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFrameFormat,
    QTextLength,
    QTextTableCellFormat,
    QTextTableFormat,
)

from app.views.chat.formats import BLOCK_GAP, QUOTE_INDENT, CodeBlock, Decorations, Formats, Inline

LINE = "\u2028"
"""Line break inside a paragraph."""
SCHEMES = frozenset({"http", "https", "mailto"})
_URL = re.compile(r"https?://[^\s<>\"'`\]]*[^\s<>\"'`\].,;:!?)]")


def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; HTML is not recognised, so it comes out as text.

    So do definitions of links, `[1]: https://...`: they would change what stands far above them, and vanish themselves,
    while a text is shown as it comes.
    """
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")


def safe_link(target: str) -> bool:
    """Whether a click may hand this address to the system."""
    try:
        return urlsplit(target).scheme.lower() in SCHEMES
    except ValueError:
        return False


def write_plain(document: QTextDocument, formats: Formats, text: str) -> None:
    """Text without markup, one block per line, addresses made clickable."""
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    writer = Writer(formats, Decorations(), cursor, (), fresh=True)
    for line in text.replace("\r\n", "\n").split("\n"):
        writer.plain(line)
    cursor.endEditBlock()


@dataclass(slots=True)
class _OpenList:
    number: int | None
    """Of the next item; None in a list of bullets."""
    suffix: str


class Writer:
    """Appends the blocks of a token stream at a cursor that stands at the end of its document.

    Args:
        offsets: offset in the whole source of each line the tokens' maps speak of.
        fresh: the cursor's block is empty and may be used.
        first_number: number of the first item when the tokens continue an ordered list.
        opens: which addresses become links.
    """

    def __init__(
        self,
        formats: Formats,
        decorations: Decorations,
        cursor: QTextCursor,
        offsets: Sequence[int],
        *,
        fresh: bool,
        first_number: int | None = None,
        opens: Callable[[str], bool] = safe_link,
    ) -> None:
        self._formats = formats
        self._decorations = decorations
        self._cursor = cursor
        self._offsets = offsets
        self._number = first_number
        self._opens = opens
        self._lists: list[_OpenList] = []
        self._quotes: list[int] = []
        self._item_pending = False
        self._heading = 0
        self.fresh = fresh
        """The cursor's block is empty and may be used by what comes next."""

    def write(self, tokens: Sequence[Token]) -> None:
        i = 0
        while i < len(tokens):
            if tokens[i].type == "table_open":
                end = next(j for j in range(i, len(tokens)) if tokens[j].type == "table_close")
                self._table(tokens[i:end])
                i = end
            else:
                self._token(tokens[i])
            i += 1

    def plain(self, line: str) -> None:
        """A block of text as it is, close to the one before."""
        self._next_block(self._formats.block(), self._formats.char(Inline()))
        self._text(line, Inline())

    def _token(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                self._open_list(token)
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._item_pending = True
            case "list_item_close":
                if self._item_pending:
                    self._start_block()
            case "blockquote_open":
                self._quotes.append(self._cursor.position() + (0 if self.fresh else 1))
            case "blockquote_close":
                depth = len(self._quotes)
                self._decorations.quotes.append((self._quotes.pop(), self._cursor.position(), depth))
            case "heading_open":
                self._heading = int(token.tag[1])
            case "heading_close":
                self._heading = 0
            case "inline":
                self._start_block()
                self._anchor(token, 0)
                self._inline(token.children or [], Inline(heading=self._heading))
            case "fence" | "code_block":
                self._code(token)
            case "hr":
                self._start_block()
                self._decorations.rules.append(self._cursor.position())
            case _:
                pass

    def _anchor(self, token: Token, skip: int) -> None:
        if token.map and token.map[0] + skip < len(self._offsets):
            self._decorations.anchors.append((self._cursor.position(), self._offsets[token.map[0] + skip]))

    def _open_list(self, token: Token) -> None:
        number: int | None = None
        if token.type == "ordered_list_open":
            number = int(token.attrs.get("start", 1))
            if self._number is not None and not self._lists:
                number, self._number = self._number, None
        self._lists.append(_OpenList(number, token.markup or "."))

    def _start_block(self) -> None:
        depth, level = len(self._lists), self._heading
        top = (22, 18, 14, 12)[min(level, 4) - 1] if level else 4 if depth else BLOCK_GAP
        if self.fresh and self._cursor.position() == 0:
            top = 0
        bottom = 6 if level else 4 if depth else BLOCK_GAP
        fmt = self._formats.block(top=top, bottom=bottom, indent=depth, quote=len(self._quotes), heading=level)
        self._next_block(fmt, self._formats.char(Inline(heading=level)))
        if self._item_pending:
            self._item_pending = False
            current = self._lists[-1]
            label = ""
            if current.number is not None:
                label = f"{current.number}{current.suffix}"
                current.number += 1
            self._decorations.markers.append((self._cursor.position(), label, depth))

    def _next_block(self, fmt: QTextBlockFormat, chars: QTextCharFormat) -> None:
        if self.fresh:
            self._cursor.setBlockFormat(fmt)
            self._cursor.setBlockCharFormat(chars)
            self.fresh = False
        else:
            self._cursor.insertBlock(fmt, chars)

    def _inline(self, children: Sequence[Token], base: Inline) -> None:
        style, links = base, [""]
        for child in children:
            match child.type:
                case "text":
                    self._text(child.content, style)
                case "code_inline":
                    start = self._cursor.position()
                    self._insert(child.content, replace(style, code=True))
                    self._decorations.inline_code.append((start, self._cursor.position()))
                case "softbreak" | "hardbreak":
                    self._insert(LINE, style)
                case "strong_open" | "strong_close":
                    style = replace(style, bold=child.nesting == 1)
                case "em_open" | "em_close":
                    style = replace(style, italic=child.nesting == 1)
                case "s_open" | "s_close":
                    style = replace(style, strike=child.nesting == 1)
                case "link_open":
                    target = str(child.attrs.get("href", ""))
                    links.append(target if self._opens(target) else "")
                    style = replace(style, link=links[-1])
                case "link_close":
                    links.pop()
                    style = replace(style, link=links[-1])
                case "image":
                    target = str(child.attrs.get("src", ""))
                    shown = replace(style, link=target if self._opens(target) else "")
                    self._insert(child.content or "image", shown)
                case _:
                    self._insert(child.content, style)

    def _text(self, text: str, style: Inline) -> None:
        """Plain text, bare addresses made clickable."""
        if style.link or "://" not in text:
            self._insert(text, style)
            return
        position = 0
        for match in _URL.finditer(text):
            self._insert(text[position : match.start()], style)
            link = match.group() if safe_link(match.group()) else ""
            self._insert(match.group(), replace(style, link=link))
            position = match.end()
        self._insert(text[position:], style)

    def _insert(self, text: str, style: Inline) -> None:
        if text:
            self._cursor.insertText(text.replace("\n", LINE), self._formats.char(style))

    def _code(self, token: Token) -> None:
        if self._item_pending:
            self._start_block()
        left = len(self._quotes) * QUOTE_INDENT + len(self._lists) * self._formats.look.indent
        source = token.content.removesuffix("\n")
        start = self._cursor.position() + (0 if self.fresh else 1)
        language = token.info.strip().split(" ")[0]
        self._formats.insert_code(self._cursor, source, language, left, fresh=self.fresh, first=True)
        self.fresh = False
        self._decorations.code.append(CodeBlock(start, self._cursor.position(), language, source))
        if token.map:
            line = token.map[0] + (1 if token.type == "fence" else 0)
            if line < len(self._offsets):
                self._decorations.anchors.append((start, self._offsets[line]))

    def _table(self, tokens: Sequence[Token]) -> None:
        rows: list[list[Token]] = []
        aligns: list[Qt.AlignmentFlag] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                style = str(token.attrs.get("style", ""))
                right, middle = "right" in style, "center" in style
                aligns.append(
                    Qt.AlignmentFlag.AlignRight
                    if right
                    else Qt.AlignmentFlag.AlignHCenter
                    if middle
                    else Qt.AlignmentFlag.AlignLeft
                )
            elif token.type == "inline" and rows:
                rows[-1].append(token)
        if not rows or not aligns:
            return
        self._next_block(self._formats.block(), QTextCharFormat())
        table = self._cursor.insertTable(len(rows), len(aligns), self._table_format(len(aligns)))
        line = self._formats.look.color("hairline")
        for r, row in enumerate(rows):
            for c, inline in enumerate(row[: len(aligns)]):
                cell = table.cellAt(r, c)
                fmt = QTextTableCellFormat()
                fmt.setPadding(6)
                fmt.setBottomBorder(1)
                fmt.setBottomBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
                fmt.setBottomBorderBrush(self._formats.look.color("border") if r == 0 else line)
                fmt.setLeftPadding(2 if c == 0 else 10)
                cell.setFormat(fmt)
                self._cursor = cell.firstCursorPosition()
                block = self._formats.block()
                block.setAlignment(aligns[c])
                self._cursor.setBlockFormat(block)
                if r == 0 or inline.map:
                    self._anchor(inline, 0)
                self._inline(inline.children or [], Inline(bold=r == 0))
        self._cursor.setPosition(table.lastPosition() + 1)
        self.fresh = True

    def _table_format(self, columns: int) -> QTextTableFormat:
        fmt = QTextTableFormat()
        fmt.setBorder(0)
        fmt.setBorderCollapse(True)
        fmt.setCellSpacing(0)
        fmt.setBottomMargin(BLOCK_GAP)
        fmt.setTopMargin(2)
        fmt.setHeaderRowCount(1)
        fmt.setLeftMargin(len(self._quotes) * QUOTE_INDENT + len(self._lists) * self._formats.look.indent)
        fmt.setColumnWidthConstraints([QTextLength(QTextLength.Type.VariableLength, 0)] * columns)
        return fmt

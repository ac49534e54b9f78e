"""Character and block formats of rendered Markdown, and what the view paints behind them."""

from __future__ import annotations

from dataclasses import dataclass, field

from PySide6.QtGui import QTextBlockFormat, QTextCharFormat, QTextCursor

from app.views.chat.highlight import spans
from app.views.chat.look import CODE_HEAD, CODE_PAD, Look

QUOTE_INDENT = 16
BLOCK_GAP = 10
"""Distance between paragraphs in logical pixels."""


@dataclass(slots=True)
class CodeBlock:
    """Document positions [start, end] of the lines of one code block, and the code itself."""

    start: int
    end: int
    language: str
    source: str


@dataclass(slots=True)
class Decorations:
    """What the view paints behind the text, in document positions, ascending."""

    code: list[CodeBlock] = field(default_factory=list[CodeBlock])
    inline_code: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    quotes: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """(first position, last position, depth)."""
    rules: list[int] = field(default_factory=list[int])
    markers: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    """(position of the item's first block, its number or nothing for a bullet, depth from 1)."""
    anchors: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(document position, offset in the source) of each block's first character."""

    def cut(self, position: int) -> None:
        """Forget everything at and after `position`."""
        self.code = [c for c in self.code if c.start < position]
        self.inline_code = [c for c in self.inline_code if c[0] < position]
        self.quotes = [q for q in self.quotes if q[0] < position]
        self.rules = [r for r in self.rules if r < position]
        self.markers = [m for m in self.markers if m[0] < position]
        self.anchors = [a for a in self.anchors if a[0] < position]


@dataclass(frozen=True, slots=True)
class Inline:
    """Character style in force."""

    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    link: str = ""
    heading: int = 0


class Formats:
    """Qt formats for one look, made once each."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._chars: dict[Inline, QTextCharFormat] = {}

    def char(self, style: Inline) -> QTextCharFormat:
        cached = self._chars.get(style)
        if cached is not None:
            return cached
        look, result = self.look, QTextCharFormat()
        base = look.heading(style.heading) if style.heading else look.body
        result.setFont(look.mono if style.code else base)
        if style.bold:
            result.setFontWeight(650 if not style.heading else 700)
        if style.italic:
            result.setFontItalic(True)
        if style.strike:
            result.setFontStrikeOut(True)
        if style.link:
            result.setAnchor(True)
            result.setAnchorHref(style.link)
            result.setForeground(look.color("accent"))
            result.setToolTip(style.link)
        self._chars[style] = result
        return result

    def block(
        self, *, top: int = 0, bottom: int = 0, indent: int = 0, quote: int = 0, heading: int = 0
    ) -> QTextBlockFormat:
        result = QTextBlockFormat()
        result.setTopMargin(top)
        result.setBottomMargin(bottom)
        result.setIndent(indent)
        result.setLeftMargin(quote * QUOTE_INDENT)
        result.setLineHeight(self.look.line_height(heading), QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        return result

    def code_line(self, *, first: bool, left: int) -> QTextBlockFormat:
        result = QTextBlockFormat()
        result.setLeftMargin(left + CODE_PAD)
        result.setRightMargin(CODE_PAD)
        result.setTopMargin(CODE_HEAD + CODE_PAD + BLOCK_GAP if first else 0)
        result.setLineHeight(self.look.code_line_height, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        return result

    def insert_code(
        self, cursor: QTextCursor, code: str, language: str, left: int, *, fresh: bool, first: bool
    ) -> None:
        """Write lines of code. `first`: they open the block; the last line always closes it."""
        plain = QTextCharFormat()
        plain.setFont(self.look.mono)
        coloured: dict[str | None, QTextCharFormat] = {None: plain}
        started = fresh
        pending = first
        inner = self.code_line(first=False, left=left)

        def line() -> None:
            nonlocal started, pending
            fmt = self.code_line(first=True, left=left) if pending else inner
            pending = False
            if started:
                cursor.setBlockFormat(fmt)
                cursor.setBlockCharFormat(plain)
                started = False
            else:
                cursor.insertBlock(fmt, plain)

        line()
        for text, colour in spans(code, language):
            fmt = coloured.get(colour)
            if fmt is None:
                fmt = coloured[colour] = QTextCharFormat(plain)
                fmt.setForeground(self.look.color(colour or "text"))
            parts = text.split("\n")
            for i, part in enumerate(parts):
                if i:
                    line()
                if part:
                    cursor.insertText(part, fmt)
        closing = cursor.blockFormat()
        closing.setBottomMargin(CODE_PAD + BLOCK_GAP)
        cursor.setBlockFormat(closing)

"""A QTextDocument that follows growing Markdown: finished blocks stay as they are, the open one is written again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from markdown_it import MarkdownIt
from markdown_it.token import Token
from PySide6.QtGui import QTextBlockFormat, QTextCursor, QTextDocument, QTextTable

from app.views.chat.formats import BLOCK_GAP, CodeBlock, Decorations, Formats
from app.views.chat.look import CODE_HEAD, CODE_PAD, Look
from app.views.chat.markdown import Writer, parser, safe_link, write_plain

EXACT = 16_000
"""Code of up to this many characters is coloured again as a whole once its fence closes."""
CHUNK = 40
"""Lines of an open fence that are written again with each flush, at most."""
_UNSURE = re.compile(r"\s{0,3}([-=*_+#]+|[0-9]{1,9}[.)]?|`+|~+|>)?\s*")
"""A last line that may still become a bullet, a rule, an underline or a fence."""


@dataclass(slots=True)
class _Fence:
    """An open top-level fence."""

    closing: re.Pattern[str]
    language: str
    body: int
    """Offset in the source of its first line of code."""
    chunk: int
    """Offset in the source of the first line that is not frozen."""
    position: int
    """End in the document of the frozen lines; only meaningful when `chunk` > `body`."""


def unified(text: str) -> str:
    """`text` with one kind of line end and no null characters, as `MarkdownDocument.source` has it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


class MarkdownDocument:
    """Owns the text of one message part and keeps `document` in step with it on `flush`.

    Args:
        opens: which addresses become links.
    """

    def __init__(
        self,
        document: QTextDocument,
        look: Look,
        markdown: MarkdownIt | None = None,
        *,
        opens: Callable[[str], bool] = safe_link,
    ) -> None:
        self.document = document
        document.setUndoRedoEnabled(False)
        document.setDocumentMargin(0)
        document.setIndentWidth(look.indent)
        document.setDefaultFont(look.body)
        self._formats = Formats(look)
        self._markdown = markdown or parser()
        self._opens = opens
        self.decorations = Decorations()
        self.source = ""
        self._half_ended = False
        """What came last ended with a carriage return, which a newline may belong to."""
        self._rendered = 0
        self._open_at = 0
        self._frozen_end = 0
        self._frozen_fresh = True
        self._frozen_format = QTextBlockFormat()
        self._next_number: int | None = None
        self._fence: _Fence | None = None
        self._placed = 0
        """Blocks of code that were looked at by `_make_room`; the last of them may be another one by now."""

    def append(self, text: str) -> None:
        """More source; shown with the next flush."""
        if text:
            rest = text[1:] if self._half_ended and text[0] == "\n" else text
            self._half_ended = text[-1] == "\r"
            self.source += unified(rest)

    @property
    def height(self) -> float:
        """Height of the text in logical pixels, the frame of code at its end included (Qt leaves that margin out)."""
        code = self.decorations.code
        framed = bool(code) and code[-1].end >= self.document.characterCount() - 1
        return self.document.size().height() + (CODE_PAD if framed else 0)

    def set_plain(self, text: str) -> None:
        """Show `text` as it is; the document is new."""
        self.source = text
        self._rendered = len(text)
        write_plain(self.document, self._formats, text)

    def links(self) -> list[str]:
        """Every address once, from top to bottom."""
        found: dict[str, None] = {}
        block = self.document.begin()
        while block.isValid():
            found |= {piece.format.anchorHref(): None for piece in block.textFormats() if piece.format.anchorHref()}
            block = block.next()
        return list(found)

    @property
    def pending(self) -> bool:
        return self._rendered < len(self.source)

    def flush(self, *, final: bool = False) -> float:
        """Bring the document up to date. `final`: nothing more will come, so nothing is held back.

        Returns:
            how far down, in logical pixels, nothing has changed.
        """
        unchanged = self._frozen_end if self._fence is None else max(self._frozen_end, self._fence.position)
        cursor = QTextCursor(self.document)
        cursor.beginEditBlock()
        try:
            if self._fence is None or self._in_fence(cursor, final):
                self._blocks(cursor, final)
        finally:
            cursor.endEditBlock()
        self._rendered = len(self.source)
        if self._make_room():
            return 0.0
        return self.document.documentLayout().blockBoundingRect(self.document.findBlock(unchanged)).top()

    def _make_room(self) -> bool:
        """Room for the head of code that comes first, or right after a table, where Qt leaves out the margin above it.

        Returns:
            whether something moved.
        """
        code, room = self.decorations.code, CODE_HEAD + CODE_PAD
        frame = self.document.rootFrame()
        form = frame.frameFormat()
        first = room if code and code[0].start == 0 else 0
        moved = form.topMargin() != first
        if moved:
            form.setTopMargin(first)
            frame.setFrameFormat(form)
        for block in code[min(self._placed, max(0, len(code) - 1)) :]:
            above = QTextCursor(self.document.findBlock(block.start).previous())
            table = cast("QTextTable | None", above.currentTable())
            if table is not None and table.format().bottomMargin() < room:
                below = table.format().toTableFormat()
                below.setBottomMargin(room + BLOCK_GAP)
                table.setFormat(below)
                moved = True
        self._placed = len(code)
        return moved

    # -- blocks -------------------------------------------------------------------------------

    def _blocks(self, cursor: QTextCursor, final: bool) -> None:
        tail = self.source[self._open_at :]
        shown = tail if final else _presentable(tail)
        offsets = _line_offsets(tail, self._open_at)
        tokens = self._markdown.parse(shown)
        self._rewind(cursor)
        unfinished = not final and not tail.startswith(shown + "\n")
        frozen, opened, line, number = _split(tokens, shown, self._next_number, unfinished=unfinished)
        first = self._next_number
        if frozen:
            writer = self._writer(cursor, offsets, self._frozen_fresh, first)
            writer.write(frozen)
            self._freeze(cursor, writer.fresh, offsets[line] if line < len(offsets) else len(self.source))
            self._next_number = first = number
        if not opened:
            return
        writer = self._writer(cursor, offsets, self._frozen_fresh, first)
        writer.write(opened)
        last = opened[-1]
        if not final and last.type == "fence" and last.map:
            indent, body = " {0,3}", offsets[last.map[0]] + len(shown.split("\n")[last.map[0]]) + 1
            closing = re.compile(rf"{indent}{re.escape(last.markup[0])}{{{len(last.markup)},}}[ \t]*")
            if body <= len(self.source):
                self._fence = _Fence(closing, last.info.strip().split(" ")[0], body, body, 0)

    def _writer(self, cursor: QTextCursor, offsets: Sequence[int], fresh: bool, number: int | None) -> Writer:
        cursor.movePosition(QTextCursor.MoveOperation.End)
        return Writer(
            self._formats, self.decorations, cursor, offsets, fresh=fresh, first_number=number, opens=self._opens
        )

    def _rewind(self, cursor: QTextCursor) -> None:
        """Remove what is not frozen."""
        cursor.setPosition(self._frozen_end)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        if cursor.hasSelection():
            cursor.removeSelectedText()
            if not cursor.block().text():
                cursor.setBlockFormat(self._frozen_format)
        self.decorations.cut(self._frozen_end if self._frozen_fresh else self._frozen_end + 1)

    def _freeze(self, cursor: QTextCursor, fresh: bool, offset: int) -> None:
        cursor.movePosition(QTextCursor.MoveOperation.End)
        self._frozen_end = cursor.position()
        self._frozen_fresh = fresh
        self._frozen_format = cursor.blockFormat()
        self._open_at = offset

    # -- an open fence ------------------------------------------------------------------------

    def _in_fence(self, cursor: QTextCursor, final: bool) -> bool:
        """Write the new lines of the open fence. True when it has closed and more source may follow."""
        fence = self._fence
        assert fence is not None
        lines = self.source[fence.chunk :].split("\n")
        complete = len(lines) if final else len(lines) - 1
        closed = next((i for i in range(complete) if fence.closing.fullmatch(lines[i])), None)
        if closed is not None:
            after = fence.chunk + sum(len(line) + 1 for line in lines[: closed + 1])
            whole = after - fence.body <= EXACT
            start = fence.body if whole else fence.chunk
            end = fence.chunk + sum(len(line) + 1 for line in lines[:closed])
            self._write_code(cursor, fence, start, self.source[start:end])
            self._fence = None
            self._next_number = None
            self._freeze(cursor, False, min(after, len(self.source)))
            return True
        if not final and re.fullmatch(r" {0,3}(`+|~+)", lines[-1]):
            lines[-1] = ""
        self._write_code(cursor, fence, fence.chunk, "\n".join(lines))
        if len(lines) > CHUNK:
            self._freeze_lines(cursor, fence, lines[:-2])
        return False

    def _write_code(self, cursor: QTextCursor, fence: _Fence, start: int, code: str) -> None:
        """Replace the lines from source offset `start` on."""
        first = start == fence.body
        block = self.decorations.code[-1] if self.decorations.code else None
        if first:
            self._rewind(cursor)
            begin = self._frozen_end + (0 if self._frozen_fresh else 1)
            block = CodeBlock(begin, begin, fence.language, "")
            self.decorations.code.append(block)
            self.decorations.anchors.append((begin, fence.body))
        else:
            cursor.setPosition(fence.position)
            cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
            cursor.removeSelectedText()
        assert block is not None
        fresh = first and self._frozen_fresh
        self._formats.insert_code(cursor, code.removesuffix("\n"), fence.language, 0, fresh=fresh, first=first)
        block.end = cursor.position()
        block.source = self.source[fence.body : start] + code.removesuffix("\n")

    def _freeze_lines(self, cursor: QTextCursor, fence: _Fence, lines: Sequence[str]) -> None:
        """Leave `lines`, the first of the chunk, as they stand from now on."""
        first = self.document.findBlock(fence.position) if fence.chunk > fence.body else None
        number = (
            first.blockNumber() + 1 if first else self.document.findBlock(self.decorations.code[-1].start).blockNumber()
        )
        last = self.document.findBlockByNumber(number + len(lines) - 1)
        fence.position = last.position() + last.length() - 1
        fence.chunk += sum(len(line) + 1 for line in lines)


def _line_offsets(text: str, base: int) -> list[int]:
    offsets, position = [base], text.find("\n")
    while position >= 0:
        offsets.append(base + position + 1)
        position = text.find("\n", position + 1)
    return offsets


def _presentable(tail: str) -> str:
    """The unfinished text without what would flicker: a line that may become anything, half-open emphasis."""
    body, _, last = tail.rpartition("\n")
    if last and _UNSURE.fullmatch(last):
        return body
    if "```" in tail or "~~~" in tail:
        return tail
    paragraph = tail.rsplit("\n\n", 1)[-1]
    for mark in ("`", "**"):
        if paragraph.count(mark) % 2:
            tail = tail.removesuffix(mark) if tail.endswith(mark) else tail.rstrip() + mark
            break
    return tail


def _split(
    tokens: Sequence[Token], text: str, number: int | None, *, unfinished: bool
) -> tuple[Sequence[Token], Sequence[Token], int, int | None]:
    """What is final and what may still change.

    Args:
        unfinished: more of the last line is to come.

    Returns:
        the tokens of both, the line at which the second starts, and the number of the first item of the ordered
        list that it continues.
    """
    starts = [i for i, t in enumerate(tokens) if t.level == 0 and t.nesting >= 0 and t.map]
    if not starts:
        return (), tokens, 0, number
    cut = starts[-1]
    opened = tokens[cut:]
    head = opened[0]
    assert head.map is not None
    lines = text.split("\n")
    if unfinished and len(starts) > 1 and head.map[0] == len(lines) - 1 and lines[-2].strip():
        # That line may yet turn out to belong to the block above it.
        cut = starts[-2]
        before = tokens[cut].map
        assert before is not None
        return tokens[:cut], tokens[cut:], before[0], number if cut == 0 else None
    if head.type == "fence" and _closed(head, text):
        return tokens, (), head.map[1], None
    if head.type not in ("bullet_list_open", "ordered_list_open"):
        return tokens[:cut], opened, head.map[0], None
    items = [i for i, t in enumerate(opened) if t.type == "list_item_open" and t.level == 1]
    ordered = head.type == "ordered_list_open"
    continued = number if cut == 0 else None
    start = continued if continued is not None else int(head.attrs.get("start", 1))
    if len(items) < 2:
        return tokens[:cut], opened, head.map[0], continued if ordered else None
    last = items[-1]
    line = opened[last].map
    assert line is not None
    done = [*tokens[:cut], *opened[:last], opened[-1]]
    return done, [head, *opened[last:]], line[0], start + len(items) - 1 if ordered else None


def _closed(fence: Token, text: str) -> bool:
    assert fence.map is not None
    lines = text.split("\n")
    end = fence.map[1] - 1
    if end <= fence.map[0] or end >= len(lines) - 1:
        return False
    return re.fullmatch(rf" {{0,3}}{re.escape(fence.markup[0])}{{{len(fence.markup)},}}[ \t]*", lines[end]) is not None

"""The round view: tints behind the rendered text."""

from __future__ import annotations

from collections.abc import Sequence

from app.rounds import Run
from app.views.chat.markdown_document import MarkdownDocument
from app.views.chat.spans import Span


def document_positions(document: MarkdownDocument) -> list[int]:
    """For each character of the source the position in the document where it, or what follows it, is shown.

    Markup is in the source only; both texts are walked together, with each block's start as a fixed point. Positions
    are Qt's, in UTF-16 units: an emoji takes two.
    """
    shown, source = _units(document.document.toPlainText()), document.source
    anchors = sorted(document.decorations.anchors, key=lambda anchor: anchor[1])
    offsets = [offset for _, offset in anchors]
    result = [0] * (len(source) + 1)
    for k, (position, offset) in enumerate(anchors):
        end = offsets[k + 1] if k + 1 < len(offsets) else len(source)
        limit = anchors[k + 1][0] if k + 1 < len(anchors) else len(shown)
        at = position
        for i in range(offset, end):
            result[i] = at
            if at < limit and at < len(shown) and _same(shown[at], source[i]):
                at += 1 if ord(source[i]) <= 0xFFFF else 2
    first = offsets[0] if offsets else len(source)
    start = anchors[0][0] if anchors else 0
    result[:first] = [start] * first
    result[len(source)] = len(shown)
    return result


def _units(text: str) -> list[str]:
    """The characters of `text`, those of two UTF-16 units with nothing after them for the second."""
    return [unit for character in text for unit in ((character,) if ord(character) <= 0xFFFF else (character, ""))]


def _same(shown: str, source: str) -> bool:
    return shown == source or (source == "\n" and shown in "\u2028\u2029\n ")


def _source_offsets(text: str) -> list[int]:
    """For each character of an answer, and its end, the offset in the source, where ends of lines are one character."""
    offsets, offset = [0], 0
    for i, character in enumerate(text):
        offset += not (character == "\n" and text[i - 1 : i] == "\r")
        offsets.append(offset)
    return offsets


def spans(document: MarkdownDocument, text: str, found: Sequence[Run]) -> list[Span]:
    """Tints for a rendered answer: accepted runs in two alternating colours, bonus tokens in a third.

    Args:
        text: what the model wrote, which the runs count in.
    """
    positions = document_positions(document)
    if "\r" in text:
        last = len(positions) - 1
        positions = [positions[min(offset, last)] for offset in _source_offsets(text)]
    last = len(positions) - 1
    result: list[Span] = []
    for i, run in enumerate(found):
        start, bonus, end = (positions[min(p, last)] for p in (run.start, run.bonus, run.end))
        color = "tint_b" if i % 2 else "tint_a"
        if bonus > start:
            result.append(Span(start, bonus, color, run.tip))
        if end > bonus:
            result.append(Span(bonus, end, "bonus", f"{run.tip}. This token is the model's own choice"))
    return result

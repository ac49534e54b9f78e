"""The round view: which characters each round brought, where they stand in the rendered text, and the same in words."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.store.records import Round
from app.views.chat.markdown_document import MarkdownDocument
from app.views.chat.text_body import Span


@dataclass(frozen=True, slots=True)
class Run:
    """One round: the characters [start, end) of the answer's text, of which [bonus, end) the target chose itself."""

    number: int
    start: int
    bonus: int
    end: int
    round: Round

    @property
    def tip(self) -> str:
        drafted, accepted = self.round.drafted, self.round.accepted
        if not drafted:
            return f"Round {self.number}: plain step, {self.round.ms:.1f} ms"
        return f"Round {self.number}: {accepted} of {drafted} drafts accepted, {self.round.ms:.1f} ms"


def runs(
    token_ids: Sequence[int], rounds: Sequence[Round], text: str, token_bytes: Callable[[int], bytes]
) -> list[Run]:
    """Where the rounds lie in `text`.

    The ids hold reasoning and control tokens as well, so the pieces are looked for in order: the text is what the
    tail of the ids decodes to, and a piece that is not in it belongs to another channel.

    Args:
        token_bytes: UTF-8 bytes that an id adds; none for control tokens.
    """
    # A character whose bytes come with several tokens counts as the last one's.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [decoder.decode(token_bytes(token)) for token in token_ids]
    starts: list[int] = [0] * (len(pieces) + 1)
    # Counted from the end, since what comes before the answer's text (reasoning) is not part of it.
    at = len(text)
    starts[len(pieces)] = at
    for i in range(len(pieces) - 1, -1, -1):
        piece = pieces[i]
        if piece and at > 0:
            found = text.rfind(piece, 0, at)
            # Blanks between the channels are not part of the text; anything else is met at once.
            at = found if found >= 0 and not text[found + len(piece) : at].strip() else max(0, at - len(piece))
        starts[i] = at
    result: list[Run] = []
    index = 0
    for number, one in enumerate(rounds, start=1):
        first, last = index, min(index + one.tokens, len(pieces))
        index = last
        if first >= last:
            continue
        bonus = min(first + one.accepted, last)
        if starts[last] > starts[first]:
            result.append(Run(number, starts[first], starts[bonus], starts[last], one))
    return result


def document_positions(document: MarkdownDocument) -> list[int]:
    """For each character of the source the position in the document where it, or what follows it, is shown.

    Markup is in the source only; both texts are walked together, with each block's start as a fixed point.
    """
    shown, source = document.document.toPlainText(), document.source
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
                at += 1
    first = offsets[0] if offsets else len(source)
    start = anchors[0][0] if anchors else 0
    result[:first] = [start] * first
    result[len(source)] = len(shown)
    return result


def _same(shown: str, source: str) -> bool:
    return shown == source or (source == "\n" and shown in "\u2028\u2029\n ")


def spans(document: MarkdownDocument, found: Sequence[Run]) -> list[Span]:
    """Tints for a rendered answer: accepted runs in two alternating colours, bonus tokens in a third."""
    positions = document_positions(document)
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


def as_text(text: str, found: Sequence[Run]) -> str:
    """The round view in words, one line a round."""
    lines: list[str] = []
    for run in found:
        drafted, own = text[run.start : run.bonus], text[run.bonus : run.end]
        shown = " then ".join(f"“{_visible(part)}”" for part in (drafted, own) if part)
        lines.append(f"{run.tip}: {shown}")
    return "\n".join(lines)


def _visible(text: str) -> str:
    return text.replace("\n", "⏎").strip(" ") or "space"


"""Which characters of an answer each round brought, and the same in words."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.store.records import Round


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

"""From generated ids to what a reader sees, and the decision to stop."""

from __future__ import annotations

from collections.abc import Sequence

from engine.events import FinishReason, TextDelta, ToolCallReady
from engine.messages import ToolCall
from engine.text.channels import ChannelParser
from engine.text.detokenizer import Detokenizer
from engine.text.stop import StopStrings
from engine.text.tokenizer import Tokenizer

Delta = TextDelta | ToolCallReady


class Answer:
    """Takes the ids of one answer one by one, collects its text, and says when it ends.

    It is the `StopCheck` of the decode loop, so that what a round generated beyond the end never counts.

    Args:
        stop_ids: ids that end the answer.
        stops: strings of the text channel that end it; the text is cut before them.
        max_tokens: ids at most.
        room: ids until the context is full.
        channels: whether the ids carry control markers that split them into channels.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop_ids: Sequence[int],
        stops: Sequence[str],
        max_tokens: int | None,
        room: int,
        channels: bool,
    ) -> None:
        self._stop_ids, self._max_tokens, self._room = frozenset(stop_ids), max_tokens, room
        self._parser = ChannelParser(tokenizer) if channels else None
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(stops)
        self._pending: list[Delta] = []
        self._texts: dict[str, list[str]] = {"text": [], "reasoning": []}
        self.token_ids: list[int] = []
        self.tool_calls: list[ToolCall] = []
        self._closed = False

    def __call__(self, token: int) -> FinishReason | None:
        self.token_ids.append(token)
        if token in self._stop_ids:
            return "stop"
        deltas = self._parser.push(token) if self._parser else [TextDelta("text", self._detokenizer.push(token))]
        if self._take(deltas):
            return "stop"
        if self._max_tokens is not None and len(self.token_ids) >= self._max_tokens:
            return "length"
        return "context" if len(self.token_ids) >= self._room else None

    @property
    def left(self) -> int:
        """Ids that it takes at most before it ends."""
        most = self._room if self._max_tokens is None else min(self._max_tokens, self._room)
        return most - len(self.token_ids)

    def _take(self, deltas: Sequence[Delta]) -> bool:
        """Queue what may be shown; True when a stop string is complete."""
        for delta in deltas:
            if isinstance(delta, TextDelta) and delta.channel == "text":
                text, hit = self._stops.push(delta.text)
                self._show(TextDelta("text", text))
                if hit:
                    return True
            else:
                self._show(delta)
        return False

    def _show(self, delta: Delta) -> None:
        if isinstance(delta, ToolCallReady):
            self.tool_calls.append(delta.call)
        elif not delta.text:
            return
        else:
            self._texts[delta.channel].append(delta.text)
        self._pending.append(delta)

    def close(self) -> None:
        """Release what was held back; nothing follows."""
        if self._closed:
            return
        self._closed = True
        rest = self._parser.finish() if self._parser else [TextDelta("text", self._detokenizer.finish())]
        if not self._take(rest):
            self._show(TextDelta("text", self._stops.finish()))

    def drain(self) -> list[Delta]:
        """What became visible since the last call."""
        pending, self._pending = self._pending, []
        return pending

    @property
    def text(self) -> str:
        return "".join(self._texts["text"])

    @property
    def reasoning(self) -> str:
        return "".join(self._texts["reasoning"])

    @property
    def reasoning_tokens(self) -> int:
        """Ids that went into the reasoning."""
        return self._parser.reasoning_tokens if self._parser else 0

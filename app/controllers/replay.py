"""The same turn with the drafter the other way, beside the answer that is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from app.bridge import Stamped
from app.controllers.answer import LiveAnswer
from app.engine_host import EngineHost, GenerateRequest
from app.store.records import Message
from engine.worker import Job


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token at which two answers part; `index` counts from 0, None when they are equal."""

    index: int | None
    first: str = ""
    second: str = ""


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first id that differs; the shorter one's end counts as a difference."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return None if len(one) == len(other) else min(len(one), len(other))


class Replay(QObject):
    """Signals: streamed(message, pieces), finished(message)."""

    streamed = Signal(object, object)
    finished = Signal(object)

    def __init__(
        self, host: EngineHost, request: GenerateRequest, answer: Message, token_ids: Sequence[int], *, drafting: bool
    ) -> None:
        super().__init__()
        self._host = host
        self._request = request
        self.answer = answer
        self._token_ids = tuple(token_ids)
        self.drafting = drafting
        """How the replay runs; the answer ran the other way."""
        self.live = LiveAnswer(_empty(answer))
        self._job: Job | None = None

    def start(self) -> None:
        self._job = self._host.replay(self._request, drafting=self.drafting, sink=self._take)

    def cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()

    def difference(self) -> Difference:
        """Where the replay leaves the answer; while it runs, as far as it has come."""
        mine = self.live.token_ids
        theirs = self._token_ids if self.live.message.state != "streaming" else self._token_ids[: len(mine)]
        index = first_difference(theirs, mine)
        if index is None:
            return Difference(None)
        return Difference(index, self._token(theirs, index), self._token(mine, index))

    def _token(self, ids: Sequence[int], index: int) -> str:
        if index >= len(ids):
            return "the end"
        return self._host.token_bytes(ids[index]).decode("utf-8", "replace") or "a control token"

    def _take(self, events: Sequence[Stamped]) -> None:
        pieces, state = self.live.take(events)
        self.streamed.emit(self.live.message, pieces)
        if state is not None:
            self.finished.emit(self.live.message)


def _empty(answer: Message) -> Message:
    return replace(
        answer,
        state="streaming",
        content="",
        reasoning="",
        tool_calls=(),
        stats=None,
        draft=None,
        finish_reason=None,
        error=None,
        reasoning_s=None,
        reasoning_tokens=None,
    )

"""An answer while it comes in: events folded into what is shown and what is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.bridge import Stamped
from app.crash import blame
from app.store.figures import to_json
from app.store.records import Answer, Message, Round, State
from engine.events import (
    Cancelled,
    DraftStatus,
    Event,
    Failed,
    Finished,
    Generation,
    Notice,
    RoundDone,
    TextDelta,
    ToolCallReady,
)
from engine.stats import GenerationStats
from engine.worker import Stopped

Pieces = list[tuple[str, str]]
"""(channel, text) in the order of arrival."""


class LiveAnswer:
    """Folds the events of one generation into its message."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.stats: GenerationStats | None = None
        self.draft: DraftStatus | None = None
        self.notices: list[str] = []
        self.token_ids: list[int] = []
        self.rounds: list[Round] = []
        self.error: BaseException | None = None
        self._thinking_since: float | None = None
        self._has_text = False

    def take(self, events: Sequence[Stamped]) -> tuple[Pieces, State | None]:
        """Fold in a batch.

        Returns:
            the new text, and the state the answer ended in when it did.
        """
        pieces: Pieces = []
        content: list[str] = []
        reasoning: list[str] = []
        calls = list(self.message.tool_calls)
        last: Event | Stopped | None = None
        for moment, event in events:
            match event:
                case TextDelta(channel, text):
                    (reasoning if channel == "reasoning" else content).append(text)
                    pieces.append((channel, text))
                    self._time(channel, moment)
                case RoundDone():
                    self._round(event)
                case ToolCallReady(call):
                    calls.append(call)
                case DraftStatus():
                    self.draft = event
                case Notice(text):
                    self.notices.append(text)
                case _:
                    last = event
        if pieces or calls:
            self.message = replace(
                self.message,
                content=self.message.content + "".join(content),
                reasoning=self.message.reasoning + "".join(reasoning),
                tool_calls=tuple(calls),
            )
        end = None if last is None else self._end(last)
        if end is not None:
            self.message = self._final(end)
        return pieces, end

    def _time(self, channel: str, moment: float) -> None:
        if channel == "reasoning":
            self._thinking_since = self._thinking_since or moment
            self.message = replace(self.message, reasoning_s=moment - self._thinking_since)
        else:
            self._has_text = True

    def _round(self, event: RoundDone) -> None:
        self.stats = event.stats
        self.token_ids.extend(event.token_ids)
        self.rounds.append(Round(len(event.token_ids), event.drafted, event.accepted, 1e3 * event.seconds))
        if self._thinking_since is not None and not self._has_text:
            # The round in which the text begins counts to the text.
            self.message = replace(self.message, reasoning_tokens=len(self.token_ids))

    def _end(self, event: Event | Stopped) -> State | None:
        match event:
            case Finished(generation):
                self._settle(generation)
                return "done"
            case Cancelled(generation):
                self._settle(generation)
                return "stopped"
            case Stopped():
                return "stopped"
            case Failed(error):
                self.error = error
                return "failed"
            case _:
                return None

    def _settle(self, generation: Generation) -> None:
        """The generation's own account replaces what was gathered: it holds what was cut at the end as well."""
        self.stats, self.draft = generation.stats, generation.draft
        self.token_ids = list(generation.token_ids)
        self.message = replace(
            self.message,
            content=generation.text,
            reasoning=generation.reasoning,
            tool_calls=generation.tool_calls,
            finish_reason=generation.finish_reason,
        )

    def _final(self, state: State) -> Message:
        error = None
        if self.error is not None:
            title, hint, _bug = blame(self.error)
            error = f"{title}\n{hint}"
        answer = self.answer()
        return replace(
            self.message,
            state=state,
            error=error,
            stats=answer.stats,
            draft=answer.draft,
            finish_reason=answer.finish_reason,
        )

    def answer(self) -> Answer:
        """What a save writes."""
        return Answer(
            content=self.message.content,
            reasoning=self.message.reasoning,
            tool_calls=self.message.tool_calls,
            token_ids=tuple(self.token_ids),
            rounds=tuple(self.rounds),
            stats=None if self.stats is None else to_json(self.stats),
            draft=None if self.draft is None else to_json(self.draft),
            finish_reason=self.message.finish_reason,
            reasoning_s=self.message.reasoning_s,
            reasoning_tokens=self.message.reasoning_tokens,
        )

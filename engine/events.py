"""What a generation reports, as frozen values: no ids, no storage, nothing of MLX.

A stream of events ends with exactly one of `Finished`, `Cancelled` or `Failed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from engine.messages import Message, ToolCall
from engine.stats import GenerationStats

Channel = Literal["reasoning", "text"]
FinishReason = Literal["stop", "length", "context", "cancelled"]
"""stop: a stop id or stop string; length: max tokens; context: the model's context is full."""


class CancelFlag(Protocol):
    """Asks a generation to end early; looked at between its steps and never waited for. `threading.Event` is one."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """`done` of `total` prompt tokens that were not cached have been processed."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of one channel; never holds a control marker or half a character."""

    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallReady:
    """A complete tool call was parsed."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class RoundDone:
    """One target forward of the decode loop was committed.

    `token_ids` are the emitted tokens: `accepted` drafts, then the token the target chose (unless
    a stop or a limit cut it). `drafted` is 0 for a plain step.
    """

    token_ids: tuple[int, ...]
    drafted: int
    accepted: int
    seconds: float
    stats: GenerationStats


@dataclass(frozen=True, slots=True)
class DraftStatus:
    """What was asked of the drafter, what runs, and why the two differ."""

    requested: str
    effective: str
    reason: str | None
    schedule: str | None
    block_size: int | None
    """Tokens per verify block; with `auto` the most of them."""
    requested_block_size: int | None = None
    """Asked for, where that is not what runs."""
    auto: bool = False
    """Each round takes as many drafts as pay, none where plain steps are faster; the statistics tell how many ran."""
    vocabulary: int | None = None
    """Token ids that drafts score, where those are not all."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know that is not an error."""

    message: str


@dataclass(frozen=True, slots=True)
class Generation:
    """A whole answer."""

    text: str
    reasoning: str
    token_ids: tuple[int, ...]
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    stats: GenerationStats
    draft: DraftStatus
    message: Message
    """The assistant turn to append to the history."""
    reasoning_tokens: int = 0
    """Generated ids that went into the reasoning."""


@dataclass(frozen=True, slots=True)
class Finished:
    generation: Generation


@dataclass(frozen=True, slots=True)
class Cancelled:
    generation: Generation


@dataclass(frozen=True, slots=True)
class Failed:
    """`error` is a `UserError` for the user's mistakes, anything else is a bug."""

    error: BaseException


Event = PrefillProgress | TextDelta | ToolCallReady | RoundDone | DraftStatus | Notice | Finished | Cancelled | Failed
TERMINAL = (Finished, Cancelled, Failed)

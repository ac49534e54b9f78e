"""Chat messages as the engine takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for; `arguments` is a JSON object."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    `token_ids` holds what the model generated for an assistant turn. When present it is what the
    next prompt contains, since decoded text need not re-encode to the same ids.
    """

    role: Role
    content: str | None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    token_ids: tuple[int, ...] | None = None
    name: str | None = None
    tool_call_id: str | None = None

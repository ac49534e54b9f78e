"""Splits what a model generates into reasoning, text and tool calls."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Literal

from engine.events import TextDelta, ToolCallReady
from engine.messages import ToolCall
from engine.text.detokenizer import Detokenizer
from engine.text.markers import (
    CONTENT_TEXT,
    CONTENT_THINKING,
    CONTENT_TOOL_JSON,
    CONTENT_TOOL_TEXT,
    END_MESSAGE,
    MESSAGE_MODEL,
    OTHER_CONTENT,
    ROLES,
)
from engine.text.tokenizer import Tokenizer
from engine.text.tool_calls import MAX_NAME, JsonObjectReader, may_be_name, read_call, trailing_name

ParserEvent = TextDelta | ToolCallReady


class _Block(Enum):
    HEADER = auto()
    """Between a role marker, or the end of a message, and a content marker."""
    REASONING = auto()
    TEXT = auto()
    TOOL_JSON = auto()
    TOOL_TEXT = auto()


_CALLS: Final = (_Block.TOOL_JSON, _Block.TOOL_TEXT)


class ChannelParser:
    """State machine on token ids; the markers steer it and never show.

    Whatever the first block is, and if markers are missing, no text is lost: what is not reasoning and
    not a tool call goes to the text channel. That includes a tool call whose JSON cannot be read, with
    the tool's name before it. Blocks of one channel are separated by an empty line.

    A bare identifier at the start of a text is held back until it is clear that it is not the name of a
    tool. Between a role marker and a content marker it is the author's name, and does not show.

    Args:
        tokenizer: one without the marker of a model's message makes everything text.
        in_header: whether the prompt ended with that marker, as chat prompts do. False for raw text.
    """

    def __init__(self, tokenizer: Tokenizer, *, in_header: bool = True) -> None:
        self._tokenizer = tokenizer
        self._stream = Detokenizer(tokenizer)
        kinds = {CONTENT_THINKING: _Block.REASONING, CONTENT_TOOL_JSON: _Block.TOOL_JSON}
        kinds |= {CONTENT_TOOL_TEXT: _Block.TOOL_TEXT, CONTENT_TEXT: _Block.TEXT}
        kinds |= dict.fromkeys(OTHER_CONTENT, _Block.TEXT) | dict.fromkeys((*ROLES, END_MESSAGE), _Block.HEADER)
        opens = {id_: kind for name, kind in kinds.items() if (id_ := tokenizer.control_id(name)) is not None}
        self._opens: Final = opens | dict.fromkeys(tokenizer.eos_token_ids, _Block.HEADER)
        self._calls_tools = any(kind in _CALLS for kind in self._opens.values())

        framed = in_header and tokenizer.control_id(MESSAGE_MODEL) is not None
        self._held = ""
        """A bare identifier that may be a name; the block holds nothing else so far."""
        self._name = ""
        """Name that was written before the call being read."""
        self._name_from: _Block | None = None
        """Kind of block that the name was held back in, None if it was shown as part of a text."""
        self._call = JsonObjectReader()
        self._open(_Block.HEADER if framed else _Block.TEXT)
        self._holding = framed
        self._shown: dict[Literal["reasoning", "text"], list[str]] = {"reasoning": [], "text": []}
        self._calls: list[ToolCall] = []
        self._reasoning_tokens = 0

    @property
    def text(self) -> str:
        """The text channel so far."""
        return "".join(self._shown["text"])

    @property
    def reasoning(self) -> str:
        """The reasoning channel so far."""
        return "".join(self._shown["reasoning"])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The complete calls so far."""
        return tuple(self._calls)

    @property
    def in_reasoning(self) -> bool:
        """Whether the next token continues the reasoning."""
        return self._block is _Block.REASONING

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of reasoning so far, markers not counted."""
        return self._reasoning_tokens

    def push(self, id_: int) -> list[ParserEvent]:
        """What the next token adds."""
        block = self._opens.get(id_)
        if block is None:
            if not self._tokenizer.is_control(id_):
                self._reasoning_tokens += self.in_reasoning
                return self._feed(self._stream.push(id_))
            return []  # an unused marker; a collapsed distribution can yield one
        events = self._feed(self._stream.finish())
        if block in _CALLS:
            name, source = self._take_name()
            events += self._close()
            self._name, self._name_from = name, source
        else:
            if self._block is _Block.HEADER and block is not _Block.HEADER:
                self._held = ""  # the author's name
            events += self._close()
        self._open(block)
        return events

    def finish(self) -> list[ParserEvent]:
        """What is still held back when generation ends."""
        events = self._feed(self._stream.finish()) + self._close()
        self._open(_Block.HEADER)
        return events

    def _open(self, block: _Block) -> None:
        self._block = block
        self._holding = block is _Block.HEADER or (block is _Block.TEXT and self._calls_tools)
        """Whether the block is a bare identifier so far."""
        self._fresh = True
        """Whether nothing of the block was shown yet."""
        self._tail = ""
        """End of what was shown of the block."""
        self._call = JsonObjectReader()

    def _feed(self, text: str) -> list[ParserEvent]:
        if self._block is _Block.REASONING:
            return self._show("reasoning", text)
        if self._block is _Block.TOOL_TEXT:
            self._call.append(text)
            return []
        if self._block is _Block.TOOL_JSON:
            rest = self._call.push(text)
            if rest is None:
                return []
            events = self._close()
            self._open(_Block.HEADER)
            return events + self._feed(rest)
        if self._holding:
            self._held += text
            if may_be_name(self._held):
                return []
            text, self._held, self._holding = self._held, "", False
        self._block = _Block.TEXT
        return self._show("text", text)

    def _take_name(self) -> tuple[str, _Block | None]:
        """The name of the call that begins now, and the kind of block it was held back in."""
        if self._block in _CALLS:
            return "", None
        if self._holding:
            name, self._held = self._held.strip(), ""
            return name, self._block
        return trailing_name(self._tail), None

    def _close(self) -> list[ParserEvent]:
        """End the block: what it held back is a text or a call."""
        if self._block in _CALLS:
            return self._close_call()
        held, self._held = self._held, ""
        return self._show("text", held if held.strip() or self._block is _Block.TEXT else "")

    def _close_call(self) -> list[ParserEvent]:
        text, name = self._call.text, self._name
        self._name = ""
        if self._block is _Block.TOOL_JSON:
            call = read_call(text, name)
        else:
            call = ToolCall(name, {"text": text}) if name else None
        if call is None:
            return self._show("text", text if self._name_from is None else name + text)
        self._calls.append(call)
        # A text of one word before a call that names itself otherwise was no name.
        word = name if self._name_from is _Block.TEXT and name != call.name else ""
        return [*self._show("text", word), ToolCallReady(call)]

    def _show(self, channel: Literal["reasoning", "text"], text: str) -> list[ParserEvent]:
        if not text:
            return []
        self._tail = (self._tail + text)[-MAX_NAME - 1 :]
        shown = self._shown[channel]
        if self._fresh and shown:
            text = "\n\n" + text
        self._fresh = False
        shown.append(text)
        return [TextDelta(channel, text)]

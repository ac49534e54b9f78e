"""Shows the events of one generation as they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from engine.cli.terminal import DIM, UNDIM, Terminal
from engine.events import (
    Cancelled,
    Event,
    Failed,
    Finished,
    Generation,
    Notice,
    PrefillProgress,
    TextDelta,
    ToolCallReady,
)
from engine.wording import printable


class AnswerPrinter:
    """Streams an answer to a terminal, which obeys nothing that the model says; files and pipes get every character.

    Args:
        text: takes the answer, or None to show nothing of it.
        reasoning: takes the reasoning, dimmed, or None.
    """

    def __init__(self, terminal: Terminal, *, text: TextIO | None, reasoning: TextIO | None) -> None:
        self._terminal = terminal
        self._text = text
        self._reasoning = reasoning
        self._open: TextIO | None = None
        """The stream whose last line has not been ended yet."""
        self._channel: str | None = None
        self._dimmed: TextIO | None = None
        """The stream that shows what is written to it dimmed, until told otherwise."""

    def follow(self, events: Iterable[Event]) -> tuple[Generation, bool]:
        """Consumes the events; returns the answer and whether it was cancelled.

        Raises:
            BaseException: the error of a `Failed`.
        """
        try:
            return self._follow(events)
        finally:
            self._undim()

    def _follow(self, events: Iterable[Event]) -> tuple[Generation, bool]:
        for event in events:
            match event:
                case TextDelta(channel="reasoning", text=text):
                    self._show(self._reasoning, "reasoning", text, dim=True)
                case TextDelta(channel="text", text=text):
                    self._show(self._text, "text", text)
                case ToolCallReady(call=call):
                    self._end_line()
                    self._show(self._text, "tool", f"tool call: {call.name} {call.arguments}\n")
                case PrefillProgress(done=done, total=total) if done < total:
                    self._terminal.progress(done / total, "Reading the prompt")
                case Notice(message=message):
                    self._end_line()
                    self._terminal.note(message)
                case Finished(generation=generation) | Cancelled(generation=generation):
                    self._end_line()
                    self._terminal.clear_progress()
                    return generation, isinstance(event, Cancelled)
                case Failed(error=error):
                    self._end_line()
                    self._terminal.clear_progress()
                    raise error
                case _:
                    pass
        raise RuntimeError("the generation ended without a terminal event")

    def _show(self, stream: TextIO | None, channel: str, text: str, *, dim: bool = False) -> None:
        if stream is None or not text:
            return
        self._terminal.clear_progress()
        if self._channel not in {None, channel}:
            self._end_line()
            if channel == "text" and stream.isatty():
                stream.write("\n")
        self._channel = channel
        if dim and self._dimmed is None and self._terminal.styled(stream):
            stream.write(DIM)
            self._dimmed = stream
        elif not dim:
            self._undim()
        stream.write(printable(text) if stream.isatty() else text)
        stream.flush()
        self._open = None if text.endswith("\n") else stream

    def _undim(self) -> None:
        if self._dimmed is not None:
            self._dimmed.write(UNDIM)
            self._dimmed.flush()
            self._dimmed = None

    def _end_line(self) -> None:
        self._undim()
        if self._open is not None:
            self._open.write("\n")
            self._open.flush()
            self._open = None

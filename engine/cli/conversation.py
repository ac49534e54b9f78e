"""The terminal chat: messages in, answers out, commands that start with a slash."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from engine.cli.answer_printer import AnswerPrinter
from engine.cli.interrupt import cancel_on_interrupt
from engine.cli.terminal import Terminal, answer_notes, stats_table
from engine.errors import UserError
from engine.messages import Message
from engine.text.effort import parse_effort

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.decode.options import GenerationOptions
    from engine.events import CancelFlag, Event, Generation


class Chatting(Protocol):
    """What a conversation needs of a session."""

    @property
    def drafting(self) -> bool: ...

    def set_drafting(self, enabled: bool, /) -> None: ...

    def generate(
        self,
        messages: Sequence[Message],
        options: GenerationOptions,
        *,
        effort: float | None,
        cancel: CancelFlag | None = None,
    ) -> Iterator[Event]: ...


class Reading(Protocol):
    """Where messages come from; None at the end."""

    def read(self) -> str | None: ...


class Conversation:
    """One chat. `history` is what the model sees."""

    def __init__(
        self,
        session: Chatting,
        options: GenerationOptions,
        terminal: Terminal,
        *,
        effort: float,
        system: str | None = None,
    ) -> None:
        self._session = session
        self._options = options
        self._terminal = terminal
        self._effort = effort
        self._system = system
        self._last: Generation | None = None
        self._asked: list[Message] | None = None
        self._open = True
        self.history: list[Message] = []
        self._commands: dict[str, tuple[str, str, Callable[[str], None]]] = {
            "/mtp": ("on|off", "switch the drafter; without a word, show its state", self._mtp),
            "/effort": ("LEVEL", "thinking effort of the next answers; without a word, show it", self._set_effort),
            "/system": ("TEXT", "system message; without a text, none", self._set_system),
            "/retry": ("", "answer the last message again", self._retry),
            "/stats": ("", "everything measured about the last answer", self._stats),
            "/new": ("", "start a new conversation", self._new),
            "/help": ("", "show this list", self._help),
            "/quit": ("", "leave (as Ctrl-D does)", self._quit),
        }

    def run(self, reader: Reading) -> None:
        """Reads and answers until the input ends."""
        while self._open and (line := reader.read()) is not None:
            try:
                if line.startswith("/") and not line.startswith("//"):
                    name, _, argument = line.strip().partition(" ")
                    self._command(name.lower(), argument.strip())
                elif line.strip():
                    self._answer([*self.history, Message("user", line[1:] if line.startswith("//") else line)])
            except UserError as error:
                self._terminal.note(f"error: {error.title}" + (f"\n{error.hint}" if error.hint else ""))

    def _command(self, name: str, argument: str) -> None:
        if name not in self._commands:
            self._terminal.note(
                f"There is no {name}; /help lists the commands. A message that starts with / takes two."
            )
            return
        self._commands[name][2](argument)

    def _answer(self, history: list[Message]) -> None:
        """Answers the last message of `history`, which becomes the conversation's unless nothing came of it."""
        self._asked = history
        system = [Message("system", self._system)] if self._system else []
        printer = AnswerPrinter(self._terminal, text=self._terminal.out, reasoning=self._terminal.out)
        with cancel_on_interrupt() as cancel:
            events = self._session.generate([*system, *history], self._options, effort=self._effort, cancel=cancel)
            generation, cancelled = printer.follow(events)
        self._last = generation
        self.history = [*history, generation.message] if generation.token_ids else history[:-1]
        for line in answer_notes(generation, stopped=cancelled):
            self._terminal.note(line)

    def _mtp(self, argument: str) -> None:
        if argument not in {"", "on", "off"}:
            self._terminal.note(f"/mtp takes on or off, not {argument!r}.")
            return
        if argument:
            self._session.set_drafting(argument == "on")
        self._terminal.note(f"The drafter is {'on' if self._session.drafting else 'off'}.")

    def _set_effort(self, argument: str) -> None:
        if argument:
            self._effort = parse_effort(argument)
        self._terminal.note(f"Thinking effort {self._effort:g}.")

    def _set_system(self, argument: str) -> None:
        self._system = argument or None
        self._terminal.note("System message set." if argument else "No system message.")

    def _retry(self, _argument: str) -> None:
        if self._asked is None:
            self._terminal.note("There is no message to answer again.")
            return
        self._answer(self._asked)

    def _stats(self, _argument: str) -> None:
        if self._last is None:
            self._terminal.note("Nothing has been answered yet.")
            return
        self._terminal.note(stats_table(self._last.stats))

    def _new(self, _argument: str) -> None:
        self.history = []
        self._last = self._asked = None
        self._terminal.note("New conversation.")

    def _quit(self, _argument: str) -> None:
        self._open = False

    def _help(self, _argument: str) -> None:
        for name, (takes, does, _action) in self._commands.items():
            self._terminal.note(f"{f'{name} {takes}':<16}{does}")

"""Reads what a person types, one message at a time."""

from __future__ import annotations

from engine.cli.streams import BYTE_ORDER_MARK, standard_input, unreadable_named
from engine.cli.terminal import Terminal

PROMPT = "› "


class LineReader:
    """Messages from standard input.

    On a terminal with line editing; text pasted with line breaks stays one message, and a line that ends with a
    backslash continues on the next. From a pipe, every line is a message and no prompt is shown.

    Raises:
        StreamError: standard input is closed; when read, where it fails or a pipe holds bytes that are no text.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._input = standard_input()
        self._interactive = self._input.isatty() and terminal.out.isatty()
        self._prompt = PROMPT
        if not self._interactive:
            return
        try:
            import readline
        except ImportError:  # a Python built without it still reads lines
            return
        # Python switches bracketed paste off by default; libedit ignores the setting.
        readline.parse_and_bind("set enable-bracketed-paste on")
        if terminal.styled(terminal.out):
            # \x01 and \x02 tell readline which characters take no room on the line.
            self._prompt = f"\x01\x1b[1m\x02{PROMPT}\x01\x1b[22m\x02"

    def read(self) -> str | None:
        """The next message; None at the end of input (Ctrl-D)."""
        if not self._interactive:
            with unreadable_named():
                line = self._input.readline()
            return line.removeprefix(BYTE_ORDER_MARK).removesuffix("\n") if line else None
        while True:
            try:
                return self._read_message()
            except UnicodeDecodeError as error:
                self._terminal.note(f"error: This line is not {error.encoding} text: {error.reason}.")
            except KeyboardInterrupt:
                self._terminal.note("\nCtrl-D or /quit leaves.")
            except EOFError:
                self._terminal.write("\n")
                return None

    def _read_message(self) -> str:
        line = input(self._prompt)
        while line.endswith("\\"):
            line = line[:-1] + "\n" + input("  ")
        return line

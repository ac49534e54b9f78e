"""What a model says is shown by the terminal, and never obeyed."""

from __future__ import annotations

import io
from typing import TextIO

from cli_fakes import generation

from engine.cli.answer_printer import AnswerPrinter
from engine.cli.terminal import Terminal
from engine.events import Finished, TextDelta
from engine.wording import printable


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


EVIL = "a\x1b]52;c;AAAA\x07b\x9b2Jc\rd\te\n\U0001f30a"


def shown(stream: TextIO) -> None:
    printer = AnswerPrinter(Terminal(stream, io.StringIO(), {"NO_COLOR": "1"}), text=stream, reasoning=stream)
    printer.follow([TextDelta("reasoning", EVIL), TextDelta("text", EVIL), Finished(generation(EVIL))])


def test_a_terminal_gets_no_control_characters() -> None:
    screen = Screen()
    shown(screen)
    assert screen.getvalue().count("a\\x1b]52;c;AAAA\\x07b\\x9b2Jc\\rd\te\n\U0001f30a") == 2
    assert not any(character in screen.getvalue() for character in "\x1b\x07\x9b\r")


def test_a_pipe_gets_every_character() -> None:
    pipe = io.StringIO()
    shown(pipe)
    assert pipe.getvalue().count(EVIL) == 2


def test_ordinary_text_stays_what_it_is() -> None:
    text = "Zwölf Möwen\u2009–\u00a0\u202bשלום\u202c\n\t\U0001f468\u200d\U0001f469"
    assert printable(text) == text

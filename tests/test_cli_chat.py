"""The terminal chat over a scripted session: turns, commands, interrupts, and a real pseudo-terminal."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_fakes import Cancelled, DraftStatus, Failed, Fakes, FakeSession, answer, fakes, generation

from app.__main__ import open_window
from app.display import NoDisplay
from engine.cli.conversation import Conversation
from engine.cli.line_reader import LineReader
from engine.cli.main import main
from engine.cli.terminal import Terminal
from engine.decode.options import GenerationOptions
from engine.errors import PromptError
from engine.events import CancelFlag, Event, Notice, TextDelta
from tests.processes import as_a_terminal_starts_it

__all__ = ["fakes"]


class Lines:
    """Types these lines, then ends the input."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    def read(self) -> str | None:
        return self._lines.pop(0) if self._lines else None


class Screen(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def chat(session: FakeSession, *lines: str, effort: float = 0.9, system: str | None = None) -> tuple[Conversation, str]:
    screen = io.StringIO()
    conversation = Conversation(
        session, GenerationOptions(), Terminal(screen, screen, {}), effort=effort, system=system
    )
    conversation.run(Lines(*lines))
    return conversation, screen.getvalue()


def contents(request: dict[str, object]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in request["messages"]]  # type: ignore[attr-defined]


def test_a_turn_carries_the_history_with_the_generated_ids() -> None:
    session = FakeSession([answer("one", token_ids=(5, 6)), answer("two")])
    _, screen = chat(session, "first", "", "second", system="brief")
    assert contents(session.requests[1]) == [
        ("system", "brief"),
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
    ]
    assert session.requests[1]["messages"][2].token_ids == (5, 6)
    assert screen.count("3.50 tokens/round") == 2
    assert screen.index("one") < screen.index("3.50 tokens/round") < screen.index("two")


def test_reasoning_and_figures_are_dimmed_only_on_a_terminal() -> None:
    def show(environ: dict[str, str]) -> str:
        screen = Screen()
        session = FakeSession([answer("Foam.", reasoning="Count syllables.")])
        Conversation(session, GenerationOptions(), Terminal(screen, screen, environ), effort=0.9).run(Lines("haiku"))
        return screen.getvalue()

    shown = show({})
    assert "\x1b[2mCount syllables.\x1b[22m\n\nFoam.\n" in shown
    assert "\x1b[2m3.50 tokens/round" in shown
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in show(environ)
        assert "Count syllables.\n\nFoam.\n" in show(environ)


def test_reasoning_in_many_pieces_is_dimmed_as_one() -> None:
    pieces: list[Event] = [TextDelta("reasoning", piece) for piece in ("Count", " syl", "lables.")]
    screen = Screen()
    session = FakeSession([[*pieces, *answer("Foam.")[2:]], [*pieces, Failed(PromptError("Full.", "Shorten it."))]])
    Conversation(session, GenerationOptions(), Terminal(screen, screen, {}), effort=0.9).run(Lines("haiku", "more"))
    assert "\x1b[2mCount syllables.\x1b[22m\n\nFoam.\n" in screen.getvalue()
    assert "\x1b[2mCount syllables.\x1b[22m\n\x1b[2merror: Full." in screen.getvalue()


def test_the_drafter_is_switched_between_answers() -> None:
    session = FakeSession([answer("one"), answer("two")])
    _, screen = chat(session, "/MTP off", "first", "/mtp on", "second", "/mtp", "/mtp sideways")
    assert [request["drafting"] for request in session.requests] == [False, True]
    assert "The drafter is off." in screen
    assert screen.count("The drafter is on.") == 2
    assert "'sideways'" in screen
    assert session.drafting


def test_effort_and_system_apply_to_the_next_answer() -> None:
    session = FakeSession([answer("one"), answer("two")])
    _, screen = chat(session, "/effort low", "/system be brief", "first", "/system", "/effort absurd", "second")
    assert [request["effort"] for request in session.requests] == [0.2, 0.2]
    assert contents(session.requests[0])[0] == ("system", "be brief")
    assert contents(session.requests[1])[0] == ("user", "first")
    assert "error: " in screen
    assert "absurd" in screen


def test_effort_without_a_word_is_shown() -> None:
    _, screen = chat(FakeSession([]), "/effort", "/effort low", "/effort", effort=0.7)
    assert screen == "Thinking effort 0.7.\nThinking effort 0.2.\nThinking effort 0.2.\n"


def test_retry_answers_the_same_history_again() -> None:
    session = FakeSession([answer("one"), answer("another"), answer("two")])
    conversation, _ = chat(session, "/retry", "first", "/retry", "second")
    assert contents(session.requests[1]) == contents(session.requests[0])
    assert contents(session.requests[2]) == [("user", "first"), ("assistant", "another"), ("user", "second")]
    assert [message.content for message in conversation.history] == ["first", "another", "second", "two"]


def test_new_forgets_the_conversation() -> None:
    session = FakeSession([answer("one"), answer("two")])
    _, screen = chat(session, "first", "/new", "/retry", "/stats", "second")
    assert contents(session.requests[1]) == [("user", "second")]
    assert "There is no message to answer again." in screen
    assert "Nothing has been answered yet." in screen


def test_stats_shows_everything_measured() -> None:
    _, screen = chat(FakeSession([answer()]), "hello", "/stats")
    assert "5 of 8, 62 %" in screen
    assert "100%, 50%, 50%, 50%" in screen
    assert "28 in (0 cached), 8 out" in screen
    assert "plain steps       0\n" in screen


def test_quit_help_and_unknown_commands() -> None:
    session = FakeSession([answer("never")])
    _, screen = chat(session, "/help", "/dance", "/quit", "not read")
    for command in ("/mtp on|off", "/effort", "/system", "/retry", "/stats", "/new", "/quit"):
        assert command in screen
    assert "There is no /dance" in screen
    assert session.requests == []


def test_two_slashes_send_a_message_that_starts_with_one() -> None:
    session = FakeSession([answer()])
    chat(session, "//etc/hosts, what is it?")
    assert contents(session.requests[0]) == [("user", "/etc/hosts, what is it?")]


def test_an_interrupt_stops_the_answer_and_keeps_the_chat() -> None:
    def stopped(cancel: CancelFlag | None) -> Iterator[Event]:
        assert cancel is not None
        yield TextDelta("text", "Half an")
        signal.raise_signal(signal.SIGINT)
        assert cancel.is_set()
        yield Cancelled(generation("Half an", reason="cancelled", token_ids=(7,)))

    session = FakeSession([stopped, answer("Whole.")])
    _, screen = chat(session, "first", "second")
    assert "Half an\nstopped · " in screen
    assert contents(session.requests[1]) == [("user", "first"), ("assistant", "Half an"), ("user", "second")]


def test_an_answer_stopped_before_its_first_token_leaves_no_trace_but_can_be_retried() -> None:
    nothing: list[Event] = [Cancelled(generation("", reason="cancelled", token_ids=()))]
    session = FakeSession([nothing, answer("one"), answer("two")])
    _, _ = chat(session, "first", "/retry", "second")
    assert contents(session.requests[1]) == [("user", "first")]
    assert contents(session.requests[2]) == [("user", "first"), ("assistant", "one"), ("user", "second")]


def test_a_mistake_is_shown_and_the_chat_goes_on() -> None:
    session = FakeSession([[Failed(PromptError("The prompt has 9999 tokens.", "Shorten it."))], answer("one")])
    conversation, screen = chat(session, "far too long", "short")
    assert "error: The prompt has 9999 tokens.\nShorten it." in screen
    assert contents(session.requests[1]) == [("user", "short")]
    assert len(conversation.history) == 2


def test_a_bug_ends_the_chat() -> None:
    with pytest.raises(ZeroDivisionError):
        chat(FakeSession([[Failed(ZeroDivisionError())]]), "hello")


def test_notices_and_the_truth_line_appear_below_the_answer() -> None:
    status = DraftStatus("auto", "none", "config.json promises a head, the files hold none", None, None)
    _, screen = chat(FakeSession([[Notice("The context is full."), *answer(draft=status)]]), "hello")
    assert "The context is full.\n" in screen
    assert "drafter: asked for auto, ran none: config.json promises" in screen


def test_piped_input_needs_no_terminal(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fakes.session.scripts = [answer("one"), answer("two")]
    monkeypatch.setattr("sys.stdin", io.StringIO("first\nsecond"))
    assert main(["chat", "-m", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == "one\ntwo\n"
    assert "MTP head with 4 depths, on" in err
    assert "no display" not in err


def test_without_a_command_and_a_display_the_chat_opens_with_a_notice(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fakes.engine.head_depths = 0
    fakes.engine.head_reason = "no tensors"
    monkeypatch.setattr("engine.cli.loading.demo_checkpoint", lambda: tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def no_display() -> None:
        raise NoDisplay("There is no display to open a window on.", "Use `inkstand chat`.")

    monkeypatch.setattr("app.gui.check_display", no_display)
    assert main([], open_window) == 0
    err = capsys.readouterr().err
    assert "There is no display to open a window on" in err
    assert "no MTP head: no tensors" in err


def test_without_a_command_the_window_opens_and_its_exit_code_counts() -> None:
    assert main([], lambda: 7) == 7


def test_a_checkpoint_without_a_template_cannot_chat(
    fakes: Fakes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fakes.engine.template = None
    assert main(["chat", "-m", str(tmp_path)]) == 2
    assert "no chat template" in capsys.readouterr().err


TYPED_CHAT = """
import fcntl, sys, termios, time, types
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.path.insert(0, {tests!r})
from cli_fakes import FakeEngine, FakeSession, answer
from engine.cli.main import main

class Echo(FakeSession):
    def _play(self, cancel):
        text = self.requests[-1]["messages"][-1].content
        if text == "wait":
            print("waiting", flush=True)
            while not cancel.is_set():
                time.sleep(0.01)
        yield from answer("echo " + repr(text))

session = Echo(engine=FakeEngine())
module = types.ModuleType("engine.session")
module.Engine, module.Session = session.engine, lambda engine, **options: session
sys.modules["engine.session"] = module
sys.exit(main(["chat", "-m", "."]))
"""


class Typist:
    """A chat in a pseudo-terminal of its own, driven by keys."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", TYPED_CHAT.format(tests=str(Path(__file__).parent))],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "INKSTAND_OPENBLAS": "0"},
            start_new_session=True,
            preexec_fn=as_a_terminal_starts_it,  # noqa: PLW1509 (two system calls, no lock)
        )
        os.close(slave)
        self._unread = b""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def expect(self, text: str) -> None:
        """Waits until `text` appears after what was expected before."""
        assert self._shown(text, 60), f"{text!r} was not shown, but {self._unread!r}"

    def type_until(self, keys: str, text: str) -> None:
        """Types once more where nothing came of it.

        CPython does not see a signal that comes in the instant between showing a key and waiting for the next one
        before it has a reason to wake up. A program that types is quick enough to hit that instant.
        """
        for _ in range(20):
            self.type(keys)
            if self._shown(text, 3):
                return
        pytest.fail(f"{text!r} was not shown, but {self._unread!r}")

    def _shown(self, text: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while text.encode() not in self._unread:
            ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return False
            self._unread += os.read(self._master, 4096)
        self._unread = self._unread.partition(text.encode())[2]
        return True

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


def test_a_typed_line_that_is_no_text_is_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter([b"caf\xe9", b"coffee"])
    monkeypatch.setattr("sys.stdin", Screen())
    monkeypatch.setattr("builtins.input", lambda _prompt: next(typed).decode())  # as it is where readline is missing
    screen = Screen()
    assert LineReader(Terminal(screen, screen, {"NO_COLOR": "1"})).read() == "coffee"
    assert screen.getvalue() == "error: This line is not utf-8 text: unexpected end of data.\n"


def test_a_byte_order_mark_is_no_part_of_a_piped_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeff/help\nhello\n"))
    reader = LineReader(Terminal(io.StringIO(), io.StringIO(), {}))
    assert [reader.read(), reader.read(), reader.read()] == ["/help", "hello", None]


@pytest.fixture
def typist() -> Iterator[Typist]:
    typist = Typist()
    yield typist
    typist.close()


def test_keys_in_a_real_terminal(typist: Typist) -> None:
    typist.expect("› ")
    typist.type("hello\n")
    typist.expect("echo 'hello'")
    typist.expect("› ")
    typist.type("\x1b[200~line one\nline two\x1b[201~\n")
    typist.expect("echo 'line one\\nline two'")
    typist.expect("› ")
    typist.type("ends with \\\n")
    typist.type("a backslash\n")
    typist.expect("echo 'ends with \\na backslash'")
    typist.expect("› ")
    typist.type("wait\n")
    typist.expect("waiting")
    typist.type("\x03")
    typist.expect("echo 'wait'")
    typist.expect("› ")
    typist.type("half a line")
    typist.expect("half a line")
    typist.type_until("\x03", "Ctrl-D or /quit leaves.")
    typist.expect("› ")
    typist.type("\x04")
    assert typist.process.wait(20) == 0

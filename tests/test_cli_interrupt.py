"""Ctrl-C before the command runs and after it has run, in the real process; twice at once while an answer is made."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from types import FrameType
from typing import Any

import pytest

from engine.cli.interrupt import cancel_on_interrupt
from tests.processes import ROOT, as_a_terminal_starts_it

ENTRY = "from app.__main__ import main; sys.exit(main())"
WHILE_IT_STARTS = f"""
import os, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "signal":
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Interrupt())
sys.modules.pop("signal", None)
sys.argv[1:] = ["--version"]
{ENTRY}
"""
"""The program imports what it needs to take Ctrl-C into its own hands."""
WHILE_MODULES_LOAD = f"""
import signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "engine.cli.main":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["--version"]
{ENTRY}
"""
AT_THE_EXIT = f"""
import atexit, signal, sys
atexit.register(signal.raise_signal, signal.SIGINT)
sys.argv[1:] = ["--version"]
{ENTRY}
"""


@pytest.mark.parametrize("script", [WHILE_IT_STARTS, WHILE_MODULES_LOAD, AT_THE_EXIT])
def test_an_interrupt_around_the_command_leaves_no_traceback(script: str) -> None:
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, preexec_fn=as_a_terminal_starts_it
    )
    assert done.returncode == 130
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("module", "ends"),
    [("multiprocessing", -signal.SIGINT), ("app.__main__", -signal.SIGINT), ("engine.cli.main", 130)],
)
@pytest.mark.parametrize("ignored", [False, True])
def test_an_interrupt_while_the_bundle_starts_leaves_no_traceback(module: str, ends: int, ignored: bool) -> None:
    script = f"""
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN if {ignored} else signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
runpy.run_path("packaging/interrupts.py")
sys.meta_path.insert(0, Interrupt())
sys.modules.pop("multiprocessing", None)
sys.argv[1:] = ["--version"]
runpy.run_path("packaging/launch.py", run_name="__main__")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT, preexec_fn=as_a_terminal_starts_it
    )
    assert done.stderr == ""
    assert done.returncode == (0 if ignored else ends)
    assert done.stdout.startswith("inkstand ") == ignored


def test_the_bundle_takes_ctrl_c_in_hand_before_anything_else() -> None:
    spec = (ROOT / "packaging" / "inkstand.spec").read_text(encoding="utf-8")
    assert re.search(r'runtime_hooks=\[str\(Path\(SPECPATH, "interrupts.py"\)\)\]', spec)


def test_a_command_that_is_told_to_ignore_interrupts_ignores_them() -> None:
    script = f"import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{WHILE_MODULES_LOAD}"
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, preexec_fn=as_a_terminal_starts_it
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("inkstand ")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("moment", range(1, 12))
def test_a_second_interrupt_in_the_middle_of_the_first_locks_nothing_up(moment: int) -> None:
    """A terminal and a parent process that passes Ctrl-C on send two SIGINT in the same instant."""
    lines = 0

    def interrupt_again(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == moment:
                signal.raise_signal(signal.SIGINT)
        return interrupt_again

    tracer = sys.gettrace()
    with cancel_on_interrupt() as cancel:
        try:
            sys.settrace(interrupt_again)
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracer)
        assert cancel.is_set()

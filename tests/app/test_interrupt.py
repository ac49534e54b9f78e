"""Ctrl-C in the terminal that opened the window."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app.interrupt import quit_on_interrupt
from tests.processes import as_a_terminal_starts_it

SECOND = """
import signal, sys
from PySide6.QtCore import QCoreApplication
from app.interrupt import quit_on_interrupt
application = QCoreApplication([])
with quit_on_interrupt(lambda: print("leaving", flush=True) or signal.raise_signal(signal.SIGINT)):
    signal.raise_signal(signal.SIGINT)
    application.exec()
"""


@pytest.mark.parametrize(
    ("number", "default"),
    [
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ],
)
def test_a_signal_wakes_a_loop_that_sleeps(qapp: QApplication, number: signal.Signals, default: object) -> None:
    before = signal.signal(number, default)  # type: ignore[arg-type]
    # From outside: a timer of this process would be the reason to wake up.
    sender = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; kill -{int(number)} {os.getpid()}"])
    try:
        loop, left = QEventLoop(), []
        QTimer.singleShot(20_000, loop, loop.quit)
        with quit_on_interrupt(lambda: (left.append(True), loop.quit())):
            loop.exec()
        assert left == [True]
        assert signal.getsignal(number) == default
    finally:
        sender.wait()
        signal.signal(number, before)


def test_the_second_interrupt_does_not_wait() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SECOND],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=as_a_terminal_starts_it,  # two system calls, no lock
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "leaving\n", "")


@pytest.mark.parametrize("after_s", [0.0, 2.0])
def test_an_interrupt_closes_the_window_and_leaves_no_traceback(tmp_path: Path, after_s: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app"],
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "INKSTAND_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=as_a_terminal_starts_it,  # noqa: PLW1509 (two system calls, no lock)
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "data" / "history.sqlite3").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "Traceback" not in shown
        assert json.loads((tmp_path / "config" / "settings.json").read_text())["window_state"]
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()

"""Keeps the machine from falling asleep while it works; the display may go dark."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

_log = logging.getLogger(__name__)


def inhibitor(platform: str = sys.platform, which: Callable[[str], str | None] = shutil.which) -> Sequence[str] | None:
    """The command that inhibits idle sleep for as long as it runs, None where there is none."""
    if platform == "darwin":
        # -i: idle sleep of the system only. -w: ends with this process, however that ends.
        return ("/usr/bin/caffeinate", "-i", "-w", str(os.getpid()))
    if platform == "linux" and which("systemd-inhibit") and which("tail"):
        reason = ("--what=idle", "--who=Inkstand", "--why=An answer or a download is under way", "--mode=block")
        return ("systemd-inhibit", *reason, "tail", "-f", "/dev/null", f"--pid={os.getpid()}")
    return None


class SleepGuard:
    """Runs the inhibitor while `active`."""

    def __init__(self, command: Sequence[str] | None) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def active(self) -> bool:
        return self._process is not None

    def set_active(self, on: bool) -> None:
        if on and self._process is None and self._command is not None:
            quiet = subprocess.DEVNULL
            try:
                self._process = subprocess.Popen(self._command, stdin=quiet, stdout=quiet, stderr=quiet)
            except OSError as error:
                _log.info("Idle sleep cannot be inhibited: %s", error)
                self._command = None
        elif not on and self._process is not None:
            process, self._process = self._process, None
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)

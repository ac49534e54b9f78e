"""What tests share that start processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent


def as_a_terminal_starts_it() -> None:
    """For `preexec_fn`: Ctrl-C counts, also where the tests were started in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def holding(script: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `script` on a path, says "holds" and lives until the end of the block."""
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "holds\n"
        try:
            yield process
        finally:
            process.kill()
            process.wait()

"""What tests share that start processes of their own."""

from __future__ import annotations

import signal


def as_a_terminal_starts_it() -> None:
    """For `preexec_fn`: Ctrl-C counts, also where the tests were started in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

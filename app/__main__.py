"""Entry point of the `inkstand` command and of `python -m app`.

Nothing but the interpreter's own modules is imported at the top: Ctrl-C while the rest loads ends the command quietly.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130
"""Exit code, as a shell reports a command that SIGINT ended."""
try:
    import signal
    from types import FrameType
except KeyboardInterrupt:
    # Before the program could take Ctrl-C into its own hands; nothing of it has run yet.
    os._exit(INTERRUPTED)

SELF_TEST = "--self-test"


def open_window() -> int | None:
    """Runs the window until the user quits; where there is no display, says so and returns None."""
    from app.gui import NoDisplay, run_gui  # noqa: PLC0415 (the commands do without it)

    try:
        return run_gui([])
    except NoDisplay as reason:
        sys.stderr.write(f"{reason.title} This is the chat in the terminal; `inkstand --help` lists the commands.\n")
        return None


def main() -> int:
    """Opens the window, or runs the command that the arguments name; returns the exit code."""
    try:
        return _run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _run() -> int:
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return _run_command()  # a shell that starts a command in the background has it ignore Ctrl-C
    # While modules load and while the interpreter shuts down, an exception would end as a traceback from anywhere.
    signal.signal(signal.SIGINT, _leave)
    try:
        return _run_command(interruptible=True)
    finally:
        signal.signal(signal.SIGINT, _leave)


def _run_command(*, interruptible: bool = False) -> int:
    if sys.argv[1:] == [SELF_TEST]:
        return _run_self_test()
    from engine.cli.main import main as run_cli  # noqa: PLC0415 (see above)

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_cli(sys.argv[1:], open_window)


def _run_self_test() -> int:
    from app.self_test import main as run_self_test  # noqa: PLC0415 (see above)
    from engine.cli.streams import StreamError, complain, run_with_output  # noqa: PLC0415 (see above)

    try:
        return run_with_output(run_self_test)
    except StreamError as error:
        complain(error)
        return 1


def _leave(_signum: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())

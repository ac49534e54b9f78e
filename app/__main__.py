"""Entry point of the `inkstand` command and of `python -m app`."""

from __future__ import annotations

import sys

from engine.cli.main import main as run_cli


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
    return run_cli(sys.argv[1:], open_window)


if __name__ == "__main__":
    sys.exit(main())

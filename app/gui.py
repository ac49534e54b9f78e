"""Opens the window. Nothing of Qt is imported before it is known that there is a display."""

from __future__ import annotations

from collections.abc import Sequence

from app.display import NoDisplay, check_display
from engine.errors import UserError

__all__ = ["NoDisplay", "run_gui"]


def run_gui(argv: Sequence[str]) -> int:
    """Run the window until the user quits and return the exit code.

    Args:
        argv: arguments after the program's name: `-m DIR` loads that checkpoint instead of the last one or the demo.

    Raises:
        NoDisplay: there is no display, or the libraries that Qt needs for one are missing.
        UserError: an argument is wrong, or another process has the data folder; a message box said so where there is
            no terminal.
    """
    check_display()
    try:
        from app.composition import run, tell  # noqa: PLC0415 (imports Qt)
    except ImportError as error:
        if "PySide6" not in str(error) and ".so" not in str(error):
            raise
        raise NoDisplay(
            f"The window needs a library that is missing: {error}.", "Install it, or use `inkstand chat`."
        ) from error
    try:
        return run(argv)
    except UserError as error:
        tell(error)
        raise

"""What happens to an exception nobody expected: it is logged, kept, and shown with a report that can be copied."""

from __future__ import annotations

import asyncio
import logging
import platform
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from app.hints import words_of
from engine import __version__
from engine.errors import UserError

BUG = "Something went wrong inside Inkstand."
_log = logging.getLogger(__name__)


def report(error: BaseException) -> str:
    """The text of a bug report: versions, system, traceback. Holds no text of any chat."""
    import PySide6  # noqa: PLC0415 (not needed before something breaks)

    head = (
        f"Inkstand {__version__}\n"
        f"Python {platform.python_version()}, PySide6 {PySide6.__version__}\n"
        f"{platform.platform()}, {platform.machine()}\n"
    )
    return head + "\n" + "".join(traceback.format_exception(error))


class CrashHandler:
    """Catches what is raised in slots, threads and tasks.

    Args:
        show: called with (error, report) in whatever thread it happened; must pass it on to the window's thread.
    """

    def __init__(self, show: Callable[[BaseException, str], None]) -> None:
        self._show = show
        self._seen: set[str] = set()

    def install(self) -> None:
        """Take over the hooks of the interpreter; `uninstall` puts the default ones back."""
        sys.excepthook = self._hook
        threading.excepthook = self._thread_hook

    def uninstall(self) -> None:
        sys.excepthook = sys.__excepthook__
        threading.excepthook = threading.__excepthook__

    def handle(self, error: BaseException) -> None:
        """Report `error`; the same one only once, since a timer repeats it for ever."""
        if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            return
        text = report(error)
        _log.error("%s", text)
        last = traceback.extract_tb(error.__traceback__)[-1:]
        key = f"{type(error).__name__}:{[(frame.filename, frame.lineno) for frame in last]}"
        if key not in self._seen:
            self._seen.add(key)
            self._show(error, text)

    def loop_handler(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """For `loop.set_exception_handler`."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.handle(error)
        else:
            _log.error("Event loop %r: %s", loop, context.get("message"))

    def _hook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        self.handle(error.with_traceback(trace))

    def _thread_hook(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            self.handle(args.exc_value)


def blame(error: BaseException) -> tuple[str, str, bool]:
    """Title, hint and whether it is a bug: a `UserError` tells its cure, anything else is ours."""
    if isinstance(error, UserError):
        return *words_of(error), False
    return BUG, "This is a bug. The report helps to mend it.", True

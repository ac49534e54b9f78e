"""The standard streams where they are missing, full, or read by nobody any more."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Generator
from typing import Final, TextIO, cast

from engine.errors import UserError
from engine.wording import printable

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


BYTE_ORDER_MARK: Final = "\ufeff"
"""What some editors begin a file with; no part of its text."""


class StreamError(UserError):
    """A standard stream cannot be read or written."""


class ClosedOutput(io.TextIOWrapper):
    """Stands in for an output stream that is closed: the window and its libraries may write to it, and nobody reads."""


def _prepare_output() -> None:
    """Makes both output streams usable: a closed one goes nowhere, an old locale shows a question mark."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = cast(object, getattr(sys, name))
        if stream is None:
            _lead_nowhere(descriptor)  # or the next file that is opened would get what children and libraries print
            setattr(sys, name, ClosedOutput(os.fdopen(descriptor, "wb", closefd=False), encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def standard_output() -> TextIO:
    """Standard output. Raises `StreamError` where it is closed: what a command has to say would be lost."""
    if isinstance(sys.stdout, ClosedOutput):
        raise StreamError(
            "Standard output is closed, so nothing can be shown on it.",
            f"Redirect it to a file, or to {os.devnull} where it is not wanted.",
        )
    return sys.stdout


def standard_input() -> TextIO:
    """Standard input, of which bytes that are no text raise UnicodeDecodeError. Raises `StreamError` where closed."""
    stream = cast(TextIO | None, sys.stdin)
    if stream is None:
        raise StreamError("Standard input is closed, so nothing can be read from it.", "Redirect a file or a pipe.")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="strict")  # some locales let such bytes through as lone surrogates
    return stream


def read_input() -> str:
    """All of standard input but a byte order mark. Raises `StreamError` where it cannot be read or is not text."""
    stream = standard_input()
    with unreadable_named():
        return stream.read().removeprefix(BYTE_ORDER_MARK)


@contextlib.contextmanager
def unreadable_named() -> Generator[None]:
    """Around reads of standard input: raises `StreamError` for one that fails, and for bytes that are no text."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise StreamError(
            f"Standard input is not {error.encoding} text: {error.reason}.", "Convert it first."
        ) from error
    except OSError as error:
        raise StreamError(f"Standard input cannot be read: {error.strerror}.", "Redirect a file or a pipe.") from error


def run_with_output(run: Callable[[], int]) -> int:
    """Runs a whole command and returns its exit code; 0 where the reader of a pipe went away.

    Raises:
        StreamError: an output stream cannot be written. It is led nowhere, so that the interpreter's exit does not
            meet the failure again.
        OSError: as `run`, where it has nothing to do with the output.
    """
    _prepare_output()
    try:
        try:
            return run()
        finally:
            # What is still buffered; a failure is met here and not at the interpreter's exit.
            sys.stdout.flush()
            sys.stderr.flush()
    except OSError as error:
        failure = _silence_failed_output(error)
        if isinstance(failure or error, BrokenPipeError):
            return 0
        if failure is None:
            raise
        reason = failure.strerror or str(failure)
        raise StreamError(f"Cannot write the output: {reason[:1].lower()}{reason[1:]}.") from error


def complain(error: UserError) -> None:
    """Says on standard error what is wrong, and how to mend it."""
    say(f"error: {error.title}")
    if error.hint:
        say(error.hint)


def say(line: str) -> None:
    """A line on standard error, which may be full or closed: that changes nothing about how a command ends."""
    with contextlib.suppress(OSError):
        print(printable(line), file=sys.stderr)


def _silence_failed_output(reason: OSError) -> OSError | None:
    """Sends each output stream that cannot be written to nowhere; returns the first failure, None if there is none.

    `reason` is what made the caller ask. A buffered stream keeps what it could not write, so flushing it fails again,
    and would once more at the interpreter's exit. An unbuffered one forgets it, hence the line break that tries it.
    """
    failure: OSError | None = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
            if reason.errno in _FULL:
                stream.write("\n")
                stream.flush()
        except OSError as error:
            failure = failure or error
            _lead_nowhere(stream.fileno())
    return failure


def _lead_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)

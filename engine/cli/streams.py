"""The standard streams where they are missing, full, or read by nobody any more."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Final, Literal, TextIO, cast

from engine.errors import UserError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class StreamError(UserError):
    """A standard stream cannot be read or written."""


def prepare_output() -> None:
    """Makes both output streams usable: a closed one goes nowhere, an old locale shows a question mark."""
    for name in ("stdout", "stderr"):
        stream = cast(object, getattr(sys, name))
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (open until the exit)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def standard_input(errors: Literal["strict", "replace"]) -> TextIO:
    """Standard input; `errors` is for bytes that are no text. Raises `StreamError` where it is closed."""
    stream = cast(TextIO | None, sys.stdin)
    if stream is None:
        raise StreamError("Standard input is closed, so nothing can be read from it.", "Redirect a file or a pipe.")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors=errors)  # some locales let such bytes through as lone surrogates
    return stream


def read_input() -> str:
    """All of standard input. Raises `StreamError` where it cannot be read or is not text."""
    stream = standard_input("strict")
    try:
        return stream.read()
    except UnicodeDecodeError as error:
        raise StreamError(
            f"Standard input is not {error.encoding} text: {error.reason}.", "Convert it first."
        ) from error
    except OSError as error:
        raise StreamError(f"Standard input cannot be read: {error.strerror}.", "Redirect a file or a pipe.") from error


def flush_output() -> None:
    """Writes out what is still buffered, so that a failure is met here and not at the interpreter's exit."""
    sys.stdout.flush()
    sys.stderr.flush()


def silence_failed_output(reason: OSError) -> OSError | None:
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
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return failure

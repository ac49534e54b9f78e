"""Parses the command line, runs one command, and turns its failures into messages and exit codes.

0: done. 2: the user can mend it. 130: interrupted. 1: a bug, with a report on disk.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import engine
from engine.cli import (
    bench,
    chat,
    convert,
    download,
    draft_report,
    draft_vocabulary,
    generate,
    info,
    inspect_,
    models,
    parity,
    plan,
    plan_memory,
)
from engine.cli.arguments import Parser, UsageError
from engine.cli.streams import StreamError, complain, run_with_output, say
from engine.errors import UserError
from engine.paths import user_paths

OpenWindow = Callable[[], int | None]
"""Opens the window and returns the exit code, or says why it cannot and returns None."""


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="inkstand",
        description="Chat with Inkling checkpoints, sped up by their own MTP head.",
        epilog="Without a command the window opens; where there is no display, the chat in the terminal. "
        "`inkstand --self-test` says whether this installation works.",
    )
    parser.add_argument("--version", action="version", version=f"inkstand {engine.__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in (
        chat,
        generate,
        plan,
        plan_memory,
        download,
        models,
        convert,
        inspect_,
        draft_report,
        draft_vocabulary,
        bench,
        parity,
        info,
    ):
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str], open_window: OpenWindow | None = None) -> int:
    """Runs the command that `argv` (without the program's name) names; returns the exit code.

    Without a command `open_window` gets its chance, then the terminal chat opens.
    """
    try:
        return run_with_output(lambda: _run(argv, open_window))
    except StreamError as error:
        complain(error)
        return 2
    except OSError as error:
        return _report_bug(argv, error)


def _run(argv: Sequence[str], open_window: OpenWindow | None) -> int:
    try:
        if not argv and open_window is not None and (code := open_window()) is not None:
            return code
        _check_command(argv)
        args = build_parser().parse_args(argv or ["chat"])
        return args.run(args)
    except SystemExit as request:  # argparse, after printing help or the version
        return int(request.code or 0)
    except UserError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        say("")
        return 130
    except OSError:
        raise  # may be the output's
    except Exception as error:
        return _report_bug(argv, error)


def _check_command(argv: Sequence[str]) -> None:
    """Raises UsageError for an option without a command, whose value argparse would take for one."""
    first = next(iter(argv), "chat")
    if first.startswith("-") and not any(known.startswith(first) for known in ("-h", "--help", "--version")):
        raise UsageError(
            f"{first} has no command before it.",
            "Write one first, as in `inkstand chat -m MODEL`. See: inkstand --help",
        )


def _report_bug(argv: Sequence[str], error: Exception) -> int:
    report = write_crash_report(argv)
    say(f"error: Inkstand failed: {type(error).__name__}: {error}")
    say(f"This is a bug. Please report it with {report}")
    return 1


def write_crash_report(argv: Sequence[str]) -> Path:
    """Writes the current exception's traceback below the log directory, or a temporary one when that is not writable.

    Of the arguments only the command's name is kept: the rest may hold what somebody wrote.
    """
    text = "\n".join(
        [
            f"inkstand {engine.__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command: {next(iter(argv), 'none')}",
            traceback.format_exc(),
        ]
    )
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        directory = user_paths().logs
        directory.mkdir(parents=True, exist_ok=True)
        report = directory / name
        report.write_text(text, encoding="utf-8")
    except (OSError, UserError):
        report = Path(tempfile.mkdtemp(prefix="inkstand-")) / name
        report.write_text(text, encoding="utf-8")
    return report

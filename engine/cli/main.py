"""Parses the command line, runs one command, and turns its failures into messages and exit codes.

0: done. 2: the user can mend it. 130: interrupted. 1: a bug, with a report on disk.
"""

from __future__ import annotations

import io
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import engine
from engine.cli import chat, convert, download, draft_report, generate, info, inspect_, models, plan
from engine.cli.arguments import Parser
from engine.cli.terminal import Terminal
from engine.errors import UserError
from engine.paths import user_paths

OpenWindow = Callable[[], int | None]
"""Opens the window and returns the exit code, or says why it cannot and returns None."""


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="inkstand",
        description="Chat with Inkling checkpoints, sped up by their own MTP head.",
        epilog="Without a command the window opens; where there is no display, the chat in the terminal.",
    )
    parser.add_argument("--version", action="version", version=f"inkstand {engine.__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in (chat, generate, plan, download, models, convert, inspect_, draft_report, info):
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str], open_window: OpenWindow | None = None) -> int:
    """Runs the command that `argv` (without the program's name) names; returns the exit code.

    Without a command `open_window` gets its chance, then the terminal chat opens.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal in an old locale shows a question mark rather than ending the answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    terminal = Terminal()
    try:
        if not argv and open_window is not None and (code := open_window()) is not None:
            return code
        args = build_parser().parse_args(argv or ["chat"])
        return args.run(args)
    except SystemExit as request:  # argparse, after printing help or the version
        return int(request.code or 0)
    except UserError as error:
        print(f"error: {error.title}", file=sys.stderr)
        if error.hint:
            print(error.hint, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe went away. Python flushes standard output once more at exit; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        terminal.clear_progress()
        report = write_crash_report(argv)
        print(f"error: Inkstand failed: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"This is a bug. Please report it with {report}", file=sys.stderr)
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
    except OSError:
        report = Path(tempfile.mkdtemp(prefix="inkstand-")) / name
        report.write_text(text, encoding="utf-8")
    return report

"""`inkstand download`: fetches a checkpoint, or its MTP head; the same command continues what was interrupted."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from engine.cli import plan as plan_command
from engine.cli.arguments import Subparsers, integer
from engine.cli.hub_options import add_request_options, request_of, target_of
from engine.cli.path_types import non_empty
from engine.cli.terminal import Terminal
from engine.cli.units import duration, rate, size

if TYPE_CHECKING:
    from engine.hub.library import Library
    from engine.hub.plan import Plan
    from engine.hub.progress import DownloadProgress

_PLAIN_EVERY = 10.0
"""Seconds between lines where standard error is no terminal."""
_BAR = 24


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser("download", help="fetch a checkpoint or its MTP head from the Hugging Face Hub")
    parser.set_defaults(run=run)
    add_request_options(parser)
    parser.add_argument(
        "--limit-rate", type=non_empty, metavar="RATE", help="bandwidth cap, for example 500k, 20M or 8MiB per second"
    )
    parser.add_argument(
        "--connections",
        metavar="N",
        type=integer("a whole number from 1 to 32", lambda n: 1 <= n <= 32),
        help="parallel connections (default: 4)",
    )


def run(args: argparse.Namespace) -> int:
    """Downloads. Returns 0 when complete, 130 after Ctrl-C. Raises UserError for everything the user can mend."""
    from engine.errors import UserError
    from engine.hub.errors import HubError

    terminal = Terminal()
    lines = JsonReport(terminal) if args.json else None
    try:
        return asyncio.run(_download(args, terminal, lines or TextReport(terminal)))
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        if lines is None:
            raise
        code = error.reason if isinstance(error, HubError) else "usage"
        lines.line({"event": "error", "code": code, "reason": error.title, "cure": error.hint})
        return 2


class Report(Protocol):
    """Tells the user how a download goes."""

    def plan(self, plan: Plan) -> None: ...
    def progress(self, progress: DownloadProgress) -> None: ...
    def end(self, progress: DownloadProgress) -> None: ...


class JsonReport:
    """A line of JSON per event, on standard output."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def line(self, value: dict[str, Any]) -> None:
        self._terminal.json(value)

    def plan(self, plan: Plan) -> None:
        self.line({"event": "plan", **plan.to_json()})

    def progress(self, progress: DownloadProgress) -> None:
        self.line(progress.to_json())

    def end(self, progress: DownloadProgress) -> None:
        self.line({**progress.to_json(with_files=True), "event": "end"})


class TextReport:
    """A bar on a terminal; elsewhere a line now and then and whenever the state changes."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._state = ""
        self._next_line = 0.0

    def plan(self, plan: Plan) -> None:
        for line in (f"{plan.request.repo} → {plan.target}", *plan.notes, *plan_command.summary(plan)):
            self._terminal.note(line)

    def progress(self, progress: DownloadProgress) -> None:
        if self._terminal.styled(self._terminal.err):
            fraction = progress.done / progress.total if progress.total else 1.0
            self._terminal.progress(fraction, bar(progress, shutil.get_terminal_size().columns - 6))
        elif progress.state != self._state or time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _PLAIN_EVERY
            self._terminal.note(describe(progress))
        self._state = progress.state

    def end(self, progress: DownloadProgress) -> None:
        self._terminal.clear_progress()
        if progress.state == "ready":
            self._terminal.line(str(progress.target))
        elif progress.reason is None:
            self._terminal.note(
                f"Paused: {size(progress.done)} of {size(progress.total)} are kept. "
                "The same command continues from there."
            )


def bar(progress: DownloadProgress, width: int) -> str:
    """A bar and what `describe` says, cut to the width of the terminal."""
    done = int(_BAR * progress.done / progress.total) if progress.total else _BAR
    return f"[{'#' * done}{'-' * (_BAR - done)}] {describe(progress)}"[: max(0, width)]


def describe(progress: DownloadProgress) -> str:
    """One line about a running download."""
    parts = [f"{size(progress.done)} of {size(progress.total)}"]
    if progress.state == "downloading":
        parts += [rate(progress.rate)] if progress.rate else ["connecting"]
        parts += [f"{duration(progress.eta)} left"] if progress.eta is not None else []
    elif progress.state == "verifying":
        parts.append(f"verifying, {size(progress.verified)} done")
    else:
        parts.append(progress.state)
        parts += [progress.reason] if progress.reason else []
    parts.append(f"{progress.files_ready}/{len(progress.files)} files")
    return " · ".join(parts)


async def _download(args: argparse.Namespace, terminal: Terminal, report: Report) -> int:
    from engine.hub.context import TransferSettings
    from engine.hub.errors import HubError, SelectionError
    from engine.hub.limiter import parse_rate
    from engine.hub.manager import DownloadManager
    from engine.installed import open_library

    limit = parse_rate(args.limit_rate) if args.limit_rate else None
    library, request = open_library(), request_of(args)
    settings = TransferSettings()
    if args.connections is not None:
        settings = replace(settings, connections=args.connections)
    async with DownloadManager(library.journals, settings=settings, rate=limit) as manager:
        plan = await manager.plan(request, target_of(args, request.repo, library))
        report.plan(plan)
        if plan.unusable and not plan.request.include:
            raise SelectionError(
                plan.unusable,
                "`inkstand models catalog` lists what runs here; --include fetches chosen files all the same.",
            )
        manager.subscribe(report.progress)
        job = await manager.start(plan)
        try:
            last = await manager.wait(job)
        except asyncio.CancelledError:
            await manager.pause(job)
            report.end(manager.downloads()[0])
            raise
    report.end(last)
    if last.state != "ready":
        failure = HubError(last.reason or "The download stopped.", last.cure or "")
        if args.json:
            return 2
        raise failure
    if args.to is not None and not plan.target.is_relative_to(library.models_folder):
        library.add_folder(plan.target)
    if not args.json:
        terminal.note(_next_step(plan, library))
    return 0


def _next_step(plan: Plan, library: Library) -> str:
    """What can be done with what was downloaded."""
    from engine.hub.folder import model_folder

    if plan.request.kind == "head":
        return f"Pair it with a model: inkstand models pair MODEL {plan.request.repo}"
    model = library.describe(plan.target, name=plan.request.repo)
    if not model.loadable:
        return f"What is there cannot be loaded by itself. {model.problem or ''}".rstrip()
    own = plan.target == model_folder(library.models_folder, plan.request.repo)
    return f"Chat with it: inkstand chat -m {plan.request.repo if own else shlex.quote(str(plan.target))}"

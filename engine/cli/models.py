"""`inkstand models`: what is on disk, and looking after it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli.arguments import Subparsers, UsageError, real
from engine.cli.path_types import folder, home_path, non_empty, output_folder
from engine.cli.terminal import DASH, Terminal
from engine.cli.units import size
from engine.wording import printable

if TYPE_CHECKING:
    from engine.hub.entry import Model
    from engine.hub.jobs import StoredDownload
    from engine.hub.library import Library


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command and what it can do."""
    parser = subparsers.add_parser("models", help="list, check, delete, move and pair the models on disk")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    listing = actions.add_parser("list", help="every model, and downloads that are not complete")
    details = actions.add_parser("info", help="everything that is known about a model")
    verify = actions.add_parser("verify", help="read a model's files again and compare their checksums")
    remove = actions.add_parser("remove", help="delete what Inkstand downloaded into a model's folder")
    cancel = actions.add_parser(
        "cancel",
        help="take a download that is not complete off the list",
        description="What was fetched is kept, and the same download continues from it; --delete removes it.",
    )
    pair = actions.add_parser("pair", help="choose the MTP head that a model is used with")
    catalog = actions.add_parser("catalog", help="the known checkpoints, with what they need")
    move = actions.add_parser("move", help="choose another models folder and move the models there")
    folders = actions.add_parser("folders", help="further folders to look for models in")
    for action, work in (
        (listing, _list), (details, _info), (verify, _verify), (remove, _remove), (cancel, _cancel), (pair, _pair),
        (catalog, _catalog), (move, _move), (folders, _folders),
    ):  # fmt: skip
        action.set_defaults(run=run, work=work)
    for action in (details, verify, remove):
        action.add_argument("model", type=non_empty, metavar="MODEL", help="owner/name or path")
    for action in (listing, details, verify, catalog):
        action.add_argument("--json", action="store_true", help="print JSON")
    cancel.add_argument("model", type=non_empty, metavar="MODEL", help="owner/name, or the folder it goes to")
    cancel.add_argument("--delete", action="store_true", help="delete what was fetched")
    for action in (remove, cancel):
        action.add_argument("--yes", action="store_true", help="do not ask before deleting")
    pair.add_argument("model", type=non_empty, metavar="MODEL", help="owner/name or path")
    which = pair.add_mutually_exclusive_group(required=True)
    which.add_argument("head", type=non_empty, metavar="HEAD", nargs="?", help="model or folder that holds the head")
    which.add_argument("--none", action="store_true", help="no head, even where the model has its own")
    which.add_argument("--auto", action="store_true", help="the model's own head, or one that fits")
    catalog.add_argument(
        "--memory",
        metavar="GB",
        type=real("above 0 and at most 1,000,000", lambda value: 0 < value <= 1e6),
        help="only what runs on a Mac with so much memory",
    )
    move.add_argument("folder", metavar="DIR", type=output_folder, help="the new models folder")
    folders.add_argument("--add", metavar="DIR", type=folder, help="look there, too")
    folders.add_argument("--remove", metavar="DIR", type=home_path, help="look there no more; nothing is deleted")
    parser.set_defaults(run=run, work=_list, json=False)


def run(args: argparse.Namespace) -> int:
    """Does what was asked. Raises UserError."""
    from engine.installed import open_library

    work: Callable[[Library, argparse.Namespace, Terminal], int] = args.work
    return work(open_library(), args, Terminal())


def _list(library: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    from engine.hub.jobs import read_downloads

    models = library.models()
    waiting = [d for d in read_downloads(library.journals) if d.progress.state != "ready"]
    if args.json:
        downloads = [d.progress.to_json() for d in waiting]
        terminal.json({"models": [m.to_json() for m in models], "downloads": downloads})
        return 0
    if not models and not waiting:
        terminal.line("No models yet. `inkstand models catalog` lists what there is to download.")
    rows = [[m.name, m.status, size(m.size), _kind(m), _head(m, models, library), m.source] for m in models]
    _table(terminal, [["MODEL", "STATE", "SIZE", "KIND", "MTP HEAD", "FROM"], *rows] if rows else [])
    if any(model.problem for model in models):
        terminal.note("`inkstand models info MODEL` says what is wrong with one that is not ready.")
    for download in waiting:
        progress = download.progress
        terminal.line(
            f"{progress.repo}: {progress.state}, {size(progress.done)} of {size(progress.total)}, {progress.target}"
        )
        if progress.reason:
            terminal.line(f"  {progress.reason} {progress.cure or ''}".rstrip())
    if waiting:
        terminal.line(
            "The same `inkstand download` goes on with one of them; "
            "`inkstand models cancel MODEL` takes it off the list."
        )
    return 0


def _info(library: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    models = library.models()
    model = library.find(args.model, models)
    if args.json:
        terminal.json(model.to_json())
        return 0
    facts = model.facts
    commit = f"{model.revision or DASH} at {(model.commit or DASH)[:12]}"
    checked = "by checksum" if model.verified else "headers only"
    rows = [
        ["folder", str(model.path)],
        ["from", f"{model.source}{f', {model.repo}' if model.repo else ''}"],
        ["revision", commit],
        ["state", f"{model.status}" + (f", checked {checked}" if model.status == "ready" else "")],
        ["problem", model.problem or ""],
        ["lacks", ", ".join(model.missing)],
        ["size", size(model.size)],
        ["family", (facts and facts.family) or "not an Inkling model"],
        ["layout", (facts and facts.layout) or DASH],
        ["quantization", (facts and facts.quantization) or DASH],
        ["MTP head", _head(model, models, library)],
        ["", (facts and facts.head_note) or ""],
    ]
    terminal.line(model.name)
    _table(terminal, [row for row in rows if row[1]])
    return 0


def _verify(library: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    from engine.hub.storage import verify_model

    model = library.find(args.model)
    found = verify_model(model, lambda name, done, total: terminal.progress(done / max(total, 1), name))
    terminal.clear_progress()
    if args.json:
        groups = {"good": found.good, "damaged": found.damaged, "missing": found.missing, "unknown": found.unknown}
        terminal.json({"model": model.name, "ok": found.ok, **groups})
    else:
        for word, names in (("damaged", found.damaged), ("missing", found.missing), ("no checksum", found.unknown)):
            for name in names:
                terminal.line(f"{word}: {name}")
        count = len(found.good)
        if found.ok and not count:
            terminal.line(f"{model.name}: no checksums are known, so there is nothing to compare its files with.")
        else:
            terminal.line(f"{model.name}: {count} {'file is' if count == 1 else 'files are'} as downloaded.")
        if not found.ok:
            terminal.note(f"Fetch the rest again: inkstand download {model.repo or model.name}")
    return 0 if found.ok else 2


def _remove(library: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    from engine.hub.errors import UnknownModelError
    from engine.hub.storage import remove_model

    try:
        model = library.find(args.model)
    except UnknownModelError as error:
        if not _downloads(library, args.model):
            raise
        raise UsageError(
            f"{args.model} is a download of which nothing is there to delete.",
            "`inkstand models cancel` takes it off the list.",
        ) from error
    if model.status == "unavailable":
        library.forget(model)
        terminal.line(f"{model.name} is forgotten; its folder was not there, so nothing was deleted.")
        return 0
    if not _confirmed(args, f"Delete {model.name} ({size(model.size)}) in {model.path}?", terminal):
        return 0
    removal = remove_model(model, library.journals)
    library.forget(model)
    terminal.line(f"{size(removal.freed)} freed.")
    for name in removal.kept:
        terminal.line(f"kept, as Inkstand did not put it there or it was changed: {name}")
    return 0


def _cancel(library: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    from engine.hub.storage import forget_download

    found = _downloads(library, args.model)
    if not found:
        raise UsageError(
            f"There is no unfinished download of {args.model}.",
            "`inkstand models list` shows those that are not complete.",
        )
    if len(found) > 1:
        folders = ", ".join(download.progress.target for download in found)
        raise UsageError(f"{args.model} is being downloaded to several folders.", f"Name one of them: {folders}")
    progress, target = found[0].progress, found[0].plan.target
    question = f"Delete {size(progress.done)} that were fetched of {progress.repo} to {target}?"
    if args.delete and not _confirmed(args, question, terminal):
        return 0
    freed = forget_download(target, library.journals, delete=args.delete)
    kept = f"{size(freed)} freed." if args.delete else "What was fetched is kept."
    terminal.line(f"The download of {progress.repo} is cancelled. {kept}")
    return 0


def _downloads(library: Library, name: str) -> list[StoredDownload]:
    """Downloads that are not complete, by owner/name, name or folder."""
    from engine.hub.jobs import read_downloads

    known = [d for d in read_downloads(library.journals) if d.progress.state != "ready"]
    target = Path(name).absolute()
    found = [d for d in known if d.plan.target == target or d.progress.repo == name]
    return found or [d for d in known if d.progress.repo.casefold().rpartition("/")[2] == name.casefold()]


def _confirmed(args: argparse.Namespace, question: str, terminal: Terminal) -> bool:
    """Whether to delete. Raises UsageError where nobody can be asked."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("Nobody is there to confirm.", "Add --yes to delete without a question.")
    if input(printable(f"{question} [y/N] ")).strip().lower() in ("y", "yes"):
        return True
    terminal.line("Nothing was deleted.")
    return False


def _pair(library: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    models = library.models()
    model = library.find(args.model, models)
    if args.auto:
        library.unpair(model)
    else:
        library.pair(model, None if args.none else library.find(args.head, models))
    terminal.line(f"{model.name}: {_head(model, models, library)}")
    return 0


def _catalog(_: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    from engine.hub.catalog import CATALOG, CONTEXT, that_run_in

    entries = CATALOG if args.memory is None else that_run_in(int(args.memory * 1e9))
    if args.json:
        rows = [
            {"repo": e.repo, "quantization": e.quantization, "size": e.size, "has_head": e.has_head,
             "head_repo": e.original.repo, "download": e.download, "memory": e.memory, "machine": e.machine}
            for e in entries
        ]  # fmt: skip
        terminal.json(rows)
        return 0
    head = ["CHECKPOINT", "WEIGHTS", "DOWNLOAD", "NEEDS", "MAC WITH", "FORMAT", ""]
    lines = [
        [e.repo, size(e.size), size(e.download), size(e.memory), size(e.machine), e.quantization, e.note]
        for e in entries
    ]
    _table(terminal, [head, *lines])
    terminal.line(f"Download includes the MTP head of the original; needs are for {CONTEXT} tokens of context.")
    return 0


def _move(library: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    from engine.hub.move import move_models

    moved = move_models(
        library, args.folder, report=lambda done, total: terminal.progress(done / max(total, 1), "Moving models")
    )
    terminal.clear_progress()
    terminal.line(f"Models are in {library.models_folder}; {size(moved)} moved.")
    return 0


def _folders(library: Library, args: argparse.Namespace, terminal: Terminal) -> int:
    if args.add:
        library.add_folder(args.add)
    if args.remove:
        library.remove_folder(args.remove)
    for place in (str(library.models_folder), *library.settings.read().folders):
        terminal.line(place)
    return 0


def _kind(model: Model) -> str:
    if model.facts is None or model.facts.family is None:
        return DASH
    if model.facts.backbone:
        return model.facts.quantization or DASH
    return "MTP head only" if model.has_head else DASH


def _head(model: Model, models: list[Model], library: Library) -> str:
    if model.facts is not None and not model.facts.backbone:
        return "for other models" if model.has_head else DASH
    head = library.head_for(model, models)
    if head is None:
        return "none"
    return "own" if head.path == model.path else head.name


def _table(terminal: Terminal, rows: list[list[str]]) -> None:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))] if rows else []
    for row in rows:
        terminal.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

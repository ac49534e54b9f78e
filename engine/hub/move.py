"""Moving the models folder: what this program put there goes along, everything else stays where it is."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from engine.hub.errors import DiskFullError, TargetError, UnavailableError
from engine.hub.jobs import job_of, remove_empty
from engine.hub.journal import Journal, read_journal
from engine.hub.library import Library
from engine.hub.manifest import load_manifest
from engine.hub.names import MANIFEST, PART_SUFFIX, place
from engine.hub.partfile import Disk, disk_error, disk_errors, sync_folder
from engine.hub.plan import plan_from_json
from engine.hub.storage import lock_folder
from engine.wording import size


@dataclass(frozen=True, slots=True)
class _Step:
    """One file to move; `leave` for a file of the user's that a model needs: it is copied."""

    source: Path
    target: Path
    leave: bool = False


def move_models(
    library: Library, folder: Path, *, report: Callable[[int, int], None] | None = None, disk: Disk | None = None
) -> int:
    """Makes `folder` the models folder and moves the downloaded models there. Returns the bytes moved.

    Interrupted, it leaves every file in one of the two folders, both of which are looked into; called again, it goes
    on.

    Args:
        report: called with bytes moved and bytes in all.

    Raises:
        BusyError: a download is running.
        TargetError: a file is in the way, or one folder is inside the other.
        DiskFullError, UnavailableError: no room, or no such volume.
    """
    old, new = library.models_folder, folder.expanduser().absolute()
    if new == old:
        return 0
    if old in new.parents or new in old.parents:
        raise TargetError(f"{new} and {old} are inside each other.", "Choose a folder of its own.")
    if not old.is_dir() and library.settings.read().seen.get(str(old)):
        raise UnavailableError(f"{old} is not there, so nothing can be moved from it.", "Connect its volume first.")
    with disk_errors(new), ExitStack() as locks:
        models = [m.parent for m in sorted(old.rglob(MANIFEST)) if load_manifest(m.parent) is not None]
        for model in models:
            locks.enter_context(lock_folder(library.journals, model))
            locks.enter_context(lock_folder(library.journals, new / model.relative_to(old)))
        steps = [step for model in models for step in _steps(model, new / model.relative_to(old), library.journals)]
        total = sum(s.source.stat().st_size for s in steps)
        _check(steps, new, total, disk or Disk())
        extra = str(old) not in library.settings.read().folders
        with library.settings.change() as settings:
            settings.models = str(new)
            settings.folders = [f for f in settings.folders if f != str(new)] + ([str(old)] if extra else [])
        moved = 0
        for step in steps:
            length = step.source.stat().st_size
            _move(step)
            moved += length
            if report:
                report(moved, total)
        for model in models:
            _move_journal(library.journals, model, new / model.relative_to(old))
            remove_empty(model)
    with library.settings.change() as settings:
        pairs = {_moved(k, old, new): _moved(v, old, new) for k, v in settings.pairs.items()}
        settings.pairs = pairs
        settings.seen.pop(str(old), None)
        if extra:
            settings.folders.remove(str(old))
    return moved


def _steps(model: Path, target: Path, journals: Path) -> list[_Step]:
    """The files of one model, its manifest last: until it has moved, the model is where it was."""
    manifest, state = load_manifest(model), read_journal(journals / f"{job_of(model)}.jsonl")
    steps: list[_Step] = []
    for name, entry in manifest.files.items() if manifest else ():
        path = place(model, name)
        if path.is_file():
            steps.append(_Step(path, place(target, name), leave=not (entry.ours and entry.unchanged(path))))
    for name in state.files:
        part = place(model, name)
        part = part.with_name(part.name + PART_SUFFIX)
        if part.is_file():
            steps.append(_Step(part, target / part.relative_to(model)))
    return [*steps, _Step(model / MANIFEST, target / MANIFEST)]


def _check(steps: list[_Step], new: Path, total: int, disk: Disk) -> None:
    for step in steps:
        if step.target.exists():
            raise TargetError(f"{step.target} is in the way.", "Move it away, or choose another folder.")
    free = disk.free(new)
    same = bool(steps) and _device(new) == steps[0].source.stat().st_dev
    if not same and total > free:
        raise DiskFullError(
            f"The models need {size(total)}, but the volume of {new} has {size(free)} free.",
            "Free some space there, or choose another volume.",
        )


def _move(step: _Step) -> None:
    try:
        step.target.parent.mkdir(parents=True, exist_ok=True)
        if not step.leave:
            try:
                step.source.rename(step.target)
                return
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
        partial = step.target.with_name(step.target.name + ".moving")
        shutil.copy2(step.source, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(step.target)
        sync_folder(step.target.parent)
        if not step.leave:
            step.source.unlink()
    except OSError as error:
        raise disk_error(error, step.target) from error


def _move_journal(journals: Path, model: Path, target: Path) -> None:
    """Lets an unfinished download go on in its new place."""
    source = journals / f"{job_of(model)}.jsonl"
    state = read_journal(source)
    if state.plan is None:
        return
    plan = replace(plan_from_json(state.plan), target=target)
    ending = state.state
    source.replace(journals / f"{job_of(target)}.jsonl")
    journal = Journal(journals / f"{job_of(target)}.jsonl")
    try:
        journal.begin(plan.to_json(), plan.request.key, target.stat().st_dev)
        journal.set_state(**ending)
    finally:
        journal.close()


def _device(folder: Path) -> int:
    return next(p for p in (folder, *folder.parents) if p.exists()).stat().st_dev


def _moved(path: str, old: Path, new: Path) -> str:
    found = Path(path)
    return str(new / found.relative_to(old)) if path and found.is_relative_to(old) else path

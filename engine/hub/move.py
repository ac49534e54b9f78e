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
from engine.hub.library_settings import Moving
from engine.hub.manifest import load_manifest
from engine.hub.names import MANIFEST, PART_SUFFIX, place
from engine.hub.partfile import Disk, check_writable, disk_error, disk_errors, make_folder
from engine.hub.plan import plan_from_json
from engine.hub.storage import lock_folder
from engine.paths import sync
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

    Interrupted, it leaves every file in one of the two folders, both of which are looked into; called again with the
    same folder, it goes on.

    Args:
        report: called with bytes moved and bytes in all.

    Raises:
        BusyError: a download is running.
        TargetError: a file is in the way, one folder is inside the other, or the new one cannot be made.
        DiskFullError, UnavailableError: no room, or no such volume.
    """
    old, new = library.models_folder, folder.expanduser().absolute()
    begun = library.settings.read().moving
    if begun is not None:
        if new != old:
            move_models(library, old, report=report, disk=disk)
        else:
            old = Path(begun.source)
    if new == old:
        return 0
    check_writable(new)
    if old in new.parents or new in old.parents:
        raise TargetError(f"{new} and {old} are inside each other.", "Choose a folder of its own.")
    if not old.is_dir() and (begun is not None or library.settings.read().seen.get(str(old))):
        raise UnavailableError(f"{old} is not there, so nothing can be moved from it.", "Connect its volume first.")
    with disk_errors(new), ExitStack() as locks:
        models = [m.parent for m in sorted(old.rglob(MANIFEST)) if load_manifest(m.parent) is not None]
        for model in models:
            locks.enter_context(lock_folder(library.journals, model))
            locks.enter_context(lock_folder(library.journals, new / model.relative_to(old)))
        plans = {model: _steps(model, new / model.relative_to(old), library.journals) for model in models}
        steps = [step for plan in plans.values() for step in plan]
        total = sum(s.source.stat().st_size for s in steps)
        _check(steps, new, total, disk or Disk(), going_on=begun is not None)
        make_folder(new)
        _begin(library, old, new)
        moved = 0
        for model, plan in plans.items():
            for step in plan:
                length = step.source.stat().st_size
                if step.source.name == MANIFEST:
                    _move_journal(library.journals, model, step.target.parent)
                _move(step)
                moved += length
                if report:
                    report(moved, total)
            remove_empty(model)
    _end(library, old, new)
    return moved


def _begin(library: Library, old: Path, new: Path) -> None:
    """From now on downloads go to the new folder, and models are looked for in both."""
    with library.settings.change() as settings:
        if settings.moving is None:
            settings.moving = Moving(str(old), str(old) in settings.folders)
        settings.models = str(new)
        settings.folders = [f for f in settings.folders if f not in (str(new), str(old))] + [str(old)]


def _end(library: Library, old: Path, new: Path) -> None:
    with library.settings.change() as settings:
        settings.pairs = {_moved(k, old, new): _moved(v, old, new) for k, v in settings.pairs.items()}
        settings.seen.pop(str(old), None)
        if settings.moving is not None and not settings.moving.listed:
            settings.folders = [f for f in settings.folders if f != str(old)]
        settings.moving = None


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


def _check(steps: list[_Step], new: Path, total: int, disk: Disk, *, going_on: bool) -> None:
    for step in steps:
        if step.target.exists() and not (going_on and _copied(step)):
            raise TargetError(f"{step.target} is in the way.", "Move it away, or choose another folder.")
    free = disk.free(new)
    same = bool(steps) and _device(new) == steps[0].source.stat().st_dev
    if not same and total > free:
        raise DiskFullError(
            f"The models need {size(total)}, but the volume of {new} has {size(free)} free.",
            "Free some space there, or choose another volume.",
        )


def _copied(step: _Step) -> bool:
    """Whether the target is the copy that an interrupted move made last."""
    source, target = step.source.stat(), step.target.stat()
    return (source.st_size, source.st_mtime_ns) == (target.st_size, target.st_mtime_ns)


def _move(step: _Step) -> None:
    try:
        if step.target.exists():
            if not step.leave:
                step.source.unlink()
            return
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
        sync(step.target.parent)
        if not step.leave:
            step.source.unlink()
    except OSError as error:
        raise disk_error(error, step.target) from error


def _move_journal(journals: Path, model: Path, target: Path) -> None:
    """Lets an unfinished download go on in its new place. May be called again after a crash in the middle of it."""
    source, there = (journals / f"{job_of(folder)}.jsonl" for folder in (model, target))
    if source.exists():
        source.replace(there)
    state = read_journal(there)
    if state.plan is None or state.plan["target"] == str(target):
        return
    plan, ending = replace(plan_from_json(state.plan), target=target), state.state
    journal = Journal(there)
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

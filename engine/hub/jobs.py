"""Downloads between two runs: their ids, their journals on the disk, what they look like at rest."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from engine.hub.errors import BusyError, DiskFullError, HubError, UnavailableError
from engine.hub.journal import Journal, JournalState, read_journal
from engine.hub.manifest import load_manifest
from engine.hub.names import MANIFEST, PART_SUFFIX, place
from engine.hub.partfile import disk_error
from engine.hub.plan import Plan, plan_from_json, refresh_plan
from engine.hub.progress import DownloadProgress, FileProgress, State
from engine.locks import FileLock, HeldError

_PAUSING = (DiskFullError, UnavailableError)
"""No failures of the download: it waits for the user."""


def job_of(target: Path) -> str:
    """Id of the download into a folder."""
    resolved = target.expanduser().resolve()
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()
    return f"{resolved.name[:60]}-{digest[:12]}"


def lock_download(journals: Path, target: Path) -> FileLock:
    """Makes this the only one that works on the folder of a download, until the lock is released.

    Raises:
        BusyError: it is being downloaded, or moved.
        HubError: the folder of the journals cannot be written.
    """
    try:
        journals.mkdir(parents=True, exist_ok=True)
        return FileLock(journals / f"{job_of(target)}.lock").acquire()
    except HeldError as error:
        who = "" if error.holder.pid == os.getpid() else f" by {error.holder.name}"
        raise BusyError(
            f"{target} is being downloaded{who}.", "Pause or cancel the download first, or wait for its end."
        ) from error
    except OSError as error:
        raise disk_error(error, journals / "lock") from error


def open_journal(path: Path, plan: Plan) -> tuple[Journal, Plan]:
    """Opens the journal of a plan and compares the plan with the folder as it is now.

    Raises:
        UnavailableError: the folder was on a volume that is not there.
        HubError: a file is in the way, or the disk fails.
    """
    state = read_journal(path)
    there = next(p for p in (plan.target, *plan.target.parents) if p.exists())
    device = there.stat().st_dev
    if there != plan.target and state.device not in (None, device) and (state.files or state.done):
        # Written to now, the bytes would land in the empty mount point.
        raise UnavailableError(
            f"{plan.target} is not there: the volume that the download was on is missing.",
            "Connect the volume, then start the same download again; or choose another folder with --to.",
        )
    plan = refresh_plan(plan, path)
    journal = Journal(path)
    try:
        journal.begin(plan.to_json(), plan.request.key, device)
    except BaseException:
        journal.close()
        raise
    return journal, plan


def close_journal(journal: Journal, ending: dict[str, str | None]) -> None:
    """Notes how a run ended; removes the journal where nothing is left to remember."""
    if ending["state"] == "ready" and not journal.state.files:
        journal.remove()
        return
    with suppress(HubError):
        journal.set_state(**cast("dict[str, str]", ending))
    journal.close()


@dataclass(frozen=True, slots=True)
class StoredDownload:
    """A download that is not complete, as its journal tells it."""

    job: str
    plan: Plan
    progress: DownloadProgress
    running: bool
    """It was running when the program or the machine stopped."""


def read_downloads(journals: Path) -> list[StoredDownload]:
    """Every download that is not complete."""
    found: list[StoredDownload] = []
    for path in sorted(journals.glob("*.jsonl")):
        try:
            state = read_journal(path)
            ending = state.state.get("state")
            if state.plan is None or ending in ("ready", "cancelled"):
                continue
            plan = plan_from_json(state.plan)
            with suppress(HubError):
                plan = refresh_plan(plan, path)
        except (HubError, OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue  # Not ours, or of a later version: left alone.
        progress = at_rest(path.stem, plan, "failed" if ending == "failed" else "paused")
        reason, cure, code = (state.state.get(key) for key in ("reason", "cure", "code"))
        progress = replace(progress, reason=reason, cure=cure, code=code)
        found.append(StoredDownload(path.stem, plan, progress, ending == "running"))
    return found


def at_rest(job: str, plan: Plan, state: State) -> DownloadProgress:
    """The report of a download that is not running."""
    files = tuple(
        FileProgress(f.path, f.size, max(f.have, f.shown), f.size if f.presence == "there" else 0,
                     "ready" if f.presence == "there" else "queued")
        for f in plan.files
    )  # fmt: skip
    done, verified = sum(f.done for f in files), sum(f.verified for f in files)
    return DownloadProgress(job, plan.request.repo, str(plan.target), state, plan.total, done, verified, files)


def requeued(progress: DownloadProgress) -> DownloadProgress:
    """The first report of a download that goes on after `progress`."""
    files = tuple(f if f.state == "ready" else replace(f, state="queued") for f in progress.files)
    return replace(progress, state="queued", files=files, rate=None, eta=None, reason=None, cure=None, code=None)


def stopped(progress: DownloadProgress, error: HubError) -> DownloadProgress:
    """The last report of a download that an error ended."""
    state: State = "paused" if isinstance(error, _PAUSING) else "failed"
    return replace(progress, state=state, rate=None, eta=None, reason=error.title, cure=error.hint, code=error.reason)


def discard_download(target: Path, state: JournalState) -> int:
    """Removes what a download put into its folder: part files, and the files it completed. Returns bytes freed.

    Files that were there before it, and files changed since, stay. Raises OSError.
    """
    manifest = load_manifest(target)
    freed = 0
    for name in (*state.files, *state.done):
        with suppress(HubError, OSError):
            path = place(target, name)
            part = path.with_name(path.name + PART_SUFFIX)
            if name in state.files and part.is_file() and not part.is_symlink():
                freed += remove_file(part)
            entry = state.done.get(name)
            if entry is not None and entry.unchanged(path):
                freed += remove_file(path)
                if manifest is not None:
                    manifest.files.pop(name, None)
    if manifest is not None:
        planned = {str(f["path"]) for f in (state.plan or {"files": []})["files"]}
        manifest.expected = {n: s for n, s in manifest.expected.items() if n not in planned or n in manifest.files}
        if manifest.files:
            manifest.save(target)
        else:
            (target / MANIFEST).unlink(missing_ok=True)
    remove_empty(target)
    return freed


def remove_file(path: Path) -> int:
    """Deletes a file and returns the bytes that its volume gets back."""
    stat = path.lstat()
    path.unlink()
    # A part file may have holes. Blocks are 512 bytes whatever the file system's own are.
    return min(stat.st_size, stat.st_blocks * 512)


def remove_empty(folder: Path) -> None:
    """Removes a folder and those inside it that hold nothing; and its owner's folder if that is left empty."""
    for inner in sorted((p for p in folder.rglob("*") if p.is_dir() and not p.is_symlink()), reverse=True):
        with suppress(OSError):
            inner.rmdir()
    for outer in (folder, folder.parent):
        with suppress(OSError):
            outer.rmdir()

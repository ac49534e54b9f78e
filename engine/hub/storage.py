"""Checking and deleting models. Only what this program put into a folder, unchanged since, is ever deleted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from engine.hub.entry import Model
from engine.hub.errors import HubError, TargetError, UnavailableError
from engine.hub.hf_cache import blob_hash
from engine.hub.jobs import close_journal, discard_download, job_of, lock_download, remove_empty, remove_file
from engine.hub.journal import Journal, read_journal
from engine.hub.manifest import FileEntry, Manifest, load_manifest
from engine.hub.names import MANIFEST, PART_SUFFIX, place
from engine.hub.partfile import Digest, disk_error, disk_errors

Report = Callable[[str, int, int], None]
"""Called with a file's name, bytes done and bytes in all while files are read."""
_STEP = 16 << 20


@dataclass(frozen=True, slots=True)
class Verification:
    """What reading every file of a model again showed."""

    good: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    """The content is not the one that was downloaded."""
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """No checksum is known."""

    @property
    def ok(self) -> bool:
        return not self.damaged and not self.missing


@dataclass(frozen=True, slots=True)
class Removal:
    """What deleting a model did."""

    freed: int
    """Bytes."""
    kept: tuple[str, ...]
    """Files that are not ours, or were changed since."""


def verify_model(model: Model, report: Report | None = None) -> Verification:
    """Reads every file of a model and compares checksums. Damaged files of ours are marked as such.

    Raises:
        UnavailableError: the folder is not there.
        HubError: a file cannot be read, or the manifest cannot be written.
    """
    _require(model)
    manifest = load_manifest(model.path)
    if manifest is None:
        return _verify_found(model, report)
    good: list[str] = []
    damaged: list[str] = []
    for name, entry in list(manifest.files.items()):
        path = place(model.path, name)
        if not path.is_file():
            continue
        size = path.stat().st_size
        mtime = path.stat().st_mtime_ns
        same = size == entry.size and _sha256(path, size, name, report) == entry.sha256
        (good if same else damaged).append(name)
        # The time is taken over as well: a copied or restored file is known from now on.
        manifest.files[name] = (
            replace(entry, state="ready", mtime_ns=mtime)
            if same
            else FileEntry(size, entry.sha256, entry.identity, mtime, ours=entry.ours, state="corrupt")
        )
    _save(manifest, model.path)
    missing = [name for name in manifest.expected if not (model.path / name).is_file()]
    return Verification(tuple(good), tuple(damaged), tuple(missing))


def remove_model(model: Model, journals: Path) -> Removal:
    """Deletes what this program downloaded into a model's folder, unfinished parts included.

    Raises:
        TargetError: the model was not downloaded by this program.
        BusyError: it is being downloaded.
        UnavailableError, HubError: the folder is not there, or cannot be written.
    """
    _require(model)
    manifest = load_manifest(model.path)
    if manifest is None or model.source != "inkstand":
        raise TargetError(
            f"{model.name} was not downloaded by Inkstand, so Inkstand does not delete it.",
            f"Delete {model.path} yourself if it is not needed any more.",
        )
    freed = 0
    with lock_folder(journals, model.path) as journal, disk_errors(model.path / MANIFEST):
        state = read_journal(journal)
        for name in dict.fromkeys((*state.files, *manifest.files, *state.done)):
            with suppress(HubError):
                freed += _remove(model.path, name, manifest, part=name in state.files)
        (model.path / MANIFEST).unlink(missing_ok=True)
        journal.unlink(missing_ok=True)
    kept = sorted(str(p.relative_to(model.path)) for p in model.path.rglob("*") if not p.is_dir() or p.is_symlink())
    remove_empty(model.path)
    return Removal(freed, tuple(kept))


def forget_download(folder: Path, journals: Path, *, delete: bool) -> int:
    """Takes the download into a folder off the list. Returns bytes freed.

    Args:
        delete: remove what it fetched; otherwise that is kept, and the same download continues from it later.

    Raises:
        BusyError: it is running.
        HubError: the folder, or the one of the journals, cannot be written.
    """
    with lock_folder(journals, folder) as journal, disk_errors(journal):
        if delete:
            freed = discard_download(folder, read_journal(journal))
            journal.unlink(missing_ok=True)
            return freed
        if journal.exists():
            close_journal(Journal(journal), {"state": "cancelled"})
        return 0


@contextmanager
def lock_folder(journals: Path, folder: Path) -> Generator[Path]:
    """Keeps downloads out of a model folder. Yields the path of its journal. Raises BusyError, HubError."""
    with lock_download(journals, folder):
        yield journals / f"{job_of(folder)}.jsonl"


def _remove(root: Path, name: str, manifest: Manifest, *, part: bool) -> int:
    path, freed = place(root, name), 0
    try:
        partial = path.with_name(path.name + PART_SUFFIX)
        if part and partial.is_file() and not partial.is_symlink():
            freed += remove_file(partial)
        entry = manifest.files.get(name)
        if entry is not None and entry.ours and entry.unchanged(path):
            freed += remove_file(path)
    except OSError as error:
        raise disk_error(error, path) from error
    return freed


def _verify_found(model: Model, report: Report | None) -> Verification:
    """A model that this program did not download: the Hugging Face cache names files by their checksums."""
    good: list[str] = []
    damaged: list[str] = []
    unknown: list[str] = []
    for path in sorted(p for p in model.path.rglob("*") if p.is_file()):
        name, size = str(path.relative_to(model.path)), path.stat().st_size
        known = blob_hash(path) if model.source == "hf-cache" else None
        if known is None:
            unknown.append(name)
            continue
        digest = _digest(path, size, name, report, git=len(known) == 40)
        (good if known in (digest.sha256, digest.git_oid) else damaged).append(name)
    return Verification(tuple(good), tuple(damaged), model.missing, tuple(unknown))


def _sha256(path: Path, size: int, name: str, report: Report | None) -> str:
    return _digest(path, size, name, report, git=False).sha256


def _digest(path: Path, size: int, name: str, report: Report | None, *, git: bool) -> Digest:
    digest = Digest(size, git=git)
    try:
        with path.open("rb") as file:
            while digest.position < size:
                digest.read(file.fileno(), min(size, digest.position + _STEP))
                if report:
                    report(name, digest.position, size)
    except OSError as error:
        raise disk_error(error, path) from error
    return digest


def _require(model: Model) -> None:
    if not model.path.is_dir():
        raise UnavailableError(
            f"The folder of {model.name} is not there: {model.path}.", "Connect its volume, or restore the folder."
        )


def _save(manifest: Manifest, root: Path) -> None:
    try:
        manifest.save(root)
    except OSError as error:
        raise disk_error(error, root / MANIFEST) from error

"""The target folder of a transfer and its manifest."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from engine.hub.errors import TargetError
from engine.hub.manifest import FileEntry, Manifest, load_manifest
from engine.hub.names import MANIFEST
from engine.hub.partfile import disk_error, disk_errors, make_folder
from engine.hub.plan import Plan, PlannedFile

_SAVE_EVERY = 1.0
"""Seconds; the journal knows what the manifest does not yet."""


class TargetFolder:
    """Keeps the manifest of one folder while its files arrive. Methods block and may be called from threads."""

    def __init__(self, plan: Plan) -> None:
        self.root = plan.target
        self._plan = plan
        self._lock = threading.Lock()
        self._saved = 0.0
        self._manifest = Manifest("", "", "", "")

    def begin(self, done: dict[str, FileEntry]) -> None:
        """Claims the folder for the plan.

        Args:
            done: files that have their names according to the journal, but perhaps not yet in the manifest.

        Raises:
            TargetError: the folder belongs to another repository, or cannot be made.
            HubError: the disk fails.
        """
        plan, old = self._plan, load_manifest(self.root)
        repo = plan.request.repo
        if old is not None and old.repo.casefold() != repo.casefold():
            raise TargetError(
                f"{self.root} holds {old.repo}, not {repo}.", "Choose another folder with --to, or remove that model."
            )
        manifest = old or Manifest(repo, plan.endpoint, plan.request.revision, plan.commit)
        sizes = {f.path: f.size for f in plan.files}
        same = manifest.commit == plan.commit
        # A whole checkpoint of another commit replaces the old one; anything less is added to what is there.
        manifest.expected = sizes if plan.request.kind == "whole" and not same and not _partial(plan) else {
            **manifest.expected, **sizes,
        }  # fmt: skip
        if plan.request.kind == "whole":
            manifest.omitted = ()
        elif plan.request.kind == "text":
            manifest.omitted = tuple(s.path for s in plan.skipped)
        manifest.endpoint, manifest.revision, manifest.commit = plan.endpoint, plan.request.revision, plan.commit
        manifest.files.update({name: entry for name, entry in done.items() if entry.unchanged(self.root / name)})
        self._manifest = manifest
        make_folder(self.root)
        self.save()

    def entry(self, path: str) -> FileEntry | None:
        """What is recorded about a file."""
        return self._manifest.files.get(path)

    def expect(self, planned: PlannedFile) -> None:
        """The file turned out to be another version."""
        with self._lock:
            self._manifest.expected[planned.path] = planned.size

    def put(self, path: str, entry: FileEntry) -> None:
        """A verified file has its name. Raises HubError when the disk fails."""
        with self._lock:
            self._manifest.files[path] = entry
        if time.monotonic() - self._saved >= _SAVE_EVERY:
            self.save()

    def drop_leftovers(self) -> list[str]:
        """Removes unchanged files of ours that a complete new version no longer has. Raises HubError."""
        with self._lock:
            manifest = self._manifest
            if self._plan.request.kind != "whole" or _partial(self._plan) or manifest.missing(self.root):
                return []
            left = [name for name in manifest.files if name not in manifest.expected]
            for name in left:
                entry = manifest.files.pop(name)
                if entry.ours and entry.unchanged(self.root / name):
                    with disk_errors(self.root / name):
                        (self.root / name).unlink(missing_ok=True)
        return left

    def save(self) -> None:
        """Raises HubError when the disk fails."""
        with self._lock:
            try:
                self._manifest.save(self.root)
            except OSError as error:
                raise disk_error(error, self.root / MANIFEST) from error
            self._saved = time.monotonic()


def _partial(plan: Plan) -> bool:
    return bool(plan.request.include or plan.request.exclude)


def model_folder(models: Path, repo: str) -> Path:
    """Where a repository goes by default: models/owner/name."""
    owner, name = repo.split("/")
    return models / owner / name

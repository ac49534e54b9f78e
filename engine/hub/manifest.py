"""What this program put into a model folder: `.inkstand.json`, written atomically.

It is the difference between our files and the user's: only what it lists, unchanged since, is ever replaced or
deleted. It also says which files make the folder complete.
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from engine.hub.names import MANIFEST
from engine.paths import sync

_VERSION = 1
_STALE_S = 60.0


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file. `mtime_ns` and `size` tell whether it was changed since it was verified."""

    size: int
    sha256: str
    identity: str
    """Hash by which the hub announced this version: the same SHA-256, or a git blob id."""
    mtime_ns: int
    ours: bool = True
    """False for a file of the user's that turned out to be the wanted one: used, never deleted."""
    state: Literal["ready", "corrupt"] = "ready"

    def unchanged(self, path: Path) -> bool:
        """Whether the file at `path` is the regular file that was recorded."""
        try:
            found = path.lstat()
        except OSError:
            return False
        regular = (found.st_mode & 0o170000) == 0o100000
        return regular and found.st_size == self.size and found.st_mtime_ns == self.mtime_ns


@dataclass(slots=True)
class Manifest:
    """The record of one folder."""

    repo: str
    endpoint: str
    revision: str
    commit: str
    expected: dict[str, int] = field(default_factory=dict[str, int])
    """Size of every file that the folder must have to be complete."""
    files: dict[str, FileEntry] = field(default_factory=dict[str, FileEntry])
    omitted: tuple[str, ...] = ()
    """Weight files of the repository that a text-only plan left out."""

    def missing(self, root: Path) -> list[str]:
        """Expected files that are not there as verified."""
        return [
            name
            for name in self.expected
            if (entry := self.files.get(name)) is None or entry.state != "ready" or not entry.unchanged(root / name)
        ]

    def corrupt(self) -> list[str]:
        return [name for name, entry in self.files.items() if entry.state == "corrupt"]

    def save(self, root: Path) -> None:
        """Raises OSError."""
        write_json(root / MANIFEST, {"version": _VERSION, **asdict(self)})


def load_manifest(root: Path) -> Manifest | None:
    """The manifest of a folder; None when it has none that can be read. Never raises."""
    value = read_json(root / MANIFEST)
    if not isinstance(value, dict):
        return None
    raw = cast("dict[str, Any]", value)
    try:
        entries = {name: FileEntry(**entry) for name, entry in raw["files"].items() if _is_relative(name)}
        expected = {name: int(size) for name, size in raw["expected"].items() if _is_relative(name)}
        texts = [raw[key] for key in ("repo", "endpoint", "revision", "commit")]
        omitted = tuple(str(name) for name in raw.get("omitted", ()))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return None
    if not all(isinstance(text, str) for text in texts):
        return None
    return Manifest(*texts, expected=expected, files=entries, omitted=omitted)


def read_json(path: Path) -> object:
    """The value in a JSON file, or None when there is none that can be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def write_json(path: Path, value: object) -> None:
    """Replaces a file in one step; whatever happens, either the old or the new content is there. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=path.name, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(fd)
        _remove_stale(Path(name), path.name)
        Path(name).replace(path)
        sync(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _remove_stale(current: Path, prefix: str) -> None:
    """Removes what writers left that were killed; a live one is done within `_STALE_S`."""
    limit = current.stat().st_mtime - _STALE_S
    for other in current.parent.glob(f"{glob.escape(prefix)}*.tmp"):
        with suppress(OSError):
            if other.stat().st_mtime < limit:
                other.unlink()


def _is_relative(name: object) -> bool:
    # A manifest is read before files are deleted: a forged one must not lead outside of its folder.
    return isinstance(name, str) and bool(name) and not name.startswith("/") and ".." not in name.split("/")

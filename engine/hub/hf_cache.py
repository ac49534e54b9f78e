"""Models in the Hugging Face cache, read-only.

Layout: models--owner--name/{refs/<branch>, snapshots/<commit>/<files, links into blobs/>, blobs/<etag>}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class CachedSnapshot:
    """One revision of one repository."""

    repo: str
    commit: str
    path: Path


def cache_folder() -> Path:
    """Where huggingface_hub keeps its cache: HF_HUB_CACHE, HF_HOME or the usual place."""
    return Path(constants.HF_HUB_CACHE)


def cached_snapshots(cache: Path) -> Iterator[CachedSnapshot]:
    """The snapshot of `main` of every model, or the newest one without it. Unreadable folders are passed over."""
    for folder in sorted(_children(cache)):
        prefix, _, repo = folder.name.partition("--")
        if prefix != "models" or "--" not in repo:
            continue
        snapshots = {s.name: s for s in _children(folder / "snapshots") if _COMMIT.fullmatch(s.name)}
        commit = _read(folder / "refs" / "main")
        if commit not in snapshots:
            commit = max(snapshots, key=lambda name: _mtime(snapshots[name]), default=None)
        if commit is not None:
            yield CachedSnapshot(repo.replace("--", "/", 1), commit, snapshots[commit])


def blob_hash(path: Path) -> str | None:
    """The hash by which the cache names the content of a snapshot's file: SHA-256 or a git blob id."""
    try:
        name = path.resolve(strict=True).name
    except (OSError, RuntimeError):
        return None
    return name if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name) else None


def _children(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if p.is_dir()]
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0

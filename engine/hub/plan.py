"""What a download would fetch: commit, files, sizes, hashes, what is there already, and whether it fits."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.utils import filter_repo_objects

from engine.hub.client import HubClient, RemoteFile
from engine.hub.errors import SelectionError
from engine.hub.journal import JournalState, read_journal
from engine.hub.listing import list_files
from engine.hub.manifest import Manifest, load_manifest
from engine.hub.names import PART_SUFFIX, WEIGHTS_SUFFIX, check_collisions, parse_repo, place, refused_kind
from engine.hub.partfile import Disk, check_writable, in_the_way
from engine.hub.select import Kind, Selection, select_head, select_text

RESERVE = 2 << 30
"""Bytes to leave free on the target volume."""
Presence = Literal["absent", "partial", "there", "unchecked"]
"""unchecked: a file of the right size that this program did not put there; its hash decides."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the user asked for."""

    repo: str
    revision: str = "main"
    kind: Kind = "whole"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The same for the same selection, whatever its commit."""
        text = repr((self.repo, self.kind, sorted(self.include), sorted(self.exclude)))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    path: str
    size: int
    sha256: str | None
    git_oid: str | None
    presence: Presence = "absent"
    have: int = 0
    """Bytes that are there."""
    shown: int = 0
    """Most bytes of it that progress has reported; more than `have` where some were lost."""

    @property
    def identity(self) -> str:
        """Stands for this version of the content."""
        return self.sha256 or self.git_oid or f"size:{self.size}"


@dataclass(frozen=True, slots=True)
class Skipped:
    path: str
    size: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A resolved request. Sizes in bytes."""

    request: PlanRequest
    endpoint: str
    commit: str
    target: Path
    files: tuple[PlannedFile, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    free: int = 0
    """On the target volume."""
    reserve: int = RESERVE
    header_bytes: int = field(default=0)
    """Fetched to make the plan."""
    unusable: str | None = None
    """Why nothing in the repository can be loaded, as a sentence; also the first of the notes."""

    @property
    def total(self) -> int:
        return sum(f.size for f in self.files)

    @property
    def have(self) -> int:
        return sum(f.have for f in self.files)

    @property
    def remaining(self) -> int:
        return self.total - self.have

    @property
    def complete(self) -> bool:
        """Whether every file is there and known to be the right one."""
        return bool(self.files) and not self.unverified and self.remaining == 0

    @property
    def unverified(self) -> int:
        """How many files are there, with a checksum that is still to be compared."""
        return sum(f.presence != "there" and f.have == f.size for f in self.files)

    @property
    def fits(self) -> bool:
        """Whether the rest leaves the reserve free."""
        return self.remaining == 0 or self.remaining + self.reserve <= self.free

    def to_json(self) -> dict[str, Any]:
        """JSON types only; `plan_from_json` reads it back."""
        value = asdict(self)
        value["target"] = str(self.target)
        derived = {"total": self.total, "have": self.have, "remaining": self.remaining, "fits": self.fits}
        return {**value, **derived}


def plan_from_json(value: dict[str, Any]) -> Plan:
    """The plan that `to_json` wrote into a journal. Raises KeyError, TypeError, ValueError for anything else."""
    asked: dict[str, Any] = value["request"]
    return Plan(
        request=PlanRequest(
            asked["repo"], asked["revision"], asked["kind"], tuple(asked["include"]), tuple(asked["exclude"])
        ),
        endpoint=str(value["endpoint"]),
        commit=str(value["commit"]),
        target=Path(value["target"]),
        files=tuple(PlannedFile(**f) for f in value["files"]),
        skipped=tuple(Skipped(**f) for f in value["skipped"]),
        notes=tuple(value["notes"]),
        free=int(value["free"]),
        reserve=int(value["reserve"]),
        header_bytes=int(value["header_bytes"]),
        unusable=value.get("unusable"),
    )


async def make_plan(
    client: HubClient,
    request: PlanRequest,
    *,
    target: Path,
    journal: Path,
    disk: Disk | None = None,
    reserve: int = RESERVE,
) -> Plan:
    """Asks the hub and looks at the target folder; writes nothing.

    Args:
        target: folder of the model.
        journal: of that folder, see `jobs.journal_path`.

    Raises:
        HubError: the hub's refusals, an unsafe name, nothing selected, no head, a file in the way, or a folder that
            cannot be written.
    """
    repo, named = parse_repo(request.repo)
    revision = named if named and request.revision == "main" else request.revision
    request = PlanRequest(repo, revision, request.kind, request.include, request.exclude)
    info = await client.describe(repo, revision)
    commit = info.commit
    files = await list_files(client, repo, commit)
    wanted, skipped = _choose(files, request)
    if info.gated and wanted:
        await client.size(client.source(repo, commit, wanted[0].path))
    selection = Selection(tuple(wanted))
    if request.kind == "head":
        # The head is looked for in all files; the globs then narrow what it needs.
        fetchable = [f for f in files if refused_kind(f.path) is None]
        selection = await select_head(client, repo, commit, fetchable)
        kept = {f.path for f in wanted}
        selection = Selection(
            tuple(f for f in selection.files if f.path in kept), (), selection.notes, selection.header_bytes
        )
        skipped = []
    elif request.kind == "text":
        selection = await select_text(client, repo, commit, wanted)
    skipped += [Skipped(f.path, f.size, why) for f, why in selection.omitted]
    check_collisions(f.path for f in selection.files)
    notes = [*selection.notes, *_unmatched(files, request)]
    unusable = _unusable(repo, files) if request.kind != "head" else None
    if unusable:
        notes.insert(0, unusable)
    planned = await asyncio.to_thread(_present, selection.files, target, journal)
    free = await asyncio.to_thread((disk or Disk()).free, target)
    return Plan(
        request, client.endpoint, commit, target, planned, tuple(skipped), tuple(notes), free, reserve,
        selection.header_bytes, unusable,
    )  # fmt: skip


def refresh_plan(plan: Plan, journal: Path) -> Plan:
    """The same plan against what is in the folder now. Blocks, without network.

    Raises:
        TargetError: a file of somebody else's is in the way, or the folder cannot be written.
        UnsafeNameError: a link is.
    """
    files = [RemoteFile(f.path, f.size, f.sha256, f.git_oid) for f in plan.files]
    return replace(plan, files=_present(files, plan.target, journal))


def _choose(files: Sequence[RemoteFile], request: PlanRequest) -> tuple[list[RemoteFile], list[Skipped]]:
    """Applies the globs and refuses kinds that are never fetched."""
    asked = list(
        filter_repo_objects(
            files,
            allow_patterns=list(request.include) or None,
            ignore_patterns=list(request.exclude) or None,
            key=lambda f: f.path,
        )
    )
    if files and not asked:
        some = ", ".join(f.path for f in files[:8]) + (" ..." if len(files) > 8 else "")
        raise SelectionError(
            f"No file of {request.repo} matches --include/--exclude.",
            f"Its files are: {some}. Globs match whole paths.",
        )
    wanted = [f for f in asked if refused_kind(f.path) is None]
    skipped = [Skipped(f.path, f.size, why) for f in asked if (why := refused_kind(f.path))]
    if skipped and request.include and not wanted:
        raise SelectionError(
            f"{skipped[0].path} is never fetched: {skipped[0].why}.",
            "Inkstand fetches weights, JSON, templates and text, none of which runs code.",
        )
    return sorted(wanted, key=lambda f: f.path), skipped


def _unusable(repo: str, files: Sequence[RemoteFile]) -> str | None:
    """Why no choice of these files makes a model, or None. A loader reads the checkpoint's own folder only."""
    if not files:
        return f"Nothing in {repo} can be loaded: it holds no files."
    weights = [f for f in files if f.path.endswith(WEIGHTS_SUFFIX)]
    if any("/" not in f.path for f in weights):
        return None
    if weights:
        return f"Nothing in {repo} can be loaded: its {WEIGHTS_SUFFIX} files are all in subfolders."
    never = [f"{f.path} ({why})" for f in files if (why := refused_kind(f.path)) and not f.path.startswith(".git")]
    named = f"; never fetched: {', '.join(never[:4])}{' and others' if len(never) > 4 else ''}" if never else ""
    return f"Nothing in {repo} can be loaded: it holds no {WEIGHTS_SUFFIX} file{named}."


def _unmatched(files: Iterable[RemoteFile], request: PlanRequest) -> list[str]:
    paths = [f.path for f in files]
    return [
        f"Nothing matches --include {pattern}."
        for pattern in request.include
        if not any(fnmatchcase(path, pattern + "*" if pattern.endswith("/") else pattern) for path in paths)
    ]


def _present(files: Iterable[RemoteFile], target: Path, journal: Path) -> tuple[PlannedFile, ...]:
    manifest = load_manifest(target)
    state = read_journal(journal)
    if state.device is None:
        # Where the volume of an earlier download is missing, starting says that instead.
        check_writable(target)
    return tuple(_look(file, target, manifest, state) for file in files)


def _look(file: RemoteFile, target: Path, manifest: Manifest | None, state: JournalState) -> PlannedFile:
    """How much of one file is in the target. Raises TargetError when a file of somebody else's is in the way.

    A file whose time has changed may still be the right one (copied, restored from a backup): its checksum decides.
    """
    planned = PlannedFile(file.path, file.size, file.sha256, file.git_oid)
    path = place(target, file.path)
    entry = state.done.get(file.path) or (manifest.files.get(file.path) if manifest else None)
    record = state.files.get(file.path)
    if entry and entry.unchanged(path):
        if entry.state == "ready" and entry.identity == planned.identity:
            return replace(planned, presence="there", have=file.size)
        if not entry.ours:
            raise in_the_way(path)
    elif path.exists():
        if path.stat().st_size == file.size:
            return replace(planned, presence="unchecked", have=file.size)
        if not (entry and entry.ours):
            raise in_the_way(path)
    part = path.with_name(path.name + PART_SUFFIX)
    if record and (record.identity, record.size) == (planned.identity, file.size):
        planned = replace(planned, shown=record.shown)
    if record and part.is_file() and record.holds(planned.identity, file.size, part.stat().st_size):
        return replace(planned, presence="partial", have=record.chunks().done)
    return planned

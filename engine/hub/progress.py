"""What a download reports, as frozen values. Sizes in bytes, times in seconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["queued", "downloading", "stalled", "paused", "verifying", "ready", "failed"]
FileState = Literal["queued", "downloading", "verifying", "ready", "failed"]

RESTING: frozenset[State] = frozenset({"paused", "ready", "failed"})
"""States in which nothing runs; a later `resume` starts paused and failed downloads again."""


@dataclass(frozen=True, slots=True)
class FileProgress:
    path: str
    size: int
    done: int
    verified: int
    """Bytes that went into the checksum, from the start of the file."""
    state: FileState


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """A snapshot of one download. `total` stays as planned, and `verified` never falls within one run.

    `done` never falls while the files on the hub stay the same, over a pause, a kill and a retry neither: it stands
    still while bytes that were lost or damaged are fetched again.
    """

    job: str
    repo: str
    target: str
    state: State
    total: int
    done: int
    """Bytes on the disk, those that were there before included."""
    verified: int
    files: tuple[FileProgress, ...]
    rate: float | None = None
    eta: float | None = None
    """None while nothing moves."""
    reason: str | None = None
    """For stalled, paused and failed: what happened, as a sentence."""
    cure: str | None = None
    """What to do about it, as a sentence."""
    code: str | None = None
    """The `HubError.reason` behind a paused or failed download."""

    @property
    def files_ready(self) -> int:
        return sum(f.state == "ready" for f in self.files)

    def to_json(self, *, with_files: bool = False) -> dict[str, Any]:
        """The line that `--json` prints."""
        value = asdict(self)
        if with_files:
            value["files"] = [asdict(f) for f in self.files]
        else:
            del value["files"]
        return {"event": "progress", **value, "files_ready": self.files_ready, "files_total": len(self.files)}

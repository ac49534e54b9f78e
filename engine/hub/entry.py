"""A model folder as the library shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from engine.hub.facts import ModelFacts
from engine.hub.names import MANIFEST, PART_SUFFIX, WEIGHTS_SUFFIX

Source = Literal["inkstand", "folder", "hf-cache"]
"""inkstand: downloaded by this program; folder: found; hf-cache: found in the Hugging Face cache."""
Status = Literal["ready", "incomplete", "corrupt", "unusable", "unavailable"]


@dataclass(frozen=True, slots=True)
class Model:
    """One model folder."""

    name: str
    """owner/name, or the folder's name where that is not known."""
    path: Path
    source: Source
    status: Status
    size: int = 0
    """Bytes on the disk."""
    repo: str | None = None
    revision: str | None = None
    commit: str | None = None
    verified: bool = False
    """By checksum; False = its headers look right and nobody knows its checksums."""
    missing: tuple[str, ...] = ()
    """Files that it lacks."""
    problem: str | None = None
    facts: ModelFacts | None = None

    @property
    def loadable(self) -> bool:
        """Complete, and verified where checksums are known."""
        return self.status == "ready" and self.facts is not None and self.facts.backbone

    @property
    def has_head(self) -> bool:
        return self.facts is not None and self.facts.head

    @property
    def recognized(self) -> bool:
        """Whether it is of a family that this program runs."""
        return self.facts is not None and self.facts.family is not None

    @property
    def usable_head(self) -> bool:
        """Whether its head can be used, by itself or by another model."""
        return self.has_head and self.status in ("ready", "incomplete")

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {**asdict(self), "path": str(self.path), "loadable": self.loadable}


def remembered_model(value: dict[str, Any]) -> Model:
    """The model that `to_json` described, now that its folder is not there. Raises KeyError, TypeError, ValueError."""
    facts = dict(value["facts"] or {})
    facts["shape"] = tuple((str(key), float(figure)) for key, figure in facts.get("shape", ()))
    facts["lacking"] = tuple(facts.get("lacking", ()))
    return Model(
        name=value["name"],
        path=Path(value["path"]),
        source=value["source"],
        status="unavailable",
        size=int(value["size"]),
        repo=value["repo"],
        revision=value["revision"],
        commit=value["commit"],
        problem="Its folder is not there at the moment.",
        facts=ModelFacts(**facts),
    )


def is_model_folder(folder: Path) -> bool:
    try:
        return any(
            p.name in ("config.json", MANIFEST) or p.name.endswith((WEIGHTS_SUFFIX, PART_SUFFIX))
            for p in folder.iterdir()
        )
    except OSError:
        return False


def subfolders(folder: Path) -> list[Path]:
    try:
        # Links are not followed: they may lead in circles.
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink() and not p.name.startswith("."))
    except OSError:
        return []


def files_below(folder: Path) -> Iterator[tuple[str, int, int]]:
    """(name, bytes, modification time) of each file; links as what they lead to."""
    with suppress(OSError):
        for path in sorted(folder.rglob("*")):
            with suppress(OSError):
                if path.is_file():
                    stat = path.stat()
                    yield path.name, stat.st_size, stat.st_mtime_ns

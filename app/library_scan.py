"""Questions to the library that block: what there is, what loading takes, what a verification showed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.hub_access import HubAccess
from app.model_rows import Note
from engine.errors import UserError
from engine.paths import demo_checkpoint

if TYPE_CHECKING:
    from engine.hub.entry import Model
    from engine.memory import Footprint

DEMO = "Inkstand Demo"


class Estimate:
    """What loading a model takes and what there is."""

    def __init__(self, footprint: Footprint, available: int | None, loaded: int, machine: int | None = None) -> None:
        self.footprint = footprint
        self.machine = machine
        """Bytes that there are in all."""
        self.available = None if available is None else available + loaded
        """Bytes that can be had, those of the model that is unloaded before included."""

    def headroom(self, context: int) -> int | None:
        """Bytes left once the model is loaded and its context full; negative where they are missing."""
        return None if self.available is None else self.available - self.footprint.total(context)


@dataclass(frozen=True, slots=True)
class Found:
    """What there is. Keys are paths of model folders."""

    models: list[Model]
    demo: Model | None
    heads: dict[str, Model]
    """Model -> whose head it would be used with."""
    left_out: frozenset[str]
    """Models that the user wants without a head."""
    memory: int | None
    """Bytes of the machine."""
    free: int | None
    """Bytes where downloads go."""


def look(hub: HubAccess) -> Found:
    """Look into the library. Blocks."""
    from engine.hub.partfile import Disk  # noqa: PLC0415
    from engine.memory import total_memory  # noqa: PLC0415

    library = hub.library
    models = library.models()
    demo: Model | None = None
    heads: dict[str, Model] = {}
    with suppress(UserError):
        demo = library.describe(demo_checkpoint(), name=DEMO)
    for model in (*([demo] if demo else []), *models):
        head = library.head_for(model, (model, *models)) if model.loadable else None
        if head is not None:
            heads[str(model.path)] = head
    try:
        free = Disk().free(library.models_folder)
    except (OSError, UserError):
        free = None
    left_out = frozenset(path for path, head in library.settings.read().pairs.items() if not head)
    return Found(models, demo, heads, left_out, total_memory(), free)


def estimate(directory: Path, head: Path | None, held: int) -> Estimate:
    """Blocks for reading headers."""
    from engine.memory import available_memory, footprint, total_memory  # noqa: PLC0415

    return Estimate(footprint(directory, head), available_memory(), held, total_memory())


def verified(
    good: tuple[str, ...], damaged: tuple[str, ...], missing: tuple[str, ...], unknown: tuple[str, ...]
) -> Note:
    if damaged or missing:
        parts = [f"Damaged: {', '.join(damaged)}."] if damaged else []
        parts += [f"Missing: {', '.join(missing)}."] if missing else []
        return Note(f"{' '.join(parts)} Fetch them again.", "danger")
    if not good:
        return Note("No checksums are known for these files, so there is nothing to compare them with.", "warning")
    rest = f"; for {len(unknown)} no checksum is known" if unknown else ""
    return Note(f"All {len(good)} files are as they were downloaded{rest}.", "success")

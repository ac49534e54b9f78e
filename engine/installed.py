"""The models of this user: the hub's library together with what the weights reader knows of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.config import DRAFTER, FAMILIES
from engine.errors import CheckpointError, UserError
from engine.hub.entry import Model
from engine.hub.facts import ModelFacts
from engine.hub.library import Library
from engine.paths import UserPaths, user_paths
from engine.weights.files import list_files
from engine.weights.head import HeadFound, head_geometry
from engine.weights.inspect import Inspection, inspect
from engine.weights.rename import Scope, scope_of


def open_library(paths: UserPaths | None = None) -> Library:
    """The library in the user's data directory."""
    return Library((paths or user_paths()).data, read_facts)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What to load."""

    directory: Path
    head: Path | None
    """Directory of its MTP head; None where none fits, or where the user wants none."""


def find_checkpoint(name: str, library: Library | None = None) -> Checkpoint:
    """The checkpoint called so in the library, with the head that it is paired with.

    Raises:
        UnknownModelError: the library has no such model.
        UserError: it is incomplete, damaged, unusable or not there at the moment; the message names what is wrong.
    """
    library = library or open_library()
    models = library.models()
    model = library.find(name, models)
    if not model.loadable:
        if model.status == "ready" and model.has_head:
            raise UserError(
                f"{model.name} is only an MTP head.", "Load the model it belongs to; it is used with that by itself."
            )
        cure = f"`inkstand download {model.repo or model.name}` fetches what is missing."
        if model.status == "unavailable":
            cure = "Connect its volume, or restore its folder."
        elif model.status in ("ready", "unusable"):
            # Fetching it again brings the same files, unless only some of them were asked for.
            offer = f"`inkstand plan {model.repo}` shows what its repository has; " if model.repo else ""
            cure = f"{offer}`inkstand models catalog` lists what runs here."
        raise UserError(f"{model.name} cannot be loaded: {_state(model)}. {model.problem or ''}".strip(), cure)
    head = library.head_for(model, models)
    return Checkpoint(model.path, head.path if head else None)


def find_head_folder(name: str, library: Library | None = None) -> Path:
    """The folder of the head, or of the model with a head of its own, that is called so in the library.

    Raises:
        UnknownModelError: the library has no such model.
        UserError: it has no head that can be used.
    """
    model = (library or open_library()).find(name)
    if not model.usable_head:
        note = model.facts.head_note if model.facts is not None and not model.has_head else model.problem
        raise UserError(
            f"{model.name} has no MTP head that can be used. {note or ''}".strip(),
            "`inkstand models list` shows which models have one.",
        )
    return model.path


def _state(model: Model) -> str:
    return "it holds no model" if model.status == "ready" else f"it is {model.status}"


def read_facts(directory: Path) -> ModelFacts:
    """What a model folder holds, from its config and headers. What cannot be read is a problem, never an exception."""
    try:
        seen = inspect(directory)
    except UserError as error:
        return ModelFacts(None, problem=f"{error.title} {error.hint}".strip())
    lacking = _lacking(directory)
    found = isinstance(seen.head, HeadFound)
    backbone = seen.backbone_parameters > 0 or bool(lacking)
    problems = seen.problems
    if not backbone and found:
        # A folder with nothing but a head lacks every tensor of a model, and is none the worse for it.
        problems = tuple(p for p in problems if p.startswith("MTP head:"))
    return ModelFacts(
        family="Inkling" if seen.family in (*FAMILIES, DRAFTER) else None,
        layout=seen.layout if backbone else None,
        quantization=_quantization(seen),
        backbone=backbone,
        head=found,
        head_note=_head_note(seen),
        lacking=lacking,
        problem=problems[0] if problems and not lacking else None,
        shape=_shape(seen),
    )


def _lacking(directory: Path) -> tuple[str, ...]:
    """Files that hold parts of the model itself according to the index, and that are not there.

    Without the files of its head, or of its vision and audio encoders, a model chats all the same.
    """
    try:
        index = list_files(directory).index or {}
    except (CheckpointError, OSError):
        return ()
    needed = {file for tensor, file in index.items() if scope_of(tensor) is Scope.BACKBONE}
    return tuple(name for name in sorted(needed) if not (directory / name).is_file())


def _quantization(seen: Inspection) -> str | None:
    """How most of its matrices are stored."""
    dtype = (seen.config.dtype if seen.config else None) or "unquantized"
    kind = max(seen.packing, key=lambda name: seen.packing[name], default=None)
    quantized = [name for name in seen.packing if name != "unquantized"]
    return max(quantized, key=lambda name: seen.packing[name]) if quantized else kind and dtype


def _head_note(seen: Inspection) -> str:
    if isinstance(seen.head, HeadFound):
        return f"{seen.head.depths} depth{'' if seen.head.depths == 1 else 's'} in {', '.join(seen.head.files)}"
    return seen.head.reason


def _shape(seen: Inspection) -> tuple[tuple[str, float], ...]:
    return () if seen.config is None else tuple(head_geometry(seen.config.text).items())

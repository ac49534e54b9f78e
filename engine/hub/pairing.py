"""Which MTP head a model is used with. Any head of the same original fits, whatever the quantization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.hub.entry import Model
from engine.hub.errors import NoHeadError


def choose_head(model: Model, models: Iterable[Model], pairs: Mapping[str, str]) -> Model | None:
    """The head that the user chose, the model's own, or one that fits; None without any.

    Args:
        pairs: path of a model -> path of the folder with its head, "" = none.
    """
    models = list(models)
    chosen = pairs.get(str(model.path))
    if chosen is not None:
        return next((m for m in models if str(m.path) == chosen and m.usable_head), None)
    if model.has_head:
        return model
    fitting = [m for m in models if m.usable_head and _fits(model, m)]
    # A folder that holds nothing but a head was fetched for this.
    return min(fitting, key=lambda m: (bool(m.facts and m.facts.backbone), m.name), default=None)


def check_pair(model: Model, head: Model) -> None:
    """Raises NoHeadError unless `head` has a head that fits `model`; the message names both values."""
    if not head.has_head or head.facts is None:
        note = head.facts.head_note if head.facts else None
        raise NoHeadError(
            f"{head.name} has no MTP head." + (f" {note}" if note else ""),
            f"`inkstand download {head.name} --mtp-head` fetches it where the repository has one.",
        )
    theirs = dict(head.facts.shape)
    for key, value in model.facts.shape if model.facts else ():
        if key in theirs and theirs[key] != value:
            raise NoHeadError(
                f"The head of {head.name} belongs to another model: its {key} is {theirs[key]:g}, that of {model.name} "
                f"is {value:g}.",
                "Take the head of the original release of this model.",
            )


def _fits(model: Model, head: Model) -> bool:
    ours, theirs = (dict(m.facts.shape) if m.facts else {} for m in (model, head))
    shared = ours.keys() & theirs.keys()
    return bool(shared) and all(ours[key] == theirs[key] for key in shared)

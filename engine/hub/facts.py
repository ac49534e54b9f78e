"""What the library wants to know of a model folder. Reading weights is another part's business: it is injected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the config and the safetensors headers of a folder say."""

    family: str | None
    """For example "Inkling"; None for anything else."""
    layout: str | None = None
    """Whose tensor names it uses."""
    quantization: str | None = None
    """For example "BF16" or "affine 4-bit, group 64"."""
    backbone: bool = False
    """It has the tensors of the model itself, not only of a head."""
    head: bool = False
    """It has the tensors of an MTP head."""
    head_note: str | None = None
    """How deep the head is, or why there is none."""
    lacking: tuple[str, ...] = ()
    """Weight files that its index names and that are not there."""
    problem: str | None = None
    """Why it cannot be loaded as it is, other than lacking files."""
    shape: tuple[tuple[str, float], ...] = ()
    """Named figures that a head and its target must share."""


Inspector = Callable[[Path], ModelFacts]
"""Reads a model folder. Must not raise for whatever is in it."""

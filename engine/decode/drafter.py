"""What the decode loop asks of a drafter; it knows none by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx

from engine.decode.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Draft:
    """k proposed tokens, lazy."""

    tokens: mx.array
    """int32 [k]."""
    probabilities: mx.array | None
    """Float32 [k, V]: the distributions they were drawn from, or None when chosen with certainty."""


class Drafter(Protocol):
    """Guesses tokens after the last committed one.

    The loop calls `extend` with the trunk's hidden states of every committed row, in order, and after a
    `propose` calls `settle` before the rows of that round arrive.
    """

    @property
    def max_drafts(self) -> int | None:
        """Most drafts per round, or None for no limit."""
        ...

    def prepare(self, drafts: int) -> None:
        """That many drafts per round will be asked for (0: none for now); rows are primed for them."""
        ...

    def extend(self, hidden: mx.array, ids: Sequence[int]) -> None:
        """The trunk's next rows: pre-norm hidden [1, L, H]; `ids` are all known ids, a prompt's rest included."""
        ...

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler) -> Draft:
        """`count` drafts after `ids`, whose last token the trunk has not processed yet."""
        ...

    def settle(self, accepted: int) -> None:
        """The first `accepted` drafts of the latest proposal were committed, the others were not."""
        ...

    @property
    def arrays(self) -> list[mx.array]:
        """State to evaluate with the round."""
        ...

    def snapshot(self) -> Any:
        """The present state, for `rewind`; later calls leave it untouched."""
        ...

    def rewind(self, snapshot: Any) -> None:
        """Go back to a state taken from this drafter earlier in the same sequence."""
        ...

    def reset(self) -> None:
        """Forget the sequence."""
        ...

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
    `propose` (and perhaps a `look_ahead`) calls `settle` before the rows of that round arrive.
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

    def catch_up(self, ids: Sequence[int]) -> None:
        """Read the rows that still wait, if drafts are wanted: after a prompt, so that the first proposal costs what
        others do. The newest row is left, whose following token is not known yet."""
        ...

    def propose(self, ids: Sequence[int], count: int, sampler: Sampler) -> Draft:
        """`count` drafts after `ids`, whose last token the trunk has not processed yet."""
        ...

    def hindsight(self, ids: Sequence[int], count: int) -> mx.array | None:
        """What the first draft would have been at each of the latest tokens, read from rows that waited.

        Returns:
            Logits [n, V] for the last n of `ids`, n at most `count`, not evaluated; None where no row waited.
        """
        ...

    def look_ahead(self, hidden: mx.array, following: mx.array, last: mx.array, sampler: Sampler) -> None:
        """Start on the proposal after the latest one, before the host has read what stands of it.

        Args:
            hidden: the trunk's pre-norm rows [1, L, H] of the latest proposal's verify block.
            following: int32 [L], the token after each of them, true up to row `last`.
            last: int32 scalar, the row of the last draft that stands; 0 where none does.
        """
        ...

    def settle(self, accepted: int, *, ahead: bool = False) -> None:
        """The first `accepted` drafts of the latest proposal were committed, the others were not.

        Args:
            ahead: what `look_ahead` was told has come true: `accepted` is its `last`, and the token after it was
                committed too.
        """
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

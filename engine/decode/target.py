"""The target model with its caches and the ids they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from engine.cache import Cache, Mark
from engine.model.backbone import Backbone

PREFILL_CHUNK = 512


class Target:
    """One sequence on one backbone.

    `ids` are the committed tokens; the caches hold all of them or all but the last, which then is the
    pending one that the next forward reads.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.cache: Cache = backbone.make_cache()
        self.ids: list[int] = []

    @property
    def position(self) -> int:
        """Rows processed."""
        return self.cache.offset

    def forward(self, tokens: mx.array) -> mx.array:
        """Ids [L] -> pre-norm hidden [1, L, H]; the rows join the caches."""
        return self.backbone(tokens[None], self.cache)

    def logits(self, hidden: mx.array) -> mx.array:
        """[1, L, H] -> float32 [L, V]."""
        return self.backbone.logits(hidden)[0]

    def mark(self) -> tuple[Mark, ...]:
        return self.cache.mark()

    def restore(self, mark: Sequence[Mark]) -> None:
        self.cache.restore(mark)

    def trim(self, rows: int) -> None:
        """Take back the last `rows` rows: keys are cut, convolution states cut from the inputs kept."""
        if rows:
            self.cache.trim(rows)

    def prefill(
        self, ids: Sequence[int], chunk: int, observe: Callable[[mx.array, Sequence[int]], None]
    ) -> Iterator[mx.array]:
        """Process what the caches lack of `ids`, which begin with what they hold, `chunk` rows per forward.

        After each chunk its hidden rows go to `observe` with all of `ids`, and the hidden [1, 1, H] of its last
        row is yielded. Leaving the iteration early leaves a usable state: `self.ids` are the rows processed.
        """
        for low in range(self.position, len(ids), chunk):
            part = ids[low : low + chunk]
            hidden = self.forward(mx.array(list(part), mx.int32))
            mx.eval(hidden, self.cache.arrays)
            self.cache.compact()
            self.ids = list(ids[: low + len(part)])
            observe(hidden, ids)
            yield hidden[:, -1:]

    def reset(self) -> None:
        self.cache = self.backbone.make_cache()
        self.ids = []

"""What a layer remembers of the sequence: keys and values, and the last inputs of its short convolutions.

Every cache can be cut back by a few rows after a rejected draft without running the model again, and
marked and restored. Positions are absolute: row p belongs to token p of the sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx

ALIGN = 64
"""Attention reads keys from and up to a multiple of this position. A row's scores are then reduced in
the same lanes whether it is computed alone or inside a block, which keeps its bits equal where the
matrix kernels are row-invariant, and the kernels see few distinct shapes."""

ROLLBACK_ROWS = 32
"""Rows a windowed cache keeps beyond its window, the furthest it can be cut back."""

GROWTH = 256
"""Rows that a cache allocates ahead of need."""


def align_down(position: int) -> int:
    return position - position % ALIGN


def align_up(position: int) -> int:
    return align_down(position + ALIGN - 1)


@dataclass(frozen=True, slots=True)
class KeyView:
    """Keys and values [1, kv_heads, S, head_dim] of positions `first` .. `first` + S - 1.

    Rows at or beyond the end of the sequence are padding and must be masked.
    """

    keys: mx.array
    values: mx.array
    first: int


@dataclass(frozen=True, slots=True)
class KVCopy:
    """Where a `KVCache` stood, and what a windowed one held."""

    offset: int
    start: int
    base: int
    rows: tuple[mx.array, mx.array] | None
    """Keys and values from `base` on; None without a window, or before the first row."""


class KVCache:
    """Keys and values of one attention layer.

    Args:
        window: keys a query sees, itself included, or None for all. With a window the memory does not
            grow with the context: it is the window, `ROLLBACK_ROWS`, and the rows of one call.
    """

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.offset = 0
        """Tokens in the cache, those that fell out of the window included."""
        self.start = 0
        """Position of the first row ever held since the last restart; a multiple of `ALIGN`."""
        self.base = 0
        """Position of the first buffer row; a multiple of `ALIGN`."""
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    def append(self, keys: mx.array, values: mx.array) -> KeyView:
        """Add [1, kv_heads, L, head_dim] and return what the L new queries may look at."""
        start, end = self.offset, self.offset + keys.shape[2]
        if self.keys is None or self.values is None or end - self.base > self.keys.shape[2]:
            self._reallocate(keys, values, end)
        assert self.keys is not None
        assert self.values is not None
        row = slice(start - self.base, end - self.base)
        self.keys[:, :, row] = keys
        self.values[:, :, row] = values
        self.offset = end
        first = self.base if self.window is None else max(self.base, align_down(start - self.window + 1))
        view = slice(first - self.base, align_up(end) - self.base)
        return KeyView(self.keys[:, :, view], self.values[:, :, view], first)

    def _reallocate(self, keys: mx.array, values: mx.array, end: int) -> None:
        lowest = self.base
        if self.window is not None:
            lowest = max(lowest, align_down(max(0, self.offset - self.window + 1 - ROLLBACK_ROWS)))
        capacity = align_up(end - lowest) + GROWTH
        kept = slice(lowest - self.base, self.offset - self.base)

        def moved(old: mx.array | None, new: mx.array) -> mx.array:
            buffer = mx.zeros((*new.shape[:2], capacity, new.shape[3]), new.dtype)
            if old is not None and kept.stop > kept.start:
                buffer[:, :, : kept.stop - kept.start] = old[:, :, kept]
            return buffer

        self.keys, self.values, self.base = moved(self.keys, keys), moved(self.values, values), lowest

    def trim(self, rows: int) -> None:
        """Forget the last `rows` rows.

        Raises:
            ValueError: a window cannot be cut back that far.
        """
        offset = self.offset - rows
        oldest = self.start if self.window is None else max(self.start, offset - self.window + 1)
        if rows < 0 or offset < self.base or oldest < self.base:
            raise ValueError(f"cannot cut {rows} rows from a cache that holds rows {self.base} to {self.offset}")
        self.offset = offset

    def restart(self, position: int) -> None:
        """Forget everything; the next row is `position`, a multiple of `ALIGN`."""
        if position % ALIGN:
            raise ValueError(f"a cache restarts at a multiple of {ALIGN}, not at {position}")
        self.offset = self.start = self.base = position
        self.keys = self.values = None

    def copy(self) -> KVCopy:
        """What `paste` needs to come back here; the rows of a windowed cache as arrays of their own."""
        if self.window is None or self.keys is None or self.values is None:
            return KVCopy(self.offset, self.start, self.base, None)
        low = max(self.base, align_down(max(0, self.offset - self.window + 1 - ROLLBACK_ROWS)))
        rows = slice(low - self.base, self.offset - self.base)
        held = mx.contiguous(self.keys[:, :, rows]), mx.contiguous(self.values[:, :, rows])
        return KVCopy(self.offset, self.start, low, held)

    def paste(self, copy: KVCopy) -> None:
        """Go back to where `copy` was taken.

        Raises:
            ValueError: the cache keeps all rows in place and was restarted since.
        """
        if self.window is None:
            if copy.start != self.start:
                raise ValueError("the keys of that time are gone")
            self.offset = copy.offset
            return
        self.offset, self.start, self.base = copy.offset, copy.start, copy.base
        self.keys = self.values = None
        if copy.rows is not None:
            spare = align_up(copy.offset - copy.base) + GROWTH - copy.rows[0].shape[2]
            pad: list[tuple[int, int]] = [(0, 0), (0, 0), (0, spare), (0, 0)]
            self.keys, self.values = mx.pad(copy.rows[0], pad), mx.pad(copy.rows[1], pad)

    def rows(self) -> tuple[mx.array, mx.array] | None:
        """The valid rows in the buffer, oldest first (for comparison in tests and reports)."""
        if self.keys is None or self.values is None:
            return None
        return self.keys[:, :, : self.offset - self.base], self.values[:, :, : self.offset - self.base]

    @property
    def arrays(self) -> Sequence[mx.array]:
        return () if self.keys is None or self.values is None else (self.keys, self.values)


class ConvCache:
    """The last inputs of one short convolution, float32 [1, rows, channels], newest last.

    The inputs of the latest call stay whole, so that cutting rows moves an index and copies nothing.
    """

    def __init__(self, taps: int) -> None:
        self.taps = taps
        """Past inputs the next output needs: kernel size - 1."""
        self.inputs: mx.array | None = None
        self.valid = 0

    def extend(self, inputs: mx.array) -> mx.array:
        """Add [1, L, C] and return [1, taps + L, C]; zeros stand before the start of the sequence."""
        joined = mx.concatenate([self.state(inputs.shape[-1]), inputs], axis=1)
        self.replace(joined)
        return joined

    def replace(self, inputs: mx.array) -> None:
        """Keep [1, taps + L, C], the last `taps` inputs followed by L new ones."""
        self.inputs, self.valid = inputs, inputs.shape[1]

    def state(self, channels: int) -> mx.array:
        """The last `taps` inputs [1, taps, C]."""
        if self.inputs is None:
            return mx.zeros((1, self.taps, channels), mx.float32)
        return self.inputs[:, self.valid - self.taps : self.valid]

    def trim(self, rows: int) -> None:
        """Forget the last `rows` inputs.

        Raises:
            ValueError: the inputs before them are no longer kept.
        """
        if rows and (rows < 0 or self.valid - rows < self.taps):
            raise ValueError(f"cannot cut {rows} inputs; {max(0, self.valid - self.taps)} are kept")
        self.valid -= rows

    def compact(self) -> None:
        """Let go of all but the inputs that a cut-back of `ROLLBACK_ROWS` may need."""
        keep = self.taps + ROLLBACK_ROWS
        if self.inputs is not None and self.inputs.shape[1] > 2 * keep:
            low = max(0, self.valid - keep)
            self.inputs = mx.contiguous(self.inputs[:, low : self.valid])
            self.valid -= low

    @property
    def arrays(self) -> Sequence[mx.array]:
        return () if self.inputs is None else (self.inputs,)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a `LayerCache` stood. Holds no copy of keys; valid until the cache is cut below it."""

    offset: int
    convs: tuple[tuple[mx.array | None, int], ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A `Mark` that outlives any later use of the cache: windowed keys are copied."""

    mark: Mark
    kv: KVCopy

    @property
    def arrays(self) -> list[mx.array]:
        return [*(inputs for inputs, _ in self.mark.convs if inputs is not None), *(self.kv.rows or ())]


class LayerCache:
    """The state of one decoder layer: keys and values and three convolutions, keys' and values' being one."""

    def __init__(self, window: int | None, kernel: int) -> None:
        self.kv = KVCache(window)
        self.kv_conv, self.attn_conv, self.mlp_conv = (ConvCache(kernel - 1) for _ in range(3))

    @property
    def convs(self) -> tuple[ConvCache, ...]:
        return (self.kv_conv, self.attn_conv, self.mlp_conv)

    @property
    def offset(self) -> int:
        return self.kv.offset

    def trim(self, rows: int) -> None:
        self.kv.trim(rows)
        for conv in self.convs:
            conv.trim(rows)

    def restart(self, position: int) -> None:
        self.kv.restart(position)
        for conv in self.convs:
            conv.inputs, conv.valid = None, 0

    def compact(self) -> None:
        for conv in self.convs:
            conv.compact()

    def mark(self) -> Mark:
        return Mark(self.kv.offset, tuple((conv.inputs, conv.valid) for conv in self.convs))

    def restore(self, mark: Mark) -> None:
        self.kv.offset = mark.offset
        self._restore_convs(mark)

    def snapshot(self) -> Snapshot:
        self.compact()
        return Snapshot(self.mark(), self.kv.copy())

    def can_rewind(self, snapshot: Snapshot) -> bool:
        """Whether the keys of that time are still there."""
        return self.kv.window is not None or self.kv.start == snapshot.kv.start

    def rewind(self, snapshot: Snapshot) -> None:
        """Go back to `snapshot`. Raises ValueError where a layer without a window was restarted since."""
        self.kv.paste(snapshot.kv)
        self._restore_convs(snapshot.mark)

    def _restore_convs(self, mark: Mark) -> None:
        for conv, (inputs, valid) in zip(self.convs, mark.convs, strict=True):
            conv.inputs, conv.valid = inputs, valid

    @property
    def arrays(self) -> Iterator[mx.array]:
        yield from self.kv.arrays
        for conv in self.convs:
            yield from conv.arrays


class Cache:
    """The caches of a stack of layers that always stand at the same position."""

    def __init__(self, layers: Sequence[LayerCache]) -> None:
        self.layers = tuple(layers)

    @property
    def offset(self) -> int:
        """Tokens processed."""
        return self.layers[0].offset

    def trim(self, rows: int) -> None:
        for layer in self.layers:
            layer.trim(rows)

    def compact(self) -> None:
        for layer in self.layers:
            layer.compact()

    def mark(self) -> tuple[Mark, ...]:
        return tuple(layer.mark() for layer in self.layers)

    def restore(self, marks: Sequence[Mark]) -> None:
        for layer, mark in zip(self.layers, marks, strict=True):
            layer.restore(mark)

    def snapshot(self) -> tuple[Snapshot, ...]:
        return tuple(layer.snapshot() for layer in self.layers)

    def rewind(self, snapshots: Sequence[Snapshot]) -> None:
        for layer, snapshot in zip(self.layers, snapshots, strict=True):
            layer.rewind(snapshot)

    @property
    def arrays(self) -> list[mx.array]:
        """Everything that must be evaluated so that no graph outlives a round."""
        return [array for layer in self.layers for array in layer.arrays]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

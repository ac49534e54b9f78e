"""Which bytes of one file are on the disk, and which may be asked for next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """Bytes [start, stop) of a file that one connection fetches. `stop` is a chunk boundary or the file's end."""

    start: int
    stop: int


class ChunkMap:
    """A file cut into chunks, each filled from its start; a chunk is what the journal remembers.

    Connections claim runs of chunks in file order and within a window behind the frontier, so that the checksum,
    which follows the frontier, reads what is still in memory.

    Args:
        size: of the file in bytes.
        chunk: bytes of one chunk.
    """

    def __init__(self, size: int, chunk: int) -> None:
        self.size = size
        self.chunk = chunk
        self._filled = [0] * -(-size // chunk)
        self._claimed = bytearray(len(self._filled))
        self._front = 0
        """First chunk that is not full."""
        self.done = 0

    @property
    def complete(self) -> bool:
        return self.done == self.size

    @property
    def frontier(self) -> int:
        """Bytes from the start of the file without a gap."""
        if self._front == len(self._filled):
            return self.size
        return self._front * self.chunk + self._filled[self._front]

    def claim(self, run: int, window: int) -> Claim | None:
        """The next at most `run` chunks that nobody fetches, starting at most `window` chunks behind the frontier."""
        limit = min(self._front + window, len(self._filled))
        first = next((k for k in range(self._front, limit) if not self._claimed[k] and self._missing(k)), None)
        if first is None:
            return None
        last = first + 1
        # Only empty chunks can follow: a half-filled one would be fetched from its start.
        while last < min(first + run, limit) and not self._claimed[last] and not self._filled[last]:
            last += 1
        self._claimed[first:last] = b"\x01" * (last - first)
        return Claim(first * self.chunk + self._filled[first], min(last * self.chunk, self.size))

    def claim_all(self) -> Claim:
        """The whole file, for a server without ranges. Nothing may be claimed or filled."""
        self._claimed = bytearray(b"\x01" * len(self._filled))
        return Claim(0, self.size)

    def release(self, claim: Claim) -> None:
        """Gives back a claim, fetched or not."""
        first, last = claim.start // self.chunk, -(-claim.stop // self.chunk)
        self._claimed[first:last] = bytes(last - first)

    def wrote(self, start: int, count: int) -> list[int]:
        """`count` bytes at `start` are on the disk. Returns the chunks that became full.

        Bytes must follow those that the chunk already holds.
        """
        full: list[int] = []
        self.done += count
        while count:
            k, inside = divmod(start, self.chunk)
            if inside != self._filled[k]:
                raise ValueError(f"byte {start} does not follow the {self._filled[k]} bytes of chunk {k}")
            step = min(count, self._length(k) - inside)
            self._filled[k] += step
            if not self._missing(k):
                full.append(k)
            start, count = start + step, count - step
        while self._front < len(self._filled) and not self._missing(self._front):
            self._front += 1
        return full

    def restore(self, chunk: int, count: int | None = None) -> None:
        """Chunk number `chunk` holds `count` bytes, None = all; as read from a journal. Nonsense is ignored."""
        if not 0 <= chunk < len(self._filled):
            return
        count = self._length(chunk) if count is None else min(count, self._length(chunk))
        if count > self._filled[chunk]:
            self.wrote(chunk * self.chunk + self._filled[chunk], count - self._filled[chunk])

    def partial(self) -> Iterator[tuple[int, int]]:
        """Chunks that are neither empty nor full, as (chunk, bytes)."""
        return ((k, count) for k, count in enumerate(self._filled) if count and self._missing(k))

    def _length(self, k: int) -> int:
        return min(self.chunk, self.size - k * self.chunk)

    def _missing(self, k: int) -> int:
        return self._length(k) - self._filled[k]

"""The known Inkling checkpoints: what they cost to fetch and to run. Any other owner/name can be typed as well.

Sizes are those that the hub lists, or follow from tensor shapes where it lists none. Figures of the cache are bytes per
token of the global layers (keys and values in bfloat16) plus what does not grow: sliding windows and convolution
states.
"""

from __future__ import annotations

from dataclasses import dataclass

CONTEXT = 8192
"""Tokens of context that memory needs are stated for."""
_WORKING = 2_000_000_000
"""Bytes for activations, the tokenizer, the program and the allocator's cache."""
_GPU_SHARE = 0.75
"""Part of a Mac's memory that Metal lets one program use, unless the limit is raised."""


@dataclass(frozen=True, slots=True)
class Original:
    """A released model, which its conversions share a head with. Sizes in bytes."""

    name: str
    repo: str
    """Where its head is."""
    head: int
    cache_per_token: int
    cache_fixed: int


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One checkpoint on the hub."""

    repo: str
    original: Original
    quantization: str
    size: int
    """Bytes of its weights, the head included where it has one."""
    has_head: bool
    note: str = ""

    @property
    def download(self) -> int:
        """Bytes to fetch until it speculates: the weights, and the original's head where it has none."""
        return self.size + (0 if self.has_head else self.original.head)

    @property
    def memory(self) -> int:
        """Bytes that it needs at `CONTEXT` tokens, head included."""
        return self.download + self.original.cache_per_token * CONTEXT + self.original.cache_fixed + _WORKING

    @property
    def machine(self) -> int:
        """Bytes of memory of a Mac that runs it without raising the limit for the GPU."""
        return int(self.memory / _GPU_SHARE)


INKLING = Original("Inkling", "thinkingmachines/Inkling", 10_520_000_000, 45_056, 243_400_000)
SMALL = Original("Inkling-Small", "thinkingmachines/Inkling-Small", 4_463_000_000, 28_672, 78_600_000)
TINY = Original("Inkling-0.6B", "inference-optimization/Inkling-0.6B-A0.6B", 0, 24_576, 30_000_000)

CATALOG = (
    CatalogEntry("thinkingmachines/Inkling-Small-NVFP4", SMALL, "NVFP4", 170_733_000_000, True, "official, with head"),
    CatalogEntry("thinkingmachines/Inkling-Small", SMALL, "BF16", 531_913_000_000, True, "official, with head"),
    CatalogEntry("mlx-community/Inkling-Small-mxfp4", SMALL, "MXFP4", 140_271_000_000, False, "fastest on a Mac"),
    CatalogEntry("mlx-community/Inkling-Small-mlx-4bit", SMALL, "4-bit experts", 153_500_000_000, False),
    CatalogEntry("pipenetwork/Inkling-Small-MLX-4bit", SMALL, "4-bit", 148_440_000_000, False),
    CatalogEntry("mlx-community/Inkling-Small-mlx-3bit", SMALL, "3-bit experts", 121_000_000_000, False),
    CatalogEntry(
        "pipenetwork/Inkling-Small-MLX-REAP25-4bit", SMALL, "4-bit", 112_000_000_000, False, "a quarter fewer experts"
    ),
    CatalogEntry("Sawfwair/Inkling-Small-MLX-Mixed-2bit", SMALL, "2-bit mix", 84_500_000_000, False),
    CatalogEntry("thinkingmachines/Inkling-NVFP4", INKLING, "NVFP4", 592_000_000_000, True, "official, with head"),
    CatalogEntry("thinkingmachines/Inkling", INKLING, "BF16", 1_904_700_000_000, True, "official, with head"),
    CatalogEntry(
        "inference-optimization/Inkling-0.6B-A0.6B", TINY, "F32", 2_600_000_000, True, "for trying out; not fluent"
    ),
)  # fmt: skip


def find_entry(repo: str) -> CatalogEntry | None:
    """The catalog's entry for owner/name, whatever its case."""
    return next((e for e in CATALOG if e.repo.casefold() == repo.casefold()), None)


def that_run_in(memory: int) -> tuple[CatalogEntry, ...]:
    """What runs on a Mac with `memory` bytes of memory, the largest first."""
    return tuple(sorted((e for e in CATALOG if e.machine <= memory), key=lambda e: -e.size))

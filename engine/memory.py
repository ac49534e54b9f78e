"""What a checkpoint will hold in memory, from its config and its headers, and how much there is.

Weights are the bytes of the arrays that `engine.weights.load` would make. Caches follow `engine.cache`: a global layer
keeps every token, a sliding one its window. What a forward needs on top of both is estimated from its largest arrays.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from engine.cache import ALIGN, GROWTH, ROLLBACK_ROWS, align_up
from engine.config import ModelConfig, TextConfig
from engine.decode.stateful import PRIME_ROWS
from engine.decode.target import PREFILL_CHUNK
from engine.errors import HeadError
from engine.model import draft_head
from engine.model.blockwise import KEY_BLOCK, QUERY_BLOCK
from engine.model.fused import block_input
from engine.weights.geometry import Size, target_size
from engine.weights.head import HeadMissing, check_head_matches, find_head
from engine.weights.keep import keeps_packed
from engine.weights.load import activation_dtype, plan_backbone, plan_head
from engine.weights.plan import Module
from engine.weights.recipe import Recipe, quantize_rest_recipe
from engine.weights.rename import published_name
from engine.weights.targets import Target, backbone_targets, head_targets

KEPT_TURNS = 4
"""States of earlier turns that a session keeps, see `engine.history.Boundaries`."""
_COMPACT_ROWS = 2 * (ROLLBACK_ROWS + 3)
_BLOCKS = 8
"""Score blocks of an attention call that exist at once, as measured on the CPU: the mask's copies and a few parts."""
_REGROWN = 2
"""Layers whose keys exist twice at once when a cache grows."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one kind (global or sliding) in model and head together; sizes in bytes."""

    count: int
    row: int
    """Keys and values of one token in one layer."""
    conv_row: int
    """One row of the inputs that the four convolutions of a layer keep, always float32."""
    window: int | None

    @property
    def filled(self) -> int:
        """Tokens after which a sliding layer keeps no more; 0 for a global one, which keeps every token."""
        # One call's rows stand beside the window, and the start is rounded down.
        return 0 if self.window is None else align_up(self._behind(self.window) + PREFILL_CHUNK)

    def cache(self, context: int, turns: int = KEPT_TURNS) -> int:
        """The most that these layers keep once `context` tokens have gone through them, in so many earlier turns."""
        full = align_up(context) + GROWTH
        conv = (1 + turns) * min(_COMPACT_ROWS, context + 3) * self.conv_row
        if self.window is None:
            return self.count * (full * self.row + conv)
        rows = min(self.filled + GROWTH, full)
        copies = turns * min(self._behind(self.window), context)
        return self.count * ((rows + copies) * self.row + conv)

    @staticmethod
    def _behind(window: int) -> int:
        """Rows that a sliding layer keeps for the calls to come."""
        return window + ROLLBACK_ROWS + ALIGN


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that a checkpoint holds once it is loaded."""

    weights: int
    head: int
    """Weights of the MTP head; 0 without one."""
    shortlist: int
    """What scores its drafts, beside the LM head."""
    inputs: int
    """Tables in which its blocks look up what they read of a token."""
    depths: int
    layers: tuple[Layers, ...]
    draft_log: int
    """Hidden rows that the drafter keeps."""
    step: int
    """Activations of one prefill step, see `engine.model.blockwise` for attention's share."""
    regrow_row: int
    """What growing caches copy, per token of context."""
    largest: int
    """The largest module, which exists twice while it is read."""
    max_context: int
    """Tokens that the model was made for."""
    head_problem: str | None = None
    """Why the head that was asked for is left out."""

    def cache(self, context: int, turns: int = KEPT_TURNS) -> int:
        """Keys, values and convolution states at `context` tokens, the head's and those of earlier turns included."""
        return sum(kind.cache(context, turns) for kind in self.layers) + self.draft_log

    @property
    def windows_filled(self) -> int:
        """Tokens after which the caches of sliding layers are full; 0 where there are none."""
        return max((kind.filled for kind in self.layers if kind.count), default=0)

    def cache_per_token(self) -> int:
        """By how much the cache grows with every token once the windows are full."""
        return sum(kind.count * kind.row for kind in self.layers if kind.window is None)

    def working(self, context: int) -> int:
        """What loading or a forward needs for a moment."""
        return max(self.largest, self.prefill(context))

    def prefill(self, context: int) -> int:
        """What a prefill step needs for a moment, the last of `context` tokens."""
        return self.step + self.regrow_row * context

    @property
    def drafter(self) -> int:
        """The MTP head and what makes its drafts fast."""
        return self.head + self.shortlist + self.inputs

    def total(self, context: int) -> int:
        return self.weights + self.drafter + self.cache(context) + self.working(context)


def footprint(
    directory: Path,
    head_directory: Path | None = None,
    *,
    dtype: str = "auto",
    keep_quantized: bool | None = None,
    quantize_rest: int | None = None,
) -> Footprint:
    """Look at a checkpoint, and at the head that it would be used with, without reading their data.

    Args:
        head_directory: where the MTP head lies; None = there is none to load.
        dtype, keep_quantized, quantize_rest: as `engine.weights.load.load_model`.

    Raises:
        ConfigError, CheckpointError: the checkpoint cannot be loaded at all.
        UserError: an unusable dtype or number of bits.
    """
    activation, rest = activation_dtype(dtype), quantize_rest_recipe(quantize_rest)
    config = ModelConfig.from_directory(directory)
    backbone = plan_backbone(directory, config).modules
    head: tuple[Module, ...] = ()
    blocks: tuple[bool, ...] = ()
    problem = None
    if head_directory is not None:
        try:
            blocks, head = _head(config, head_directory)
        except HeadError as error:
            problem = error.title
    weights, drafter = (_by_module(modules, activation, keep_quantized, rest) for modules in (backbone, head))
    return _footprint(
        config.text,
        activation,
        keep_quantized,
        rest,
        weights=weights,
        head=drafter,
        blocks=blocks,
        problem=problem,
    )


def footprint_of_config(
    config: ModelConfig,
    *,
    with_head: bool = True,
    dtype: str = "auto",
    keep_quantized: bool | None = None,
    quantize_rest: int | None = None,
) -> Footprint:
    """The same from a config alone, before anything is downloaded; packed where its quantization block says so.

    Args:
        with_head: count the MTP head that the config announces.

    Raises:
        CheckpointError: the quantization block cannot be used.
        UserError: an unusable dtype or number of bits.
    """
    activation, rest = activation_dtype(dtype), quantize_rest_recipe(quantize_rest)
    mtp = config.mtp if with_head else None

    def by_tensor(targets: Mapping[str, Target]) -> list[int]:
        keep = keeps_packed(keep_quantized, targets.values(), activation)
        return _by_tensor(targets, target_size(config.quantization if keep else None, activation, rest))

    weights = by_tensor(backbone_targets(config.text))
    head = [] if mtp is None else by_tensor(head_targets(config.text, mtp))
    sliding = mtp.sliding if mtp else ()
    return _footprint(config.text, activation, keep_quantized, rest, weights=weights, head=head, blocks=sliding)


def _by_module(
    modules: Sequence[Module], dtype: mx.Dtype, keep_quantized: bool | None, rest: Recipe | None
) -> list[int]:
    """Bytes of the arrays that each module is loaded as."""
    keep = keeps_packed(keep_quantized, [target for module in modules for target in module.targets], dtype)
    return [loaded_bytes(module, dtype, keep, rest) for module in modules]


def _by_tensor(targets: Mapping[str, Target], size: Size) -> list[int]:
    """Bytes of the parameters that each tensor of the published layout holds."""
    sums = Counter[str]()
    for target in targets.values():
        if not target.optional:
            sums[published_name(target.name)] += size(target)
    return list(sums.values())


def _footprint(
    text: TextConfig,
    dtype: mx.Dtype,
    keep_quantized: bool | None,
    rest: Recipe | None,
    *,
    weights: Sequence[int],
    head: Sequence[int],
    blocks: Sequence[bool],
    problem: str | None = None,
) -> Footprint:
    """
    Args:
        weights, head: bytes of their modules.
        blocks: kinds of the MTP blocks, True for sliding.
    """
    vocabulary, hidden = text.unpadded_vocab_size, text.hidden_size
    # Packed matrices are read fast enough as they are.
    plain = bool(blocks) and rest is None and not keep_quantized
    shortlist = plain and draft_head.suits(vocabulary, hidden, dtype)
    tables = plain and block_input.suits(text.vocab_size, hidden, len(blocks), dtype)
    layers = _layers(text, (*text.sliding, *blocks), dtype.size)
    return Footprint(
        weights=sum(weights),
        head=sum(head),
        shortlist=draft_head.shortlist_bytes(vocabulary, hidden) if shortlist else 0,
        inputs=block_input.table_bytes(text.vocab_size, hidden, len(blocks)) if tables else 0,
        depths=len(blocks),
        layers=layers,
        draft_log=len(blocks) * (PRIME_ROWS + ALIGN + PREFILL_CHUNK) * text.hidden_size * dtype.size,
        step=_forward(text, dtype.size),
        regrow_row=_REGROWN * max((kind.row for kind in layers if kind.window is None and kind.count), default=0),
        largest=max((*weights, *head), default=0),
        max_context=text.max_positions,
        head_problem=problem,
    )


def loaded_bytes(module: Module, dtype: mx.Dtype, keep_quantized: bool, rest: Recipe | None = None) -> int:
    """Bytes of the arrays that `engine.weights.load` makes of a module."""
    scales = module.tensors.get("scales", module.tensors.get("scale"))
    if module.quantization is not None and scales is not None and keep_quantized:
        routed = all(".experts." in target.name for target in module.targets)
        if routed if module.modelopt else all(target.kind == "matrix" for target in module.targets):
            total = module.nbytes
            if scales.dtype == "F16" and dtype == mx.float32:
                # Scales and biases in half precision are brought to the activation dtype.
                total += sum(info.nbytes for leaf, info in module.tensors.items() if leaf in ("scales", "biases"))
            return total
    size: Size = target_size(None, dtype, rest)
    return sum(size(target) for target in module.targets)


def available_memory() -> int | None:
    """Bytes that programs can get without pushing others out; None where the system does not tell."""
    if sys.platform == "darwin":
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5, check=True)
            return parse_vm_stat(done.stdout)
        return None
    with suppress(OSError, ValueError):
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
        if found:
            return min(int(found[1]) * 1024, *_cgroup_room())
    return None


def total_memory() -> int | None:
    """Bytes of the machine's memory."""
    with suppress(ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def parse_vm_stat(text: str) -> int | None:
    """Free, inactive, purgeable and speculative pages of what macOS's `vm_stat` prints, in bytes."""
    page = re.search(r"page size of (\d+) bytes", text)
    pages = {name: int(count) for name, count in re.findall(r"^Pages ([a-z ]+):\s+(\d+)\.", text, re.MULTILINE)}
    if page is None or "free" not in pages:
        return None
    return int(page[1]) * sum(pages.get(name, 0) for name in ("free", "inactive", "purgeable", "speculative"))


def _cgroup_room() -> Sequence[int]:
    """What a container's limit leaves; its file cache can be had back. The size of everything without a limit."""
    root = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError, StopIteration):
        limit, used = (int((root / name).read_text()) for name in ("memory.max", "memory.current"))
        stat = (root / "memory.stat").read_text().splitlines()
        cached = next(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
        return (max(0, limit - used + cached),)
    return (sys.maxsize,)


def _head(config: ModelConfig, directory: Path) -> tuple[tuple[bool, ...], tuple[Module, ...]]:
    """Whether each depth is sliding, and the modules. Raises `HeadError`."""
    found = find_head(directory)
    if isinstance(found, HeadMissing):
        raise HeadError(found.reason)
    own = ModelConfig.from_directory(directory)
    check_head_matches(config, own, found, str(directory))
    mtp, plan = plan_head(own, found)
    if plan.problems:
        raise plan.problems.error(directory)
    return mtp.sliding, plan.modules


def _layers(text: TextConfig, sliding: Sequence[bool], item: int) -> tuple[Layers, ...]:
    kinds: list[Layers] = []
    for kind in (False, True):
        attention = text.attention(kind)
        width = attention.kv_heads * attention.head_dim
        conv = 4 * (2 * width + 2 * text.hidden_size)
        kinds.append(Layers(sum(s is kind for s in sliding), 2 * width * item, conv, attention.window))
    return tuple(kinds)


def _forward(text: TextConfig, item: int) -> int:
    """Bytes of one prefill step.

    Counted are the arrays of the widest layer, twice, since two layers may be in flight; every route of a token to an
    expert has rows of its own. Attention adds blocks of float32 scores, see `engine.model.blockwise`.
    """
    routes = max(text.experts_per_token * text.expert_width, 0)
    shared = text.num_shared_experts * text.expert_width
    wide = max(3 * text.dense_width, 3 * (routes + shared) + 4 * text.experts_per_token * text.hidden_size)
    attention = max((text.global_attention, text.sliding_attention), key=lambda a: a.heads * a.head_dim)
    heads = 4 * attention.heads * attention.head_dim
    keys = KEY_BLOCK + text.global_attention.extent + QUERY_BLOCK
    blocks = _BLOCKS * text.global_attention.heads * QUERY_BLOCK * keys * 4
    return 2 * PREFILL_CHUNK * (wide + heads + 6 * text.hidden_size) * item + blocks

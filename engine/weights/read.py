"""Reading tensor data module by module, so that only one module of a checkpoint is in flight at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mlx.core as mx

from engine.errors import CheckpointError
from engine.weights.header import TensorInfo
from engine.weights.plan import Module

_CHECK_ELEMENTS = 1 << 24
"""Elements tested for NaN at a time, which bounds the temporaries."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`done` of `total` bytes of tensor data have been processed; `file` is the shard that was read last."""

    done: int
    total: int
    file: str


Progress = Callable[[LoadProgress], None]


class Shards:
    """Open safetensors files. MLX reads them lazily: a tensor's bytes are read when it is taken, and only then."""

    def __init__(self) -> None:
        self._open: dict[Path, dict[str, mx.array]] = {}

    def take(self, info: TensorInfo) -> mx.array:
        """A tensor's data, which the shard forgets. Raises `CheckpointError` when it cannot be read."""
        try:
            if info.file not in self._open:
                opened = mx.load(str(info.file), format="safetensors")
                if not isinstance(opened, dict):
                    raise CheckpointError(f"{info.file} is no set of tensors.", "Download the file again.")
                self._open[info.file] = opened
            values = self._open[info.file].pop(info.name)
            mx.eval(values)
        except (RuntimeError, OSError) as error:
            raise CheckpointError(
                f"{info.file}: {info.name} cannot be read ({error}).", "Check the disk, or download the file again."
            ) from error
        return values

    def close_all_but(self, needed: set[Path]) -> None:
        for file in self._open.keys() - needed:
            del self._open[file]
            mx.clear_cache()


def read_modules(modules: Sequence[Module], progress: Progress | None) -> Iterator[tuple[Module, dict[str, mx.array]]]:
    """Each module with its tensors by leaf, evaluated and checked for NaN. The caller must not keep the arrays.

    Raises:
        CheckpointError: data that cannot be read or is not finite; names the tensor.
    """
    total = sum(module.nbytes for module in modules)
    last_use = {info.file: i for i, module in enumerate(modules) for info in module.tensors.values()}
    shards = Shards()
    done = 0
    for i, module in enumerate(modules):
        mode = module.quantization.mode if module.quantization else None
        arrays: dict[str, mx.array] = {}
        for leaf, info in module.tensors.items():
            arrays[leaf] = shards.take(info)
            if leaf != "weight" or mode is None:
                check_finite(info, arrays[leaf], "E8M0" if mode in ("mxfp4", "mxfp8") else "E4M3")
            elif mode == "mxfp8":  # the one packed format whose codes can be NaN
                check_finite(info, arrays[leaf].view(mx.uint8), "E4M3")
        yield module, arrays
        del arrays
        done += module.nbytes
        shards.close_all_but({file for file, last in last_use.items() if last > i})
        if progress is not None:
            progress(LoadProgress(done, total, module.tensors["weight"].file.name))


def check_finite(info: TensorInfo, values: mx.array, one_byte: Literal["E8M0", "E4M3"]) -> None:
    """Raise `CheckpointError` naming the tensor if it holds NaN or infinite values.

    one_byte: the number format of `values` that MLX holds as plain bytes.
    """
    flat = values.reshape(-1)
    for start in range(0, flat.size, _CHECK_ELEMENTS):
        part = flat[start : start + _CHECK_ELEMENTS]
        if values.dtype != mx.uint8:
            good = mx.isfinite(part)
        elif one_byte == "E8M0":
            good = part != 0xFF
        else:
            good = (part & 0x7F) != 0x7F
        if not mx.all(good).item():
            raise CheckpointError(
                f"{info.file}: {info.name} holds NaN or infinite values.",
                "Download this file again; if it stays so, the checkpoint itself is broken.",
            )

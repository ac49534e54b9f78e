"""Bytes of parameters in memory, from their shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from math import prod
from typing import Any, cast

import mlx.core as mx

from engine.model.linear import Quantization
from engine.weights.packing import FLOAT_MODES, read_declared
from engine.weights.recipe import Recipe
from engine.weights.rename import published_name
from engine.weights.targets import Target

Size = Callable[[Target], int]


def target_size(quantization: Mapping[str, Any] | None, dtype: mx.Dtype, rest: Recipe | None) -> Size:
    """A function that gives the bytes of a parameter once it is loaded.

    Args:
        quantization: block of a config whose packed matrices stay packed, or None.
        dtype: of the activations, and so of unquantized matrices and of affine scales.
        rest: packs what the checkpoint does not, see `engine.weights.recipe.quantize_rest_recipe`.

    Raises:
        CheckpointError: a quantization that the loader does not know.
    """
    declared, modelopt = read_declared(quantization), _modelopt_excluded(quantization)

    def size(target: Target) -> int:
        if target.kind == "float32":
            return prod(target.shape) * 4
        packing = None
        if target.kind == "matrix":
            packing = declared.of(target.name)
            if modelopt is not None and ".experts." in target.name and not modelopt(target.name):
                packing = FLOAT_MODES["nvfp4"]
            if packing is None and rest is not None:
                packing = rest.of(target.name, target.shape[-1])
        return prod(target.shape) * dtype.size if packing is None else packed_bytes(target.shape, packing, dtype)

    return size


def packed_bytes(shape: tuple[int, ...], packing: Quantization, dtype: mx.Dtype) -> int:
    """Codes, and per group a scale and a bias in `dtype`, or a one-byte scale in the float formats."""
    count = prod(shape)
    per_group = 2 * dtype.size if packing.mode == "affine" else 1
    return count * packing.bits // 8 + count // packing.group_size * per_group


def _modelopt_excluded(quantization: Mapping[str, Any] | None) -> Callable[[str], bool] | None:
    """Tells the experts that ModelOpt left unquantized; None where the block is not ModelOpt's."""
    if not quantization:
        return None
    nested = quantization.get("quantization")
    block = cast("dict[str, Any]", nested) if isinstance(nested, dict) else quantization
    if quantization.get("quant_method") != "modelopt" and "quant_algo" not in block:
        return None
    listed = block.get("exclude_modules", block.get("ignore"))
    patterns = [str(pattern) for pattern in cast("list[object]", listed)] if isinstance(listed, list) else []

    def excluded(name: str) -> bool:
        stored = published_name(name).removesuffix(".weight")
        return any(fnmatchcase(stored, pattern) or stored.startswith(f"{pattern}.") for pattern in patterns)

    return excluded

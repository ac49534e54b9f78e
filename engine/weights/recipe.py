"""Which quantization each class of modules gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import mlx.core as mx

from engine.errors import UserError
from engine.model.linear import Packed, Quantization
from engine.weights.packing import AFFINE_BITS, AFFINE_GROUPS, FLOAT_MODES

ModuleClass = Literal["embed", "lm_head", "attention", "dense", "experts", "shared", "mtp", "other"]
"""other: norms, convolutions, routers and scales, which are never quantized."""
QUANTIZED_CLASSES: tuple[ModuleClass, ...] = get_args(ModuleClass)[:-1]


def module_class(target: str) -> ModuleClass:
    """The class of a parameter, by its canonical name (see `engine.model.params`)."""
    if target in ("embed", "lm_head"):
        return "embed" if target == "embed" else "lm_head"
    if not target.endswith("_proj"):
        return "other"
    if target.startswith("mtp."):
        return "mtp"
    if ".attn." in target:
        return "attention"
    if ".experts." in target:
        return "experts"
    return "shared" if ".shared." in target else "dense"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A quantization per module class: `default`, unless `classes` says otherwise; None leaves modules as they are."""

    default: Quantization | None
    classes: Mapping[ModuleClass, Quantization | None] = field(default_factory=dict[ModuleClass, "Quantization | None"])
    strict: bool = True
    """Whether `default` is also asked of modules that are packed in another way already, which cannot be met."""

    def wants(self, target: str) -> bool:
        """Whether a parameter's class has a setting."""
        kind = module_class(target)
        return kind != "other" and self.classes.get(kind, self.default) is not None

    def of(self, target: str, columns: int) -> Quantization | None:
        """For one parameter with `columns` inputs: its class's setting, in smaller groups if they must divide."""
        kind = module_class(target)
        setting = None if kind == "other" else self.classes.get(kind, self.default)
        if setting is None or columns % setting.group_size == 0:
            return setting
        if setting.mode != "affine":
            return None
        smaller = [group for group in AFFINE_GROUPS if group < setting.group_size and columns % group == 0]
        return Quantization(max(smaller), setting.bits) if smaller else None

    def of_packed(self, target: str, columns: int) -> Quantization | None:
        """As `of`, for a parameter that is packed already; None leaves it so."""
        return self.of(target, columns) if self.strict or module_class(target) in self.classes else None


REST_BITS = (8, 4)
_REST: tuple[ModuleClass, ...] = ("lm_head", "attention", "dense", "shared", "mtp")


def quantize_rest_recipe(bits: int | None) -> Recipe | None:
    """The recipe for what checkpoints with packed experts often leave unquantized: all matrices but embedding and
    routed experts, affine in groups of 64. None for None. Raises `UserError` for other bits than 8 and 4.
    """
    if bits is None:
        return None
    if bits not in REST_BITS:
        raise UserError(f"The rest cannot be quantized to {bits} bits.", f"Use {' or '.join(map(str, REST_BITS))}.")
    return Recipe(None, dict.fromkeys(_REST, Quantization(64, bits)))


def setting(bits: int, group_size: int = 64, mode: str = "affine") -> Quantization:
    """A checked quantization: affine with the bits and groups that MLX has, or a float format. Raises `UserError`."""
    if mode in FLOAT_MODES:
        return FLOAT_MODES[mode]
    if mode != "affine":
        raise UserError(f"The quantization mode {mode!r} is unknown.", f"Use affine, {', '.join(FLOAT_MODES)}.")
    if bits not in AFFINE_BITS:
        raise UserError(f"{bits} bits cannot be packed.", f"Use one of {', '.join(map(str, AFFINE_BITS))}.")
    if group_size not in AFFINE_GROUPS:
        raise UserError(
            f"Groups of {group_size} weights cannot be packed.", f"Use one of {', '.join(map(str, AFFINE_GROUPS))}."
        )
    return Quantization(group_size, bits)


def quantize(weight: mx.array, q: Quantization) -> Packed:
    """Pack a matrix [..., out, in]; `in` must be a multiple of the group size."""
    codes, scales, *biases = mx.quantize(weight, group_size=q.group_size, bits=q.bits, mode=q.mode)
    return Packed(codes, scales, biases[0] if biases else None, q)

"""How quantized tensors are packed: what the config declares, and what the shapes say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from engine.errors import CheckpointError
from engine.model.linear import Quantization
from engine.weights.rename import targets_of_module
from engine.wording import counted

AFFINE_BITS = (2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
FLOAT_MODES = {
    "mxfp4": Quantization(32, 4, "mxfp4"),
    "mxfp8": Quantization(32, 8, "mxfp8"),
    "nvfp4": Quantization(16, 4, "nvfp4"),
}
_MODELOPT_CURE = "Use an NVFP4 checkpoint of ModelOpt, an MLX conversion, or the unquantized one."


@dataclass(frozen=True, slots=True)
class Declared:
    """The quantization that a config declares.

    modules: canonical parameter -> its own setting, None where it is left unquantized.
    """

    default: Quantization | None = None
    modules: Mapping[str, Quantization | None] = field(default_factory=dict[str, "Quantization | None"])

    def of(self, target: str) -> Quantization | None:
        return self.modules.get(target, self.default)


def read_declared(block: Mapping[str, Any] | None) -> Declared:
    """Parse the `quantization` block of an MLX config, or ModelOpt's `quantization_config`/`hf_quant_config.json`.

    Overrides are keyed by module, in the published or in any MLX spelling.

    Raises:
        CheckpointError: a method or a setting that the loader does not know; names it.
    """
    if not block:
        return Declared()
    method = block.get("quant_method")
    if isinstance(block.get("quantization"), dict) or method == "modelopt" or "quant_algo" in block:
        _check_modelopt(block)
        return Declared()
    if method is not None and "mode" not in block:  # MLX names a mode, and no method
        raise CheckpointError(f"config.json: the quantization method {method!r} is not supported.", _MODELOPT_CURE)
    default = _setting(block, "quantization", None) if "bits" in block or "mode" in block else None
    modules: dict[str, Quantization | None] = {}
    for key, value in block.items():
        targets = targets_of_module(key.removesuffix(".weight"))
        if not targets or not isinstance(value, (dict, bool)):
            continue  # a plain setting, or a module that a text model does without
        if isinstance(value, bool):
            setting = default if value else None
        else:
            setting = _setting(cast("dict[str, Any]", value), f"quantization.{key}", default)
        modules |= dict.fromkeys(targets, setting)
    return Declared(default, modules)


def _setting(block: Mapping[str, Any], where: str, default: Quantization | None) -> Quantization:
    mode = block.get("mode", default.mode if default else "affine")
    known = FLOAT_MODES.get(mode) if isinstance(mode, str) else None
    group = block.get("group_size", known.group_size if known else default.group_size if default else 64)
    bits = block.get("bits", known.bits if known else default.bits if default else 4)
    found = Quantization(group, bits, mode)
    if known is None and mode != "affine":
        raise _unsupported(where, "mode", mode, ("affine", *FLOAT_MODES))
    if known is not None and found != known:
        raise CheckpointError(
            f"config.json: {where} declares {mode} with {bits} bits in groups of {group}; "
            f"it has {known.bits} bits in groups of {known.group_size}.",
            "Download config.json again.",
        )
    if known is None and bits not in AFFINE_BITS:
        raise _unsupported(where, "bits", bits, AFFINE_BITS)
    if known is None and group not in AFFINE_GROUPS:
        raise _unsupported(where, "group_size", group, AFFINE_GROUPS)
    return found


def _unsupported(where: str, key: str, value: object, accepted: tuple[object, ...]) -> CheckpointError:
    names = ", ".join(map(str, accepted))
    return CheckpointError(f"config.json: {where}.{key} is {value!r}; it must be one of {names}.", _MODELOPT_CURE)


def _check_modelopt(block: Mapping[str, Any]) -> None:
    nested = block.get("quantization")
    fields = cast("dict[str, Any]", nested) if isinstance(nested, dict) else block
    algorithm = fields.get("quant_algo")
    if algorithm not in (None, "NVFP4"):
        raise CheckpointError(
            f"config.json: the ModelOpt algorithm {algorithm!r} is not supported; NVFP4 is.", _MODELOPT_CURE
        )
    group = fields.get("group_size", 16)
    if group != 16:
        raise CheckpointError(f"config.json: NVFP4 with group_size {group!r}; it must be 16.", _MODELOPT_CURE)


def infer(columns: int, words: int, groups: int, scales_dtype: str) -> Quantization | None:
    """The packing that turns `columns` weights of a row into `words` u32 with `groups` scales, or None.

    Shapes settle it: bits = 32 * words / columns, group = columns / groups; one-byte scales mean a float format.
    """
    if words <= 0 or groups <= 0 or columns % groups or words * 32 % columns:
        return None
    bits, group = words * 32 // columns, columns // groups
    if scales_dtype in ("U8", "F8_E4M3", "F8_E8M0"):
        return next((q for q in FLOAT_MODES.values() if (q.bits, q.group_size) == (bits, group)), None)
    if scales_dtype not in ("F32", "BF16", "F16") or bits not in AFFINE_BITS or group not in AFFINE_GROUPS:
        return None
    return Quantization(group, bits, "affine")


def matrices(count: int) -> str:
    """A number of matrices in words, for reports."""
    return counted(count, "matrix", "matrices")


def describe(quantization: Quantization | None) -> str:
    """A packing in words, for reports."""
    if quantization is None:
        return "unquantized"
    return f"{quantization.mode} {quantization.bits}-bit, groups of {quantization.group_size}"

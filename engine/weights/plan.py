"""Matching the tensors of a checkpoint to the parameters of a model, from headers alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import CheckpointError
from engine.model.linear import Quantization
from engine.weights.header import FLOATS, TensorInfo
from engine.weights.packing import Declared, describe, infer
from engine.weights.rename import (
    CALIBRATION,
    Join,
    Scope,
    Source,
    identify,
    layout_of,
    mlx_name,
    published_name,
    scope_of,
)
from engine.weights.targets import Target
from engine.wording import counted

_SHOWN = 12
_NVFP4 = Quantization(16, 4, "nvfp4")


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the checkpoint: the tensors to read together, and the parameters that they give."""

    name: str
    targets: tuple[Target, ...]
    join: Join
    tensors: Mapping[str, TensorInfo]
    """By leaf, see `rename.Source`."""
    quantization: Quantization | None

    @property
    def nbytes(self) -> int:
        return sum(info.nbytes for info in self.tensors.values())

    @property
    def modelopt(self) -> bool:
        """Whether the codes are ModelOpt's, with a second scale per expert or per tensor."""
        return "scale" in self.tensors


@dataclass(slots=True)
class Problems:
    """What keeps a checkpoint from being loaded, by tensor name."""

    missing: list[str] = field(default_factory=list[str])
    unexpected: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    """Sentences about shapes and dtypes, each beginning with the tensor's name."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.wrong)

    def sentences(self) -> tuple[str, ...]:
        """One sentence per problem."""
        return (
            *(f"{name} is missing." for name in self.missing),
            *(f"{name} is unexpected." for name in self.unexpected),
            *(f"{what}." for what in self.wrong),
        )

    def error(self, directory: Path) -> CheckpointError:
        parts = [
            f"{counted(len(items), one, many)}: {_some(items)}"
            for one, many, items in (
                ("tensor is missing", "tensors are missing", self.missing),
                ("tensor is unexpected", "tensors are unexpected", self.unexpected),
                ("tensor does not fit config.json", "tensors do not fit config.json", self.wrong),
            )
            if items
        ]
        return CheckpointError(
            f"{directory} does not hold the model that its config.json describes; {'; '.join(parts)}.",
            "Download the checkpoint again, with the config.json of the same revision.",
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read for a set of parameters, and what was passed over."""

    modules: tuple[Module, ...]
    """In the order of their place on disk."""
    skipped: Mapping[str, tuple[TensorInfo, ...]]
    """vision, audio, calibration -> tensors that are not needed."""
    problems: Problems
    notes: tuple[str, ...]


def make_plan(
    targets: Mapping[str, Target], tensors: Mapping[str, TensorInfo], declared: Declared, scope: Scope
) -> Plan:
    """Assign tensors to the `targets` of one `scope`; tensors of the other scope are passed over silently."""
    problems = Problems()
    skipped: dict[str, list[TensorInfo]] = defaultdict(list)
    found: dict[str, tuple[Source, tuple[Target, ...], dict[str, TensorInfo]]] = {}
    for info in tensors.values():
        source = identify(info.name)
        if source is None:
            if scope_of(info.name) is scope:
                problems.unexpected.append(info.name)
        elif source.scope in (Scope.VISION, Scope.AUDIO):
            skipped[source.scope.value].append(info)
        elif source.scope is scope:
            wanted = tuple(targets[name] for name in source.targets if name in targets)
            if len(wanted) != (1 if source.either else len(source.targets)):
                problems.unexpected.append(info.name)
            elif source.leaf in CALIBRATION:
                skipped["calibration"].append(info)
            else:
                found.setdefault(source.module, (source, wanted, {}))[2][source.leaf] = info

    owners: dict[str, str] = {}
    modules: list[Module] = []
    notes: list[str] = []
    for name, (source, wanted, leaves) in found.items():
        for target in wanted:
            if target.name in owners:
                problems.unexpected.append(f"{name} (the same as {owners[target.name]})")
            owners[target.name] = name
        module = _check_module(name, source, wanted, leaves, problems)
        if module is not None:
            modules.append(module)
            notes.extend(_compare(module, declared, problems))
    spell = mlx_name if layout_of(tensors) == "mlx-vlm" else published_name
    absent = (spell(target.name) for target in targets.values() if target.name not in owners and not target.optional)
    problems.missing.extend(dict.fromkeys(absent))
    modules.sort(key=lambda m: min((info.file.name, info.offset) for info in m.tensors.values()))
    return Plan(tuple(modules), {key: tuple(infos) for key, infos in skipped.items()}, problems, tuple(notes))


def _check_module(
    name: str, source: Source, wanted: tuple[Target, ...], leaves: dict[str, TensorInfo], problems: Problems
) -> Module | None:
    """The module with its packing, or None after naming what is wrong with it."""
    weight = leaves.get("weight")
    if weight is None:
        problems.missing.append(f"{name}.weight")
        return None
    shapes = _joint_shapes(wanted, source.join)
    scales = leaves.get("scales", leaves.get("scale"))
    if scales is None:
        if weight.shape not in shapes:
            problems.wrong.append(f"{weight.name} has the shape {_show(weight.shape)} instead of {_show(shapes[0])}")
        elif weight.dtype not in FLOATS:
            problems.wrong.append(f"{weight.name} holds {weight.dtype} values and has no scales beside it")
        elif len(leaves) > 1:
            problems.unexpected.extend(info.name for leaf, info in leaves.items() if leaf != "weight")
        else:
            return Module(name, wanted, source.join, leaves, None)
        return None
    quantization = _modelopt(leaves, shapes) if "scale" in leaves else _mlx(leaves, shapes)
    if quantization is None:
        packed = ", ".join(f"{leaf} {info.dtype} {_show(info.shape)}" for leaf, info in leaves.items())
        problems.wrong.append(f"{name} is packed in no known way for a matrix {_show(shapes[0])}: {packed}")
        return None
    return Module(name, wanted, source.join, leaves, quantization)


def _mlx(leaves: Mapping[str, TensorInfo], shapes: tuple[tuple[int, ...], ...]) -> Quantization | None:
    """Codes as u32 words; scales, and biases in the affine mode, one per group."""
    weight, scales, biases = leaves["weight"], leaves["scales"], leaves.get("biases")
    if weight.dtype != "U32" or set(leaves) - {"weight", "scales", "biases"} or not weight.shape or not scales.shape:
        return None
    for shape in shapes:
        if len(shape) < 2 or shape[:-1] != weight.shape[:-1] or shape[:-1] != scales.shape[:-1]:
            continue
        found = infer(shape[-1], weight.shape[-1], scales.shape[-1], scales.dtype)
        if found is None or (found.mode == "affine") != (biases is not None):
            return None
        if biases is not None and (biases.shape != scales.shape or biases.dtype not in FLOATS):
            return None
        return found
    return None


def _modelopt(leaves: Mapping[str, TensorInfo], shapes: tuple[tuple[int, ...], ...]) -> Quantization | None:
    """Two codes a byte, an E4M3 scale per 16 inputs, and a second float32 scale per expert or per tensor."""
    weight, scale, scale2 = leaves["weight"], leaves["scale"], leaves.get("scale2")
    if weight.dtype != "U8" or scale.dtype not in ("F8_E4M3", "U8") or scale2 is None or scale2.dtype != "F32":
        return None
    for shape in shapes:
        if len(shape) < 2 or shape[-1] % _NVFP4.group_size:
            continue
        fits = weight.shape == (*shape[:-1], shape[-1] // 2) and scale.shape == (*shape[:-1], shape[-1] // 16)
        if fits and (scale2.shape in ((), (1,)) or scale2.shape == shape[:1]):
            return _NVFP4
    return None


def _joint_shapes(wanted: tuple[Target, ...], join: Join) -> tuple[tuple[int, ...], ...]:
    """Shapes that a tensor with all the targets may have: rows add up, the rest is common."""
    if join is Join.ONE:
        return wanted[0].stored_shapes()
    return tuple(
        (*shapes[0][:-2], sum(shape[-2] for shape in shapes), shapes[0][-1])
        for shapes in zip(*(target.stored_shapes() for target in wanted), strict=True)
    )


def _compare(module: Module, declared: Declared, problems: Problems) -> list[str]:
    """Hold the packing that the shapes show against the declared one.

    An override that contradicts its own tensors is an error. The global setting often covers only part of a
    checkpoint, so there the tensors decide and the difference is noted.
    """
    name = module.targets[0].name
    if module.modelopt or (module.quantization is None and name not in declared.modules):
        return []
    stated = declared.of(name)
    if stated == module.quantization:
        return []
    what = f"{module.name} is {describe(module.quantization)}, config.json declares {describe(stated)}"
    if name in declared.modules:
        problems.wrong.append(what)
        return []
    return [what]


def _show(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _some(items: list[str]) -> str:
    shown = ", ".join(items[:_SHOWN])
    return shown if len(items) <= _SHOWN else f"{shown} and {len(items) - _SHOWN} more (`inkstand inspect` lists all)"

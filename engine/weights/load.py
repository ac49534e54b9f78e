"""Loading a checkpoint: headers first, then the data, one module at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx

from engine.config import ModelConfig, MTPConfig
from engine.errors import CheckpointError, HeadAloneError, HeadError, UserError
from engine.model.linear import Dense
from engine.model.params import Parameter, arrays_of
from engine.weights.assemble import SecondScales, assemble, is_identity_scale
from engine.weights.files import list_files, read_headers
from engine.weights.head import HeadFound, HeadMissing, check_head_matches, find_head, head_config
from engine.weights.keep import keeps_packed
from engine.weights.packing import describe, matrices, read_declared
from engine.weights.plan import Plan, make_plan
from engine.weights.read import LoadProgress, Progress, read_modules
from engine.weights.recipe import Recipe, quantize, quantize_rest_recipe
from engine.weights.rename import Scope, scope_of
from engine.weights.targets import backbone_targets, head_targets

__all__ = [
    "DTYPES",
    "HeadWeights",
    "LoadProgress",
    "LoadReport",
    "LoadedWeights",
    "activation_dtype",
    "load_head",
    "load_model",
    "plan_backbone",
    "plan_head",
]

DTYPES = ("auto", "f32", "bf16")


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What was read, and what was not."""

    files: tuple[str, ...]
    tensors: int
    nbytes: int
    """Bytes read from the files."""
    skipped: Mapping[str, tuple[str, ...]]
    """vision, audio, calibration -> tensors that a text model has no use for."""
    packing: Mapping[str, int]
    """How the matrices are stored -> how many."""
    expanded: bool
    """Whether packed matrices were expanded to the activation dtype."""
    notes: tuple[str, ...]
    quantized: Mapping[str, int] = field(default_factory=dict[str, int])
    """How matrices were packed while loading -> how many."""


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """A backbone: its config and its parameters (see `engine.model.params`)."""

    config: ModelConfig
    params: dict[str, Parameter]
    report: LoadReport


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """An MTP head: its geometry and its parameters, all of them under `mtp.`."""

    config: MTPConfig
    params: dict[str, Parameter]
    report: LoadReport


def activation_dtype(name: str = "auto") -> mx.Dtype:
    """The dtype of the activations; auto is float32 on the CPU and bfloat16 on a GPU. Raises `UserError`."""
    if name == "auto":
        return mx.bfloat16 if mx.default_device() == mx.gpu else mx.float32
    if name == "f32":
        return mx.float32
    if name == "bf16":
        return mx.bfloat16
    why = " (Inkling's residual stream overflows float16)" if name in ("f16", "float16", "half") else ""
    raise UserError(f"The dtype {name!r} cannot be used{why}.", f"Choose one of {', '.join(DTYPES)}.")


def load_model(
    directory: Path | str,
    *,
    dtype: str = "auto",
    keep_quantized: bool | None = None,
    quantize_rest: int | None = None,
    progress: Progress | None = None,
) -> LoadedWeights:
    """Load the backbone of a checkpoint directory.

    Args:
        directory: holds config.json and safetensors files in any layout that `engine.weights.rename` knows.
        dtype: auto, f32 or bf16.
        keep_quantized: keep packed matrices packed; None as `engine.weights.keep` says.
        quantize_rest: 8 or 4 bits for the matrices that would be held unquantized, see
            `engine.weights.recipe.quantize_rest_recipe`; the embedding stays exact. None leaves them as they are.
        progress: called after every module.

    Raises:
        ConfigError: config.json is missing or wrong.
        CheckpointError: files or tensors are missing, unexpected, damaged, wrongly shaped, or not finite.
        UserError: an unusable dtype or number of bits.
    """
    directory = Path(directory)
    activation, rest = activation_dtype(dtype), quantize_rest_recipe(quantize_rest)
    config = ModelConfig.from_directory(directory)
    plan = plan_backbone(directory, config)
    if plan.problems:
        raise plan.problems.error(directory)
    params, report = _materialise(plan, activation, keep_quantized, rest, progress)
    return LoadedWeights(config, params, report)


def plan_backbone(directory: Path, config: ModelConfig) -> Plan:
    """What `load_model` would read, from headers alone.

    Raises:
        HeadAloneError: the directory holds an MTP head and nothing of a model.
        CheckpointError: the files cannot be used.
    """
    listing = list_files(directory)
    # Shards with nothing but the MTP head or a tower are left alone, and need not be there.
    names = listing.loose if listing.index is None else listing.indexed_files(lambda n: scope_of(n) is Scope.BACKBONE)
    tensors = read_headers(listing, names)
    if not any(scope_of(name) is Scope.BACKBONE for name in tensors) and isinstance(find_head(directory), HeadFound):
        raise HeadAloneError(
            f"{directory} holds an MTP head and no model.", f"Use it with its model: -m MODEL --draft-model {directory}"
        )
    if not names:
        raise CheckpointError(
            f"{directory} holds no weights: there is no safetensors file with the tensors of a model.",
            "Download the checkpoint's safetensors files into this directory.",
        )
    targets = backbone_targets(config.text)
    return make_plan(targets, tensors, read_declared(config.quantization), Scope.BACKBONE)


def load_head(
    directory: Path | str,
    *,
    target: ModelConfig,
    dtype: str = "auto",
    keep_quantized: bool | None = None,
    quantize_rest: int | None = None,
    progress: Progress | None = None,
) -> HeadWeights:
    """Load the MTP head that a directory holds, for the model that `target` describes.

    The directory may be a whole checkpoint or hold just config.json and the head; only files with tensors of the head
    are read. Arguments are those of `load_model`.

    Raises:
        HeadError: there is no head, it is incomplete, or it belongs to another model.
        ConfigError, CheckpointError, UserError: as `load_model`.
    """
    directory = Path(directory)
    activation, rest = activation_dtype(dtype), quantize_rest_recipe(quantize_rest)
    found = find_head(directory)
    if isinstance(found, HeadMissing):
        raise HeadError(found.reason, "Add the original checkpoint's mtp.safetensors, or name a directory that has it.")
    own = ModelConfig.from_directory(directory)
    check_head_matches(target, own, found, str(directory))
    mtp, plan = plan_head(own, found)
    if plan.problems:
        error = plan.problems.error(directory)
        raise HeadError(error.title, error.hint)
    params, report = _materialise(plan, activation, keep_quantized, rest, progress)
    return HeadWeights(mtp, params, report)


def plan_head(own: ModelConfig, found: HeadFound) -> tuple[MTPConfig, Plan]:
    """The geometry of a head with config `own`, and what `load_head` would read. Raises `HeadError`."""
    mtp = head_config(own, found)
    return mtp, make_plan(head_targets(own.text, mtp), found.tensors, read_declared(own.quantization), Scope.MTP)


def _materialise(
    plan: Plan, dtype: mx.Dtype, keep_quantized: bool | None, rest: Recipe | None, progress: Progress | None
) -> tuple[dict[str, Parameter], LoadReport]:
    """Read, check and convert module after module, so that never more than one of them exists twice."""
    targets = [target for module in plan.modules for target in module.targets]
    keep = keeps_packed(keep_quantized, targets, dtype)
    params: dict[str, Parameter] = {}
    second = SecondScales()
    quantized, left = Counter[str](), list[str]()
    for module, arrays in read_modules(plan.modules, progress):
        made = assemble(module, arrays, dtype, keep, second)
        if rest is not None:
            made = {name: _packed(name, value, rest, quantized, left) for name, value in made.items()}
        mx.eval([part for value in made.values() for part in arrays_of(value)])
        params.update(made)
    params.update(second.parameters())
    params = {name: value for name, value in params.items() if not is_identity_scale(name, value)}
    packing = Counter(
        describe(module.quantization) for module in plan.modules for target in module.targets if target.kind == "matrix"
    )
    tensors = [info for module in plan.modules for info in module.tensors.values()]
    report = LoadReport(
        files=tuple(dict.fromkeys(info.file.name for info in tensors)),
        tensors=len(tensors),
        nbytes=sum(info.nbytes for info in tensors),
        skipped={key: tuple(info.name for info in infos) for key, infos in plan.skipped.items()},
        packing=packing,
        expanded=not keep and any(module.quantization for module in plan.modules),
        notes=(*plan.notes, *_rest_notes(quantized, left)),
        quantized=quantized,
    )
    return params, report


def _packed(name: str, value: Parameter, rest: Recipe, quantized: Counter[str], left: list[str]) -> Parameter:
    """An unquantized matrix as `rest` wants it; counts what was packed, and names what no group size divides."""
    if not isinstance(value, Dense) or not rest.wants(name):
        return value
    packing = rest.of(name, value.shape[-1])
    if packing is None:
        left.append(name)
        return value
    quantized[describe(packing)] += 1
    return quantize(value.weight, packing)


def _rest_notes(quantized: Mapping[str, int], left: Sequence[str]) -> list[str]:
    notes = [f"{matrices(count)} quantized while loading: {how}." for how, count in quantized.items()]
    if left:
        notes.append(f"{matrices(len(left))} left unquantized, as no group size divides the rows: {', '.join(left)}.")
    return notes

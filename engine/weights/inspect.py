"""What a checkpoint directory holds, from its small files and safetensors headers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from engine.config import ModelConfig, family_of
from engine.errors import CheckpointError, ConfigError, HeadAloneError, HeadError, UserError
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.weights.head import HeadFound, HeadMissing, find_head
from engine.weights.load import plan_backbone, plan_head
from engine.weights.packing import describe
from engine.weights.plan import Module
from engine.weights.recipe import ModuleClass, module_class
from engine.weights.rename import Layout, layout_of


@dataclass(frozen=True, slots=True)
class Inspection:
    """The findings; `problems` is empty when the engine can load the directory."""

    directory: Path
    family: str | None
    """`model_type` of config.json, whether it is supported or not; None without a readable one."""
    config: ModelConfig | None
    """None when config.json is unusable."""
    layout: Layout = "unknown"
    packing: Mapping[str, int] = field(default_factory=dict[str, int])
    """How the matrices of backbone and head are stored -> how many."""
    sizes: Mapping[ModuleClass, int] = field(default_factory=dict[ModuleClass, int])
    """Bytes on disk by module class; mtp is all of the head, other the small tensors of the backbone."""
    backbone_parameters: int = 0
    head_parameters: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    """vision, audio, calibration -> bytes on disk of tensors that a text model has no use for."""
    head: HeadFound | HeadMissing = field(default_factory=lambda: HeadMissing("Not looked for."))
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Of backbone and head."""
        return sum(self.sizes.values())

    @property
    def parameters(self) -> int:
        """Of backbone and head."""
        return self.backbone_parameters + self.head_parameters


def inspect(directory: Path | str) -> Inspection:
    """Look at a checkpoint without reading its data.

    Raises:
        ConfigError: there is no such directory, or no config.json in it. Everything else becomes a problem.
    """
    directory = Path(directory)
    family = family_of(directory)
    head = find_head(directory)
    try:
        config = ModelConfig.from_directory(directory)
    except ConfigError as error:
        return Inspection(directory, family, None, head=head, problems=(f"{error.title} {error.hint}",))

    problems: list[str] = []
    modules: list[Module] = []
    of_head: list[Module] = []
    layout: Layout = "unknown"
    skipped: dict[str, int] = {}
    notes: list[str] = []
    try:
        backbone = plan_backbone(directory, config)
    except HeadAloneError as error:
        notes.append(f"{error.title} {error.hint}")
    except CheckpointError as error:
        problems.append(f"{error.title} {error.hint}")
    else:
        modules.extend(backbone.modules)
        layout = layout_of([info.name for module in backbone.modules for info in module.tensors.values()])
        skipped = {kind: sum(info.nbytes for info in infos) for kind, infos in backbone.skipped.items()}
        notes.extend(backbone.notes)
        problems.extend(backbone.problems.sentences())
    if isinstance(head, HeadFound):
        try:
            plan = plan_head(config, head)[1]
        except (CheckpointError, HeadError) as error:
            problems.append(f"MTP head: {error.title} {error.hint}")
        else:
            of_head.extend(plan.modules)
            problems.extend(f"MTP head: {sentence}" for sentence in plan.problems.sentences())
    if modules or not isinstance(head, HeadFound):
        # A folder with nothing but a head is used with the text files of its model.
        _check_text(directory, config, problems, notes)
    return Inspection(
        directory=directory,
        family=family,
        config=config,
        layout=layout,
        packing=_packing([*modules, *of_head]),
        sizes=_sizes(modules, of_head),
        backbone_parameters=_parameters(modules),
        head_parameters=_parameters(of_head),
        skipped=skipped,
        head=head,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _check_text(directory: Path, config: ModelConfig, problems: list[str], notes: list[str]) -> None:
    """Add what is wrong with the tokenizer and the chat template."""
    try:
        Tokenizer.from_directory(directory, config.eos_token_ids)
    except UserError as error:
        problems.append(str(error))
    try:
        template = ChatTemplate.from_directory(directory)
    except UserError as error:
        problems.append(str(error))
    else:
        if template is None:
            notes.append("There is no chat template: the model completes raw text, and cannot chat.")


def _packing(modules: list[Module]) -> Counter[str]:
    return Counter(
        describe(module.quantization) for module in modules for target in module.targets if target.kind == "matrix"
    )


def _parameters(modules: list[Module]) -> int:
    return sum(prod(target.shape) for module in modules for target in module.targets)


def _sizes(backbone: list[Module], head: list[Module]) -> Counter[ModuleClass]:
    sizes = Counter[ModuleClass]()
    for module in backbone:
        sizes[module_class(module.targets[0].name)] += module.nbytes
    if head:
        sizes["mtp"] = sum(module.nbytes for module in head)
    return sizes

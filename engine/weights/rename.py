"""Which parameter a tensor of a checkpoint is: one table for the backbone and the MTP blocks.

Names are read in the published spelling (`model.llm.*`, fused w13), in transformers' (`model.language_model.*`,
`model.*`), and in those of MLX conversions (`language_model.model.*`, or published names with split experts). The MTP
head keeps its published prefix in all of them; mlx-vlm's drafter folders, which hold nothing else, call its layers
`blocks.*`. Canonical names are those of `engine.model.params`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Literal

Layout = Literal[
    "published", "published names, split experts", "transformers", "transformers, text only", "mlx-vlm", "unknown"
]


class Scope(Enum):
    """The part of a checkpoint that a tensor belongs to."""

    BACKBONE = "backbone"
    MTP = "mtp"
    VISION = "vision"
    AUDIO = "audio"


class Join(Enum):
    """How the rows of several parameters lie in one tensor."""

    ONE = "one"
    INTERLEAVED = "interleaved"
    """Rows 0, 2, .. are the first parameter, rows 1, 3, .. the second."""
    STACKED = "stacked"
    """All rows of the first parameter, then all of the second, ..."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The tensors called so hold the parameters `targets`, in this order.

    published, mlx: the name in the published layout and in mlx-vlm's, where there is one.
    also: further names, those of transformers among them.
    either: the targets are alternatives, of which a block has one.
    """

    targets: tuple[str, ...]
    published: str | None = None
    mlx: str | None = None
    also: tuple[str, ...] = ()
    join: Join = Join.ONE
    either: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.published, self.mlx, *self.also) if name is not None)


@dataclass(frozen=True, slots=True)
class Source:
    """A module of the checkpoint: what its tensors (`leaf` says which of them) hold."""

    scope: Scope
    module: str
    """The name without the leaf, as the checkpoint spells it."""
    leaf: str
    """weight, scales or biases (MLX); scale or scale2 (ModelOpt, with the codes as weight); or a calibration value."""
    targets: tuple[str, ...] = ()
    join: Join = Join.ONE
    either: bool = False


CALIBRATION = frozenset({"input_amax", "original_shape"})
"""Leaves that ModelOpt leaves behind and that weight-only inference has no use for."""
_LEAVES = frozenset({"weight", "scales", "biases", "scale", "scale2"}) | CALIBRATION

_GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
_EXPERT_GATE_UP = ("mlp.experts.gate_proj", "mlp.experts.up_proj")
_SHARED_GATE_UP = ("mlp.shared.gate_proj", "mlp.shared.up_proj")

BLOCK_RULES = (
    Rule(("attn_norm",), "attn_norm.weight", "input_layernorm.weight"),
    Rule(("mlp_norm",), "mlp_norm.weight", "post_attention_layernorm.weight"),
    Rule(("attn_conv",), "attn_sconv.weight", "attn_sconv.conv.weight", ("attn_sconv.conv1d.weight",)),
    Rule(("mlp_conv",), "mlp_sconv.weight", "mlp_sconv.conv.weight", ("mlp_sconv.conv1d.weight",)),
    Rule(("attn.q_proj",), "attn.wq_du.weight", "self_attn.q_proj.weight"),
    Rule(("attn.k_proj",), "attn.wk_dv.weight", "self_attn.k_proj.weight"),
    Rule(("attn.v_proj",), "attn.wv_dv.weight", "self_attn.v_proj.weight"),
    Rule(("attn.r_proj",), "attn.wr_du.weight", "self_attn.r_proj.weight"),
    Rule(("attn.o_proj",), "attn.wo_ud.weight", "self_attn.o_proj.weight"),
    Rule(
        ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.r_proj"),
        also=("self_attn.qkvr_proj.weight",),
        join=Join.STACKED,
    ),
    Rule(("attn.q_norm",), "attn.q_norm.weight", "self_attn.q_norm.weight"),
    Rule(("attn.k_norm",), "attn.k_norm.weight", "self_attn.k_norm.weight"),
    Rule(
        ("attn.k_conv",), "attn.k_sconv.weight", "self_attn.k_sconv.conv.weight", ("self_attn.k_sconv.conv1d.weight",)
    ),
    Rule(
        ("attn.v_conv",), "attn.v_sconv.weight", "self_attn.v_sconv.conv.weight", ("self_attn.v_sconv.conv1d.weight",)
    ),
    Rule(("attn.rel_bias",), "attn.rel_logits_proj.proj", "self_attn.rel_proj", ("self_attn.rel_logits_proj.proj",)),
    # Dense MLP.
    Rule(_GATE_UP, "mlp.w13_dn.weight", join=Join.INTERLEAVED),
    Rule(("mlp.gate_proj",), mlx="mlp.gate_proj.weight"),
    Rule(("mlp.up_proj",), mlx="mlp.up_proj.weight"),
    Rule(("mlp.down_proj",), "mlp.w2_md.weight", "mlp.down_proj.weight"),
    # Mixture of experts.
    Rule(("mlp.router",), "mlp.gate.weight", "mlp.gate_weight"),
    Rule(("mlp.router_bias",), "mlp.gate.bias", "mlp.e_score_correction_bias", ("mlp.gate.e_score_correction_bias",)),
    Rule(("mlp.router_scale",), "mlp.gate.global_scale"),
    Rule(_EXPERT_GATE_UP, "mlp.experts.w13_weight", join=Join.INTERLEAVED),
    Rule(_EXPERT_GATE_UP, also=("mlp.experts.gate_up_proj",), join=Join.STACKED),
    Rule(("mlp.experts.gate_proj",), mlx="mlp.switch_mlp.gate_proj.weight", also=("mlp.experts.gate_proj.weight",)),
    Rule(("mlp.experts.up_proj",), mlx="mlp.switch_mlp.up_proj.weight", also=("mlp.experts.up_proj.weight",)),
    Rule(
        ("mlp.experts.down_proj",),
        "mlp.experts.w2_weight",
        "mlp.switch_mlp.down_proj.weight",
        ("mlp.experts.down_proj.weight",),
    ),
    Rule(("mlp.experts.gate_scale",), mlx="mlp.switch_mlp.gate_scale", also=("mlp.experts.gate_scale",)),
    Rule(("mlp.experts.out_scale",), mlx="mlp.switch_mlp.out_scale", also=("mlp.experts.out_scale",)),
    Rule(_SHARED_GATE_UP, "mlp.shared_experts.shared_w13_weight", join=Join.INTERLEAVED),
    Rule(("mlp.shared.gate_proj",), mlx="mlp.shared_experts.gate_proj.weight"),
    Rule(("mlp.shared.up_proj",), mlx="mlp.shared_experts.up_proj.weight"),
    Rule(("mlp.shared.down_proj",), "mlp.shared_experts.shared_w2_weight", "mlp.shared_experts.down_proj.weight"),
    # mlx-vlm calls the scale of the dense MLP and that of the router alike.
    Rule(("mlp.global_scale", "mlp.router_scale"), "mlp.global_scale", "mlp.global_scale", either=True),
)
STEM_RULES = (
    Rule(("embed",), "embed.weight", "embed_tokens.weight"),
    Rule(("embed_norm",), "embed_norm.weight", "embed_norm.weight", ("embed_tokens.embed_norm.weight",)),
    Rule(("norm",), "norm.weight", "norm.weight"),
    Rule(("lm_head",), "unembed.weight", "lm_head.weight"),
)
MTP_STEM_RULES = (Rule(("chain_norm",), "chain_norm.weight", "chain_norm.weight"),)
MTP_LAYER_RULES = (
    Rule(("embed_norm",), "embed_norm.weight", "embed_norm.weight"),
    Rule(("hidden_norm",), "hidden_norm.weight", "hidden_norm.weight"),
    Rule(("input_proj",), "input_proj.weight", "input_proj.weight"),
)
_MTP_BLOCK = "transformer_block."

_ROOTS = (
    ("model.mtp.", Scope.MTP),
    ("language_model.mtp.", Scope.MTP),
    ("mtp.", Scope.MTP),
    ("model.visual.", Scope.VISION),
    ("model.vision_tower.", Scope.VISION),
    ("vision_tower.", Scope.VISION),
    ("model.audio.", Scope.AUDIO),
    ("model.audio_tower.", Scope.AUDIO),
    ("audio_tower.", Scope.AUDIO),
    ("model.llm.", Scope.BACKBONE),
    ("model.language_model.", Scope.BACKBONE),
    ("language_model.model.", Scope.BACKBONE),
    ("language_model.", Scope.BACKBONE),
    ("model.", Scope.BACKBONE),
    ("", Scope.BACKBONE),
)
"""Prefixes, tried in this order. The bare ones serve `lm_head` and the text-only spelling."""
_DRAFTER = re.compile(r"blocks\..+|chain_norm\..+")
"""What a drafter folder calls a head's tensors."""
DRAFTER_NORM = "norm.weight"
"""A drafter folder's copy of its model's last norm, which is taken from the model itself."""
_LAYER = re.compile(r"(?:layers|blocks)\.(0|[1-9]\d{0,5})\.(.+)")
_MTP_PARAMETER = re.compile(r"mtp\.(?:(\d+)\.(block\.)?)?(.+)")


def _by_module(rules: tuple[Rule, ...]) -> dict[str, Rule]:
    return {name.removesuffix(".weight"): rule for rule in rules for name in rule.names}


_BLOCK, _STEM = _by_module(BLOCK_RULES), _by_module(STEM_RULES)
_MTP_LAYER, _MTP_STEM = _by_module(MTP_LAYER_RULES), _by_module(MTP_STEM_RULES)


def identify(name: str) -> Source | None:
    """What a tensor called `name` holds, or None when nothing of this family is called so."""
    scope, root, path = _root(name)
    if scope in (Scope.VISION, Scope.AUDIO):
        return Source(scope, name, "weight")
    for module, leaf in ((path, "weight"), path.rpartition(".")[::2]):
        found = _lookup(scope, module) if leaf in _LEAVES else None
        if found is not None:
            prefix, rule = found
            targets = tuple(prefix + target for target in rule.targets)
            return Source(scope, root + module, leaf, targets, rule.join, rule.either)
    return None


def targets_of_module(path: str) -> tuple[str, ...]:
    """The parameters that the module `path` holds, in any spelling; empty when there is none."""
    scope, _, rest = _root(path)
    found = _lookup(scope, rest) if scope in (Scope.BACKBONE, Scope.MTP) else None
    return tuple(found[0] + target for target in found[1].targets) if found else ()


def scope_of(name: str) -> Scope:
    """The part of a checkpoint that a tensor's prefix puts it in (the backbone when no other part claims it)."""
    return _root(name)[0]


def layout_of(names: Collection[str]) -> Layout:
    """The layout that the tensors of a checkpoint are named after."""
    if any(name.startswith("model.llm.") for name in names):
        split = any(".mlp.experts.gate_proj." in name for name in names)
        return "published names, split experts" if split else "published"
    if any(name.startswith("language_model.model.") for name in names):
        return "mlx-vlm"
    if any(name.startswith("model.language_model.") for name in names):
        return "transformers"
    return "transformers, text only" if any(name.startswith("model.layers.") for name in names) else "unknown"


def published_name(target: str) -> str:
    """The tensor that holds a parameter in the published layout (mlx-vlm's name for what that has not)."""
    prefix, rest, rules = _place(target)
    root = "" if prefix.startswith("model.mtp.") else "model.llm."
    return f"{root}{prefix}{_spell(rest, rules, published=True)}"


def mlx_name(target: str) -> str:
    """The tensor that holds a parameter in mlx-vlm's layout, with the MTP head under its published prefix."""
    prefix, rest, rules = _place(target)
    if target == "lm_head":
        return "language_model.lm_head.weight"
    root = "" if prefix.startswith("model.mtp.") else "language_model.model."
    return f"{root}{prefix}{_spell(rest, rules, published=False)}"


def _place(target: str) -> tuple[str, str, tuple[Rule, ...]]:
    """A canonical name as the checkpoint's prefix, the name below it, and the rules that know it."""
    head = _MTP_PARAMETER.fullmatch(target)
    if head is not None:
        if head[1] is None:
            return "model.mtp.", head[3], MTP_STEM_RULES
        prefix = f"model.mtp.layers.{head[1]}."
        return (f"{prefix}{_MTP_BLOCK}", head[3], BLOCK_RULES) if head[2] else (prefix, head[3], MTP_LAYER_RULES)
    layer = _LAYER.fullmatch(target)
    return (f"layers.{layer[1]}.", layer[2], BLOCK_RULES) if layer else ("", target, STEM_RULES)


def _spell(target: str, rules: tuple[Rule, ...], *, published: bool) -> str:
    own = [rule for rule in rules if target in rule.targets]
    names = [rule.published if published else rule.mlx for rule in own] + [rule.mlx for rule in own]
    return next(name for name in names if name is not None)


def _root(name: str) -> tuple[Scope, str, str]:
    if name == DRAFTER_NORM or _DRAFTER.fullmatch(name):
        return Scope.MTP, "", name
    prefix, scope = next((prefix, scope) for prefix, scope in _ROOTS if name.startswith(prefix))
    return scope, prefix, name[len(prefix) :]


def _lookup(scope: Scope, module: str) -> tuple[str, Rule] | None:
    """The rule for a module path below its root, and what its targets are prefixed with."""
    layer = _LAYER.fullmatch(module)
    if scope is Scope.BACKBONE:
        prefix, rule = (f"layers.{layer[1]}.", _BLOCK.get(layer[2])) if layer else ("", _STEM.get(module))
    elif layer is None:
        prefix, rule = "mtp.", _MTP_STEM.get(module)
    elif layer[2].startswith(_MTP_BLOCK):
        prefix, rule = f"mtp.{layer[1]}.block.", _BLOCK.get(layer[2].removeprefix(_MTP_BLOCK))
    else:
        prefix, rule = f"mtp.{layer[1]}.", _MTP_LAYER.get(layer[2])
    return None if rule is None else (prefix, rule)

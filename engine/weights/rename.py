"""Which parameter a tensor of a checkpoint is: one table for the backbone and the MTP blocks.

Names are read in the published spelling (`model.llm.*`, fused w13), in transformers' (`model.language_model.*`,
`model.*`), and in those of MLX conversions (`language_model.model.*`, or published names with split experts). The MTP
head keeps its published names everywhere. Canonical names are those of `engine.model.params`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


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
    """Tensors called `sources` hold the parameters `targets`, in this order.

    With `either`, the targets are alternatives of which a block has one.
    """

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    join: Join = Join.ONE
    either: bool = False


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


CALIBRATION = frozenset({"input_amax", "original_shape", "input_scale"})
"""Leaves that quantizers leave behind and that weight-only inference has no use for."""
_LEAVES = frozenset({"weight", "scales", "biases", "scale", "scale2"}) | CALIBRATION

_BARE = frozenset(
    {
        "attn.rel_logits_proj.proj",
        "mlp.global_scale",
        "mlp.gate.bias",
        "mlp.gate.global_scale",
        "mlp.experts.w13_weight",
        "mlp.experts.w2_weight",
        "mlp.experts.gate_scale",
        "mlp.experts.out_scale",
        "mlp.shared_experts.shared_w13_weight",
        "mlp.shared_experts.shared_w2_weight",
    }
)
"""Published tensors without a leaf."""


def _attn(*names: str) -> tuple[str, ...]:
    return tuple(f"{parent}.{name}" for name in names for parent in ("attn", "self_attn"))


def _conv(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{child}" for name in names for child in ("", ".conv", ".conv1d"))


_GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
_EXPERT_GATE_UP = ("mlp.experts.gate_proj", "mlp.experts.up_proj")
_SHARED_GATE_UP = ("mlp.shared.gate_proj", "mlp.shared.up_proj")

BLOCK_RULES = (
    Rule(("attn_norm",), ("attn_norm", "input_layernorm")),
    Rule(("mlp_norm",), ("mlp_norm", "post_attention_layernorm")),
    Rule(("attn_conv",), _conv("attn_sconv")),
    Rule(("mlp_conv",), _conv("mlp_sconv")),
    Rule(("attn.q_proj",), _attn("wq_du", "q_proj")),
    Rule(("attn.k_proj",), _attn("wk_dv", "k_proj")),
    Rule(("attn.v_proj",), _attn("wv_dv", "v_proj")),
    Rule(("attn.r_proj",), _attn("wr_du", "r_proj")),
    Rule(("attn.o_proj",), _attn("wo_ud", "o_proj")),
    Rule(("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.r_proj"), _attn("qkvr_proj"), Join.STACKED),
    Rule(("attn.q_norm",), _attn("q_norm")),
    Rule(("attn.k_norm",), _attn("k_norm")),
    Rule(("attn.k_conv",), _conv(*_attn("k_sconv"))),
    Rule(("attn.v_conv",), _conv(*_attn("v_sconv"))),
    Rule(("attn.rel_bias",), _attn("rel_logits_proj.proj", "rel_proj")),
    # dense
    Rule(_GATE_UP, ("mlp.w13_dn",), Join.INTERLEAVED),
    Rule(("mlp.gate_proj",), ("mlp.gate_proj",)),
    Rule(("mlp.up_proj",), ("mlp.up_proj",)),
    Rule(("mlp.down_proj",), ("mlp.w2_md", "mlp.down_proj")),
    # mlx-vlm calls the scale of the dense MLP and that of the router alike.
    Rule(("mlp.global_scale", "mlp.router_scale"), ("mlp.global_scale",), either=True),
    # sparse
    Rule(("mlp.router",), ("mlp.gate", "mlp.gate_weight")),
    Rule(("mlp.router_bias",), ("mlp.gate.bias", "mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias")),
    Rule(("mlp.router_scale",), ("mlp.gate.global_scale",)),
    Rule(_EXPERT_GATE_UP, ("mlp.experts.w13_weight",), Join.INTERLEAVED),
    Rule(_EXPERT_GATE_UP, ("mlp.experts.gate_up_proj",), Join.STACKED),
    Rule(("mlp.experts.gate_proj",), ("mlp.experts.gate_proj", "mlp.switch_mlp.gate_proj")),
    Rule(("mlp.experts.up_proj",), ("mlp.experts.up_proj", "mlp.switch_mlp.up_proj")),
    Rule(("mlp.experts.down_proj",), ("mlp.experts.w2_weight", "mlp.experts.down_proj", "mlp.switch_mlp.down_proj")),
    Rule(("mlp.experts.gate_scale",), ("mlp.experts.gate_scale", "mlp.switch_mlp.gate_scale")),
    Rule(("mlp.experts.out_scale",), ("mlp.experts.out_scale", "mlp.switch_mlp.out_scale")),
    Rule(_SHARED_GATE_UP, ("mlp.shared_experts.shared_w13_weight", "mlp.shared_experts.w13_weight"), Join.INTERLEAVED),
    Rule(("mlp.shared.gate_proj",), ("mlp.shared_experts.gate_proj",)),
    Rule(("mlp.shared.up_proj",), ("mlp.shared_experts.up_proj",)),
    Rule(
        ("mlp.shared.down_proj",),
        ("mlp.shared_experts.shared_w2_weight", "mlp.shared_experts.w2_weight", "mlp.shared_experts.down_proj"),
    ),
)
STEM_RULES = (
    Rule(("embed",), ("embed", "embed_tokens")),
    Rule(("embed_norm",), ("embed_norm", "embed_tokens.embed_norm")),
    Rule(("norm",), ("norm",)),
    Rule(("lm_head",), ("unembed", "lm_head")),
)
MTP_STEM_RULES = (Rule(("chain_norm",), ("chain_norm",)),)
MTP_LAYER_RULES = (
    Rule(("embed_norm",), ("embed_norm",)),
    Rule(("hidden_norm",), ("hidden_norm",)),
    Rule(("input_proj",), ("input_proj",)),
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
_LAYER = re.compile(r"layers\.(0|[1-9]\d{0,5})\.(.+)")


def _by_source(rules: tuple[Rule, ...]) -> dict[str, Rule]:
    return {source: rule for rule in rules for source in rule.sources}


_BLOCK, _STEM = _by_source(BLOCK_RULES), _by_source(STEM_RULES)
_MTP_LAYER, _MTP_STEM = _by_source(MTP_LAYER_RULES), _by_source(MTP_STEM_RULES)


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


def published_name(target: str) -> str:
    """The tensor that holds a parameter in the published spelling, for messages."""
    scope, _, rest = target.partition("mtp.")
    if not scope and rest:
        layer = re.fullmatch(r"(\d+)\.(block\.)?(.+)", rest)
        if layer is None:
            return f"model.mtp.{_spell(rest, MTP_STEM_RULES)}"
        inner = f"{_MTP_BLOCK}{_spell(layer[3], BLOCK_RULES)}" if layer[2] else _spell(layer[3], MTP_LAYER_RULES)
        return f"model.mtp.layers.{layer[1]}.{inner}"
    layer = _LAYER.fullmatch(target)
    if layer is None:
        return f"model.llm.{_spell(target, STEM_RULES)}"
    return f"model.llm.layers.{layer[1]}.{_spell(layer[2], BLOCK_RULES)}"


def _spell(target: str, rules: tuple[Rule, ...]) -> str:
    """The published spelling stands first among the sources; what has a parent and no leaf of its own is bare."""
    rule = next(rule for rule in rules if target in rule.targets and rule.join is not Join.STACKED)
    source = rule.sources[0]
    return source if source in _BARE else f"{source}.weight"


def scope_of(name: str) -> Scope:
    """The part of a checkpoint that a tensor's prefix puts it in (the backbone when no other part claims it)."""
    return _root(name)[0]


def _root(name: str) -> tuple[Scope, str, str]:
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

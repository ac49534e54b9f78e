"""The memory plan against a run: a long prefill of a few layers of a geometry, with random weights."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import mlx.core as mx

from engine.bench.random_weights import random_parameters
from engine.config import ModelConfig, TextConfig
from engine.decode.target import PREFILL_CHUNK, Target
from engine.memory import Footprint, footprint_of_config
from engine.model.backbone import Backbone
from engine.weights.load import activation_dtype
from engine.weights.targets import backbone_targets

_VOCABULARY = 1024
_EXPERTS = 8


@dataclass(frozen=True, slots=True)
class LongPrefill:
    """What a prefill of `context` tokens took beside the weights, and what the plan says of these layers."""

    context: int
    layers: int
    experts: int
    seconds: float
    measured: int
    """Bytes: the peak without the weights."""
    planned: int
    """Bytes: caches and working memory of the plan, without the earlier turns that this run does not have."""


def slice_of(text: TextConfig, layers: int) -> TextConfig:
    """A geometry with its first global layers and its first sliding ones, in turn, of every width but two.

    Vocabulary and number of experts are cut down: prefill reads more weights with them and holds nothing else.
    """
    kinds = [[i for i, sliding in enumerate(text.sliding) if sliding is kind] for kind in (False, True)]
    chosen: list[int] = []
    while len(chosen) < min(layers, text.num_layers):
        for kind in kinds:
            if kind and len(chosen) < layers:
                chosen.append(kind.pop(0))
    chosen.sort()
    experts = max(min(text.num_experts, _EXPERTS), text.experts_per_token)
    return dataclasses.replace(
        text,
        sliding=tuple(text.sliding[i] for i in chosen),
        dense=tuple(text.dense[i] for i in chosen),
        vocab_size=min(text.vocab_size, _VOCABULARY),
        unpadded_vocab_size=min(text.unpadded_vocab_size, _VOCABULARY),
        num_experts=experts,
    )


def run_long_prefill(config: ModelConfig, *, context: int, layers: int, dtype: str = "auto") -> LongPrefill:
    """Prefill `context` tokens through `layers` layers of a geometry (global and sliding in turn) and measure.

    Raises:
        UserError: an unusable dtype.
    """
    text = slice_of(config.text, layers)
    config = dataclasses.replace(config, text=text, mtp=None, quantization=None)
    activation = activation_dtype(dtype)
    plan: Footprint = footprint_of_config(config, dtype=dtype)
    params = random_parameters(backbone_targets(text).values(), activation, None, seed=0)
    backbone = Backbone(config, params, activation)
    mx.clear_cache()
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    target = Target(backbone)
    ids = [(7919 * i + 5) % text.unpadded_vocab_size for i in range(context)]
    began = time.perf_counter()
    for _ in target.prefill(ids, PREFILL_CHUNK, lambda _hidden, _ids: None):
        pass
    seconds = time.perf_counter() - began
    return LongPrefill(
        context=context,
        layers=text.num_layers,
        experts=text.num_experts,
        seconds=seconds,
        measured=mx.get_peak_memory() - held,
        planned=plan.cache(context, turns=0) + plan.prefill(context),
    )

"""The backbone against values from Hugging Face transformers, and its parts against plain formulas."""

from __future__ import annotations

import dataclasses
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.model.attention import log_scale
from engine.model.backbone import Backbone
from engine.model.linear import Quantization, stack
from engine.model.mlp import MoE, RoutedExperts
from engine.model.params import matrix
from engine.model.relative_bias import RelativeBias
from engine.weights.load import load_model
from engine.weights.recipe import quantize
from tests.support import DATA, TINY, tiny

GOLDEN = np.load(DATA / "golden_target.npz")
CASES = range(5)


def sequence(case: int) -> list[int]:
    return [*GOLDEN[f"p{case}_ids"].tolist(), *GOLDEN[f"p{case}_greedy40"].tolist()]


def hidden_in_chunks(ids: list[int], chunk: int) -> mx.array:
    backbone = tiny().backbone
    cache = backbone.make_cache()
    parts = [backbone(mx.array([ids[i : i + chunk]]), cache) for i in range(0, len(ids), chunk)]
    return mx.concatenate(parts, axis=1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunk", [1000, 64, 7, 1])
def test_logits_equal_transformers(case: int, chunk: int) -> None:
    hidden = hidden_in_chunks(sequence(case), chunk)
    logits = np.array(tiny().backbone.logits(hidden)[0])
    np.testing.assert_allclose(logits, GOLDEN[f"p{case}_logits"], atol=1e-4, rtol=0)
    reference = GOLDEN[f"p{case}_prenorm_hidden"]
    np.testing.assert_allclose(np.array(hidden[0]), reference, atol=5e-6 * np.abs(reference).max(), rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_greedy_tokens_equal_transformers(case: int) -> None:
    backbone, ids = tiny().backbone, GOLDEN[f"p{case}_ids"].tolist()
    cache = backbone.make_cache()
    logits = backbone.logits(backbone(mx.array([ids]), cache)[:, -1:])
    generated = []
    for _ in range(40):
        generated.append(int(mx.argmax(logits[0, -1]).item()))
        logits = backbone.logits(backbone(mx.array([generated[-1:]]), cache))
    assert generated == GOLDEN[f"p{case}_greedy40"].tolist()


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize(("length", "position", "first", "keys"), [(1, 70, 0, 128), (5, 3, 0, 64), (9, 130, 64, 128)])
def test_relative_bias_is_its_formula(windowed: bool, length: int, position: int, first: int, keys: int) -> None:
    extent, heads = 16, 3
    rng = np.random.default_rng(0)
    r = rng.normal(size=(1, heads, length, 4)).astype(np.float32)
    bank = rng.normal(size=(4, extent)).astype(np.float32)
    mask = np.array(RelativeBias(mx.array(bank), windowed)(mx.array(r), position, first, keys, None))
    assert mask.shape == (1, heads, length, keys)
    for i in range(length):
        for j in range(keys):
            distance = position + i - (first + j)
            if 0 <= distance < extent:
                np.testing.assert_allclose(mask[0, :, i, j], r[0, :, i] @ bank[:, distance], rtol=1e-5, atol=1e-6)
            elif distance < 0 or windowed:
                assert (mask[0, :, i, j] == -np.inf).all()
            else:
                assert (mask[0, :, i, j] == 0).all()


def test_log_scale_is_one_up_to_its_floor_and_grows_with_the_absolute_position() -> None:
    assert log_scale(0, 12, floor=12, alpha=0.1) is None
    scale = np.array(log_scale(10, 100, floor=12, alpha=0.1))[:, 0]
    positions = np.arange(10, 110)
    np.testing.assert_allclose(scale, 1 + 0.1 * np.log(np.maximum((positions + 1) / 12, 1)), rtol=1e-6)
    assert scale[1] == 1.0 < scale[2]


def test_router_bias_chooses_but_does_not_weigh() -> None:
    config, params = tiny().config.text, dict(load_model(TINY).params)
    name = f"layers.{config.dense.index(False)}.mlp"
    params[f"{name}.router_bias"] = mx.array([0, 0, 0, 0, 0, 0, 50, 50], mx.float32)
    moe = MoE(config, params, name)
    x = mx.random.normal((9, config.hidden_size), key=mx.random.key(0))
    ids, weights, gammas = (np.array(a) for a in moe.route(x))
    assert sorted(map(sorted, ids.tolist())) == [[6, 7]] * 9
    logits = np.array(x) @ np.array(params[f"{name}.router"]).T
    z = np.concatenate([np.take_along_axis(logits, ids, 1), logits[:, 8:]], axis=1)
    sigmoid = 1 / (1 + np.exp(-z))
    expected = sigmoid / sigmoid.sum(1, keepdims=True) * config.route_scale
    expected = expected * np.array(params[f"{name}.router_scale"])
    np.testing.assert_allclose(np.concatenate([weights, gammas], axis=1), expected, rtol=2e-5)


def test_experts_grouped_equal_experts_gathered() -> None:
    """Many rows are grouped by expert, few are gathered; both must give the same."""
    config = tiny().config.text
    moe = next(m for m in (layer.plain.mlp for layer in tiny().backbone.layers) if isinstance(m, MoE))
    x = mx.random.normal((1, 50, config.hidden_size), key=mx.random.key(1))
    whole = moe(x)
    rows = mx.concatenate([moe(x[:, i : i + 1]) for i in range(50)], axis=1)
    assert mx.abs(whole - rows).max().item() < 1e-4


def test_packed_values_are_expanded_in_float32_whatever_their_scales_are() -> None:
    weight = mx.random.normal((16, 64), key=mx.random.key(3)).astype(mx.bfloat16)
    packed = quantize(weight, Quantization(32, 8))
    assert packed.biases is not None
    assert packed.scales.dtype == mx.bfloat16
    codes = np.array(packed.weight).view(np.uint8).reshape(16, 2, 32).astype(np.float32)
    scales, biases = (np.array(part.astype(mx.float32))[..., None] for part in (packed.scales, packed.biases))
    expected = (codes * scales + biases).reshape(16, 64)
    np.testing.assert_allclose(np.array(packed.dequantize(mx.float32)), expected, atol=1e-6)
    np.testing.assert_allclose(np.array(packed.take(mx.array([3, 5]), mx.float32)), expected[[3, 5]], atol=1e-6)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("cuda", "rows", "ascending"), [(False, 50, True), (False, 9, False), (True, 50, False)])
def test_a_gpu_is_told_that_experts_are_in_order(
    packed: bool, cuda: bool, rows: int, ascending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metal reads each expert once then; CUDA is not told, since its blocks must equal rows alone."""
    config, params = tiny().config.text, load_model(TINY).params
    name = f"layers.{config.dense.index(False)}.mlp.experts"
    parts = [matrix(params, f"{name}.{part}_proj") for part in ("gate", "up", "down")]
    gate, up, down = (quantize(part.dequantize(mx.float32), Quantization(32, 8)) if packed else part for part in parts)
    experts = RoutedExperts(stack([gate, up]), down)
    x = mx.random.normal((rows, config.hidden_size), key=mx.random.key(1))
    ids = mx.random.randint(0, config.num_experts, (rows, 2), key=mx.random.key(2)).astype(mx.uint32)
    weights = mx.full((rows, 2), 0.5)
    expected = experts(x, ids, weights)

    told: list[bool] = []
    kernel = "gather_qmm" if packed else "gather_mm"
    gather = getattr(mx, kernel)

    def recorded(*args: Any, rhs_indices: mx.array, sorted_indices: bool, **options: Any) -> mx.array:
        told.append(sorted_indices)
        if sorted_indices:
            assert rhs_indices.tolist() == sorted(rhs_indices.tolist())
        return gather(*args, rhs_indices=rhs_indices, **options)

    monkeypatch.setattr(mx, kernel, recorded)
    monkeypatch.setattr(mx, "default_device", lambda: mx.gpu)
    monkeypatch.setattr("engine.model.mlp.on_cuda", lambda: cuda)
    found = experts(x, ids, weights)
    assert told == [ascending] * 2
    assert mx.abs(found - expected).max().item() < 1e-4


def test_bfloat16_follows_float32_on_the_cpu() -> None:
    """The random routers flip an expert now and then, which moves a few rows far; most stay close."""
    loaded = load_model(TINY, dtype="bf16")
    backbone = Backbone(loaded.config, loaded.params, mx.bfloat16)
    distances, agreements = [], []
    for case in CASES:
        ids, cache = sequence(case), backbone.make_cache()
        parts = [backbone(mx.array([ids[:40]]), cache), backbone(mx.array([ids[40:]]), cache)]
        hidden = mx.concatenate(parts, axis=1)
        assert hidden.dtype == mx.bfloat16
        logits, reference = np.array(backbone.logits(hidden)[0]), GOLDEN[f"p{case}_logits"]
        distances.append(np.abs(logits - reference).ravel())
        agreements.append(logits.argmax(1) == reference.argmax(1))
    assert np.median(np.concatenate(distances)) < 0.15
    assert np.concatenate(agreements).mean() > 0.75


def test_conv_states_are_float32_also_in_bfloat16() -> None:
    loaded = load_model(TINY, dtype="bf16")
    backbone = Backbone(loaded.config, loaded.params, mx.bfloat16)
    cache = backbone.make_cache()
    backbone(mx.array([[1, 2, 3]]), cache)
    assert {conv.inputs.dtype for layer in cache.layers for conv in layer.convs} == {mx.float32}


def test_padding_of_the_vocabulary_is_cut_off() -> None:
    backbone = tiny().backbone
    hidden = backbone(mx.array([[1, 2, 3]]), backbone.make_cache())
    assert backbone.logits(hidden).shape == (1, 3, 250)


def test_mup_multiplier_divides_the_hidden_before_the_head() -> None:
    engine = tiny()
    config = dataclasses.replace(
        engine.config,
        text=dataclasses.replace(engine.config.text, mup_multiplier=engine.config.text.mup_multiplier * 2),
    )
    halved = Backbone(config, load_model(TINY).params, mx.float32)
    hidden = engine.backbone(mx.array([[1, 2, 3]]), engine.backbone.make_cache())
    np.testing.assert_allclose(
        np.array(halved.logits(hidden)) * 2, np.array(engine.backbone.logits(hidden)), rtol=1e-5, atol=1e-5
    )

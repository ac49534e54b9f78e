"""A slice of random weights: which layers it has, what its parameters are, what is measured and what is computed."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.bench import slice as slice_module
from engine.bench.cost import Work
from engine.bench.geometry import INKLING_SMALL, TINY, slice_config
from engine.bench.machine import Machine
from engine.bench.random_weights import random_parameters
from engine.bench.roofline import Line
from engine.bench.slice import Rounds, SliceTimes, make_slice, tokens_per_round
from engine.cli.main import main
from engine.config import ModelConfig
from engine.errors import UserError
from engine.model.linear import Dense, Packed
from engine.model.params import Parameter, arrays_of, lay_out
from engine.weights.targets import backbone_targets, head_targets
from tests.support import DATA


def silent(share: float, message: str) -> None:
    """Stands in for a terminal."""


def test_the_geometry_is_that_of_the_published_config() -> None:
    file = DATA / "inkling_small_config.json"
    published = ModelConfig.from_dict(json.loads(file.read_text(encoding="utf-8")))
    ours = ModelConfig.from_dict(INKLING_SMALL)
    assert (ours.text, ours.mtp, ours.eos_token_ids) == (published.text, published.mtp, published.eos_token_ids)


@pytest.mark.parametrize(
    ("layers", "kept"), [(4, [0, 1, 2, 5]), (5, [0, 1, 2, 3, 5]), (6, [*range(6)]), (8, [*range(8)])]
)
def test_a_slice_keeps_the_order_and_has_a_global_layer(layers: int, kept: list[int]) -> None:
    text = slice_config(INKLING_SMALL, layers=layers, depths=3, bits=None).text
    assert text.sliding == tuple(i != 5 for i in kept)
    assert text.dense == tuple(i < 2 for i in kept)


def test_a_slice_has_the_first_blocks_of_the_head() -> None:
    mtp = slice_config(INKLING_SMALL, layers=4, depths=3, bits=None).mtp
    assert mtp is not None
    assert mtp.sliding == (True, False, True)


def test_parameters_are_those_a_checkpoint_would_give() -> None:
    config = slice_config(TINY, layers=4, depths=2, bits=None)
    assert config.mtp is not None
    targets = {**backbone_targets(config.text), **head_targets(config.text, config.mtp)}
    made = random_parameters(targets.values(), mx.bfloat16, None, seed=3)
    expected: dict[str, Parameter] = {}
    for target in targets.values():
        if not target.optional:
            zeros = mx.zeros(target.shape, mx.bfloat16)
            expected[target.name] = Dense(zeros) if target.kind == "matrix" else zeros
    lay_out(expected)
    assert {name: tuple(value.shape) for name, value in made.items()} == {
        name: tuple(value.shape) for name, value in expected.items()
    }
    assert arrays_of(made["layers.2.mlp.router"])[0].dtype == mx.float32
    assert arrays_of(made["layers.2.mlp.experts.gate_up_proj"])[0].dtype == mx.bfloat16
    assert arrays_of(made["mtp.1.block.attn_conv"])[0].dtype == mx.float32


def test_the_seed_decides_the_values() -> None:
    targets = list(backbone_targets(slice_config(TINY, layers=4, depths=1, bits=None).text).values())[:4]
    one, same, other = (random_parameters(targets, mx.float32, None, seed=seed) for seed in (1, 1, 2))
    weights = [arrays_of(params["embed"])[0] for params in (one, same, other)]
    assert mx.array_equal(weights[0], weights[1])
    assert not mx.array_equal(weights[0], weights[2])
    assert not mx.array_equal(weights[0], arrays_of(one["lm_head"])[0])


EXPERTS = "layers.2.mlp.experts.gate_proj"


def expert_matrices(quantization: dict[str, object] | None) -> Parameter:
    config = slice_config(TINY, layers=4, depths=1, bits=None)
    targets = [target for target in backbone_targets(config.text).values() if target.name == EXPERTS]
    return random_parameters(targets, mx.float32, quantization, seed=0)[EXPERTS]


def test_large_matrices_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.bench.random_weights._PART", 3 * 64 * 128)
    made = expert_matrices(None)
    assert isinstance(made, Dense)
    assert made.shape == (16, 64, 128)
    # Drawn with variance 1/128, no expert like another.
    assert float(made.weight.std()) == pytest.approx(128**-0.5, rel=0.05)
    assert not mx.array_equal(made.weight[0], made.weight[3])


@pytest.mark.parametrize(
    "quantization",
    [
        {"bits": 4, "group_size": 64, "mode": "affine"},
        {"bits": 3, "group_size": 32, "mode": "affine"},
        {"bits": 8, "group_size": 128, "mode": "affine"},
        {"mode": "mxfp4"},
        {"mode": "nvfp4"},
    ],
)
def test_packed_matrices_have_the_spread_of_plain_ones(quantization: dict[str, object]) -> None:
    packed = expert_matrices(quantization)
    assert isinstance(packed, Packed)
    assert packed.shape == (16, 64, 128)
    values = packed.dequantize(mx.float32)
    assert float(values.std()) == pytest.approx(128**-0.5, rel=0.05)
    assert abs(float(values.mean())) < 0.002
    assert not mx.array_equal(values[0], values[3])
    assert len(set(values[0, 0].tolist())) > 4


def test_packing_all_matrices_to_four_bits() -> None:
    config = slice_config(TINY, layers=4, depths=2, bits=4)
    made = make_slice(config, mx.bfloat16, context=16, seed=0, progress=silent)
    whole = slice_config(TINY, layers=4, depths=2, bits=None)
    plain = make_slice(whole, mx.bfloat16, context=16, seed=0, progress=silent)
    # 4 bits and, for 64 of them, a scale and a bias of 16 bits each: 4.5 of 16; norms, routers, convolutions stay.
    assert 4.5 / 16 < made.backbone_bytes / plain.backbone_bytes < 0.36
    assert isinstance(made.backbone.lm_head, Packed)
    assert isinstance(made.head.blocks[0].input_proj, Packed)


def test_refuses_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_module, "free_memory", lambda: 10_000_000_000)
    config = slice_config(INKLING_SMALL, layers=6, depths=8, bits=None)
    # 4 layers of 256 experts alone are 51.5 GB.
    with pytest.raises(UserError, match=r"needs about [67]\d\.\d GB of memory; 10\.0 GB are free"):
        make_slice(config, mx.bfloat16, context=512, seed=0, progress=silent)


def test_what_does_not_fit_is_refused_before_the_device_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object, **__: object) -> None:
        pytest.fail("the device was measured first")

    monkeypatch.setattr(slice_module, "free_memory", lambda: 1_000_000)
    monkeypatch.setattr("engine.bench.machine.measure_device", measured)
    assert main(["bench", "slice", "--tiny"]) == 2
    assert "; 1.00 MB are free" in capsys.readouterr().err


def test_tokens_per_round() -> None:
    assert tokens_per_round(1, 0.5) == pytest.approx(1.5)
    assert tokens_per_round(3, 0.5) == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    assert tokens_per_round(8, 0.0) == 1
    assert tokens_per_round(8, 1.0) == 9


def test_computed_speed_follows_from_measured_rounds() -> None:
    rounds = Rounds(2, Line("round of 2", Work(1.0, 1.0), 0.0, 0.5), counted=3, near_ties=1, accepted=0)
    plain = Line("plain", Work(1.0, 1.0), 0.1, 0.25)
    times = SliceTimes(100, Machine(1e9, {}, {1: 1e9}), 0.5, plain, (), (), (), (rounds,), {}, 10, 20)
    assert times.computed_tps(rounds, 0.5) == pytest.approx(1.75 / 0.5)
    report = times.to_json([0.5])
    assert report["prefill_tps"] == 200
    assert report["plain"]["tps"] == 4
    assert report["plain"]["share_of_limit"] == pytest.approx(0.4)
    assert report["rounds"][0]["computed_tps_by_acceptance"] == {"0.5": pytest.approx(3.5)}


@pytest.mark.parametrize("arguments", [["--dtype", "f32"], ["--bits", "4", "--dtype", "bf16"]])
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    file = tmp_path / "slice.json"
    options = ["--tiny", "--layers", "4", "--depths", "2", "--context", "40", "-r", "2", "--json", str(file)]
    assert main(["bench", "slice", *options, *arguments]) == 0
    report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert report["geometry"] == "tiny"
    assert [layer["mlp"] for layer in report["layers"]] == ["dense", "dense", "experts", "experts"]
    assert [forward["rows"] for forward in report["forwards"]] == [1, 2, 3]
    assert [draft["depth"] for draft in report["drafts"]] == [1, 2]
    assert [head["token_ids"] for head in report["lm_heads"]] == [1001, 125]
    assert [found["drafts"] for found in report["rounds"]] == [1, 2]
    # A wider forward reads more experts, a round reads its drafts' blocks besides.
    steps = [forward["bytes"] for forward in report["forwards"]]
    assert steps == sorted(steps)
    assert report["rounds"][1]["bytes"] > steps[2]
    assert report["peak_bytes"] >= report["weight_bytes"]
    written = capsys.readouterr()
    assert "computed, not measured" in written.out
    assert "4 layers (2 dense, 2 with experts; 3 sliding, 1 global), 2 MTP blocks, random weights" in written.err


@pytest.mark.parametrize("wrong", [["--layers", "3"], ["--bits", "5"], ["--context", "0"], ["--depths", "9"]])
def test_refuses_wrong_options(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "slice", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err


def test_the_head_has_the_published_number_of_parameters() -> None:
    config = slice_config(INKLING_SMALL, layers=6, depths=8, bits=None)
    assert config.mtp is not None
    count = sum(prod(target.shape) for target in head_targets(config.text, config.mtp).values())
    assert count == pytest.approx(8 * 278.9e6, rel=1e-3)

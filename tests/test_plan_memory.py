"""The memory plan from a config alone, what quantizing at load changes in it, and the check against a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.bench.long_prefill import LongPrefill, run_long_prefill, slice_of
from engine.cli.main import main
from engine.config import ModelConfig
from engine.errors import UserError
from engine.fields import read_object
from engine.memory import footprint, footprint_of_config
from engine.model.linear import Packed
from engine.model.params import nbytes
from engine.weights.load import load_head, load_model
from engine.weights.recipe import module_class
from tests.support import DATA, TINY

SMALL_FILE = DATA / "inkling_small_config.json"
DEMO = Path(__file__).parents[1] / "resources" / "demo_checkpoint"


def config(file: Path = SMALL_FILE, **changes: object) -> ModelConfig:
    return ModelConfig.from_dict({**read_object(file), **changes})


def test_the_published_geometry_has_the_published_size() -> None:
    """531.9 GB with 4.463 GB of MTP head, less the towers; 28,672 bytes a token in the 7 global layers."""
    seen = footprint_of_config(config(), dtype="bf16")
    assert seen.head == pytest.approx(4.463e9, rel=0.001)
    assert seen.weights + seen.head == pytest.approx(531.9e9, rel=0.001)
    assert footprint_of_config(config(), dtype="bf16", with_head=False).cache_per_token() == 28_672


@pytest.mark.parametrize(
    ("block", "gigabytes"),
    [
        ({"group_size": 64, "bits": 4, "mode": "affine"}, 148.4),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, 140.3),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["model.llm.layers.2.mlp.experts"]},
            166.3,
        ),
    ],
)
def test_packed_geometries_have_the_sizes_of_their_checkpoints(block: dict[str, object], gigabytes: float) -> None:
    seen = footprint_of_config(config(quantization=block), with_head=False, dtype="bf16", keep_quantized=True)
    assert seen.weights / 1e9 == pytest.approx(gigabytes, rel=0.005)
    expanded = footprint_of_config(config(quantization=block), with_head=False, dtype="bf16", keep_quantized=False)
    assert expanded.weights > 3 * seen.weights


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_config_and_checkpoint_agree(dtype: str) -> None:
    for rest in (None, 8):
        planned = footprint_of_config(config(TINY / "config.json"), dtype=dtype, quantize_rest=rest)
        assert planned == footprint(TINY, TINY, dtype=dtype, quantize_rest=rest)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("directory", [TINY, DEMO], ids=["tiny", "demo"])
def test_the_rest_is_packed_and_counted(directory: Path, bits: int, keep: bool) -> None:
    seen = footprint(directory, directory, keep_quantized=keep, quantize_rest=bits)
    model = load_model(directory, keep_quantized=keep, quantize_rest=bits)
    head = load_head(directory, target=model.config, keep_quantized=keep, quantize_rest=bits)
    assert (seen.weights, seen.head) == (nbytes(model.params), nbytes(head.params))
    plain = load_model(directory, keep_quantized=keep)
    for name, value in {**model.params, **head.params}.items():
        wanted = module_class(name) not in ("other", "embed", "experts")
        if wanted and value.shape[-1] % 32 == 0:
            assert isinstance(value, Packed), name
        elif name in plain.params:
            assert type(value) is type(plain.params[name]), name
    assert keep or model.report.quantized


def test_what_cannot_be_grouped_is_left_and_named(tmp_path: Path) -> None:
    """The tiny checkpoint has matrices with 32 or 64 inputs, groups of 32 where 64 do not divide, and some narrower."""
    report = load_model(TINY, quantize_rest=8).report
    assert set(report.quantized) <= {"affine 8-bit, groups of 64", "affine 8-bit, groups of 32"}
    assert any("quantized while loading" in note for note in report.notes)


def test_other_numbers_of_bits_are_refused() -> None:
    with pytest.raises(UserError, match="5 bits"):
        load_model(TINY, quantize_rest=5)


@pytest.mark.slow
def test_a_check_takes_layers_of_both_kinds_and_stays_within_the_plan() -> None:
    text = slice_of(config().text, 4)
    assert text.num_layers == 4
    assert set(text.sliding) == {True, False}
    assert text.hidden_size == 4096
    result = run_long_prefill(config(DEMO / "config.json"), context=1500, layers=2)
    assert (result.layers, result.context) == (2, 1500)
    assert 0 < result.measured <= result.planned < 8 * result.measured


def test_the_command_words_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan-memory", "--config", str(SMALL_FILE), "--dtype", "bf16"]) == 0
    text = capsys.readouterr().out
    for row in ("Context", "Weights", "MTP head", "Cache", "Working memory", "Needed", "Free memory", "Headroom"):
        assert f"\n{row}" in f"\n{text}"
    assert "32768 tokens" in text
    assert "527 GB" in text


def test_json_adds_up_and_holds_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan-memory", str(TINY), "--context", "300", "--check", "--layers", "2", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["needed"] == got["weights"] + got["head"] + got["cache"] + got["working"]
    assert got["check"]["context"] == 300
    assert got["check"]["measured"] > 0


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (150, "More than planned, by 50 %"),
        (100, "Within the plan, 100 % of it."),
        (20, "Within the plan, 20 % of it; it allows for the largest step"),
    ],
)
def test_a_check_ends_in_a_verdict(
    measured: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = LongPrefill(context=300, layers=2, experts=8, seconds=1.0, measured=measured, planned=100)
    monkeypatch.setattr("engine.bench.long_prefill.run_long_prefill", lambda *_, **__: ran)
    assert main(["plan-memory", str(TINY), "--check"]) == 0
    assert said in capsys.readouterr().out
    assert main(["plan-memory", str(TINY), "--check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["check"]["within"] == (measured <= 100)


def test_the_figure_per_token_is_that_of_full_windows(capsys: pytest.CaptureFixture[str]) -> None:
    seen = footprint(DEMO, DEMO)
    filled, step = seen.windows_filled, 256  # caches grow in steps of less
    assert seen.cache(filled + step) - seen.cache(filled) == step * seen.cache_per_token()
    assert seen.cache(filled) - seen.cache(filled - step) > step * seen.cache_per_token()
    assert main(["plan-memory", str(DEMO)]) == 0
    assert f" after {filled} tokens, when windows are full; then 4.10 kB per token\n" in capsys.readouterr().out


def test_what_packing_costs_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["draft-report", "-m", str(TINY), "-p", "hello there", "-n", "24", "--quantize-rest", "8"]
    assert main([*line, "--json"]) == 0
    exact, packed = json.loads(capsys.readouterr().out)["rows"]
    assert (exact["quantize_rest"], packed["quantize_rest"]) == (None, 8)
    assert packed["bytes"] < exact["bytes"]
    # The answers are the model's own; a near-tie may be read the other way in one pass over all of them.
    assert exact["agreement"] > 0.9
    assert 0 < packed["agreement"] <= 1
    assert packed["acceptance_length"] >= 1
    assert main(line) == 0
    assert "same choice" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", "4096"], "2048"),
        (["--config", "nowhere.json"], "nowhere.json"),
        (["--quantize-rest", "5"], "quantize-rest"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan-memory", *arguments]) == 2
    assert message in capsys.readouterr().err

"""Quantized copies of a checkpoint: what they hold, that they load, and that a second pass changes nothing."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import layouts
import mlx.core as mx
import numpy as np
import pytest

from engine.errors import CheckpointError, UserError
from engine.model.linear import Packed, Quantization
from engine.model.params import Params, arrays_of
from engine.weights.convert import convert
from engine.weights.load import load_head, load_model
from engine.weights.read import LoadProgress
from engine.weights.recipe import QUANTIZED_CLASSES, Recipe, module_class, setting

TINY = layouts.TINY
MIX = Recipe(setting(6, 32), {"experts": setting(4, 32), "embed": None, "mtp": setting(8, 32)})
DEMO = Path(__file__).parent.parent / "resources" / "demo_checkpoint"


def both(directory: Path, **options: Any) -> Params:
    model = load_model(directory, **options)
    return {**model.params, **load_head(directory, target=model.config, **options).params}


def stored(directory: Path) -> dict[str, mx.array]:
    return {
        name: value for file in sorted(directory.glob("*.safetensors")) for name, value in mx.load(str(file)).items()
    }


def assert_same_tensors(left: Path, right: Path) -> None:
    a, b = stored(left), stored(right)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert mx.array_equal(a[name], b[name]).item(), name


def test_each_class_gets_its_packing(tmp_path: Path) -> None:
    report = convert(TINY, tmp_path / "copy", MIX)
    params = both(tmp_path / "copy", keep_quantized=True)
    bits = {"experts": 4, "mtp": 8, "attention": 6, "dense": 6, "shared": 6, "lm_head": 6}
    seen = set()
    for name, value in params.items():
        kind = module_class(name)
        seen.add(kind)
        if kind in bits:
            assert isinstance(value, Packed), name
            assert value.quantization == Quantization(32, bits[kind]), name
        else:
            assert not isinstance(value, Packed), name
    assert seen == {*QUANTIZED_CLASSES, "other"}
    assert report.packing["affine 4-bit, groups of 32"] == 15
    assert report.packing["unquantized"] == 1
    assert report.missing_head is None
    assert report.nbytes == sum(file.stat().st_size for file in (tmp_path / "copy").iterdir())


def test_packed_values_are_those_of_mlx(tmp_path: Path) -> None:
    convert(TINY, tmp_path / "copy", MIX)
    original, copy = both(TINY), both(tmp_path / "copy", keep_quantized=False)
    assert original.keys() == copy.keys()
    for name, bits in (("layers.2.attn.o_proj", 6), ("layers.3.mlp.experts.up_proj", 4), ("mtp.1.input_proj", 8)):
        plain = arrays_of(original[name])[0]
        packed = mx.quantize(plain, group_size=32, bits=bits)
        expected = mx.dequantize(*packed, group_size=32, bits=bits)
        assert mx.allclose(arrays_of(copy[name])[0], expected, atol=1e-6).item()
    for name in ("embed", "layers.2.mlp.router", "layers.0.attn.rel_bias", "mtp.0.block.attn.k_conv"):
        assert mx.array_equal(arrays_of(copy[name])[0], arrays_of(original[name])[0]).item()


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(MIX, id="mix"),
        pytest.param(Recipe(None), id="nothing"),
        pytest.param(Recipe(setting(4, mode="mxfp4")), id="mxfp4"),
        pytest.param(Recipe(setting(8, mode="mxfp8")), id="mxfp8"),
        pytest.param(Recipe(setting(4, mode="nvfp4"), {"mtp": None}), id="nvfp4"),
    ],
)
def test_converting_twice_equals_converting_once(recipe: Recipe, tmp_path: Path) -> None:
    convert(TINY, tmp_path / "once", recipe)
    report = convert(tmp_path / "once", tmp_path / "twice", recipe)
    assert report.kept == sum(report.packing.values()) - report.packing["unquantized"]
    names = {file.name for file in (tmp_path / "once").iterdir()}
    assert names == {file.name for file in (tmp_path / "twice").iterdir()}
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_a_second_recipe_packs_only_what_was_plain(tmp_path: Path) -> None:
    convert(TINY, tmp_path / "once", Recipe(None, {"experts": setting(4, 32)}))
    report = convert(tmp_path / "once", tmp_path / "twice", Recipe(setting(8, 32), {"experts": None}))
    assert (report.kept, report.packing["affine 4-bit, groups of 32"]) == (15, 15)
    params = load_model(tmp_path / "twice", keep_quantized=True).params
    kept, fresh = params["layers.1.mlp.experts.gate_proj"], params["layers.1.attn.q_proj"]
    assert isinstance(kept, Packed)
    assert isinstance(fresh, Packed)
    assert (kept.quantization.bits, fresh.quantization.bits) == (4, 8)


def test_what_is_packed_already_is_not_packed_in_another_way(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as error:
        convert(DEMO, tmp_path / "copy", Recipe(setting(3)))
    assert str(DEMO) in error.value.title
    assert "1 matrix affine 8-bit, groups of 64" in error.value.title
    assert "103 matrices affine 6-bit" in error.value.title
    assert "60 matrices affine 5-bit" in error.value.title
    assert "as affine 3-bit, groups of 64" in error.value.title
    assert "original" in error.value.hint
    with pytest.raises(CheckpointError, match="\\(60 matrices affine 5-bit, groups of 64\\)"):
        convert(DEMO, tmp_path / "copy", Recipe(setting(6), {"lm_head": None}))
    assert list(tmp_path.iterdir()) == []


def test_a_lenient_default_leaves_what_is_packed_and_a_class_still_insists(tmp_path: Path) -> None:
    convert(TINY, tmp_path / "once", Recipe(None, {"experts": setting(8, 32)}))
    report = convert(tmp_path / "once", tmp_path / "twice", Recipe(setting(4, 32), strict=False))
    assert report.kept == report.packing["affine 8-bit, groups of 32"] == 15
    assert report.packing["affine 4-bit, groups of 32"] > 0
    with pytest.raises(CheckpointError, match="15 matrices affine 8-bit"):
        convert(
            tmp_path / "once", tmp_path / "other", Recipe(setting(4, 32), {"experts": setting(4, 32)}, strict=False)
        )


def test_a_recipe_that_asks_nothing_of_packed_matrices_copies_them(tmp_path: Path) -> None:
    report = convert(DEMO, tmp_path / "copy", Recipe(None))
    assert report.kept == 164
    assert_same_tensors(DEMO, tmp_path / "copy")


@pytest.mark.parametrize("layout", ["transformers", "mlx-vlm", "split-experts"])
def test_every_layout_converts_to_the_same_copy(layout: str, tmp_path: Path) -> None:
    tensors, config = {
        "transformers": (layouts.to_transformers(layouts.backbone()), layouts.transformers_config()),
        "mlx-vlm": (layouts.to_mlx_vlm(layouts.backbone()), layouts.config()),
        "split-experts": (layouts.to_split_experts(layouts.backbone()), layouts.config()),
    }[layout]
    if layout == "mlx-vlm":  # it leaves scales of ones behind
        experts = [f"language_model.model.layers.{i}.mlp.switch_mlp" for i in range(1, 6)]
        tensors |= {f"{name}.{scale}": mx.ones(8) for name in experts for scale in ("gate_scale", "out_scale")}
    convert(layouts.write(tmp_path / "source", tensors, config, head=layouts.head()), tmp_path / "copy", MIX)
    convert(TINY, tmp_path / "expected", MIX)
    a, b = stored(tmp_path / "copy"), stored(tmp_path / "expected")
    towers = {name for name in b if name.startswith(("model.visual.", "model.audio."))}
    assert towers
    assert a.keys() - towers == b.keys() - towers
    assert all(mx.array_equal(a[name], b[name]).item() for name in b.keys() - towers)


def test_modelopt_codes_and_both_scales_survive(tmp_path: Path) -> None:
    packed, _ = layouts.to_modelopt(layouts.backbone(), lambda name: ".layers.1." in name)
    block = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    config = {**layouts.config(), "quantization_config": block}
    source = layouts.write(tmp_path / "source", packed, config, dtypes=layouts.modelopt_dtype)
    convert(source, tmp_path / "copy", Recipe(setting(8, 32), {"experts": None}))
    expected, copy = load_model(source, keep_quantized=True), load_model(tmp_path / "copy", keep_quantized=True)
    for part in ("gate_proj", "up_proj", "down_proj", "gate_scale", "out_scale"):
        name = f"layers.3.mlp.experts.{part}"
        pairs = zip(arrays_of(copy.params[name]), arrays_of(expected.params[name]), strict=True)
        assert all(mx.array_equal(a, b).item() for a, b in pairs)
    assert "layers.1.mlp.experts.out_scale" not in copy.params
    assert copy.report.packing["nvfp4 4-bit, groups of 16"] == 12


def test_the_config_tells_every_module_that_differs(tmp_path: Path) -> None:
    convert(TINY, tmp_path / "copy", MIX)
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    block = config.pop("quantization")
    assert config.pop("quantization_config") == block
    assert config == layouts.config()
    assert {key: block[key] for key in ("group_size", "bits", "mode")} == {
        "group_size": 32,
        "bits": 6,
        "mode": "affine",
    }
    experts = "language_model.model.layers.2.mlp.switch_mlp.gate_proj"
    assert block[experts] == {"group_size": 32, "bits": 4, "mode": "affine"}
    assert block["model.mtp.layers.0.transformer_block.self_attn.q_proj"]["bits"] == 8
    assert block["language_model.model.embed_tokens"] is False
    assert "language_model.model.layers.2.self_attn.q_proj" not in block


def test_names_are_those_of_mlx_vlm_with_the_head_apart(tmp_path: Path) -> None:
    convert(TINY, tmp_path / "copy", Recipe(None))
    ours = {
        name: value
        for name, value in mx.load(str(tmp_path / "copy" / "model.safetensors")).items()
        if not name.startswith(("model.visual.", "model.audio."))
    }
    theirs = layouts.to_mlx_vlm(layouts.backbone(), fused=False)
    assert ours.keys() == theirs.keys()
    assert all(mx.array_equal(ours[name], theirs[name]).item() for name in ours)
    head = mx.load(str(tmp_path / "copy" / "mtp.safetensors"))
    assert all(name.startswith("model.mtp.layers.") for name in head)


def test_files_are_closed_at_the_given_size_and_indexed(tmp_path: Path) -> None:
    convert(TINY, tmp_path / "copy", Recipe(None), shard_bytes=300_000)
    names = sorted(file.name for file in (tmp_path / "copy").glob("*.safetensors"))
    shards = [name for name in names if name != "mtp.safetensors"]
    assert len(shards) > 3
    assert shards == [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    assert load_head(tmp_path / "copy", target=load_model(TINY).config).report.files == ("mtp.safetensors",)
    index = json.loads((tmp_path / "copy" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(names)
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in stored(tmp_path / "copy").values())
    convert(TINY, tmp_path / "whole", Recipe(None))
    assert_same_tensors(tmp_path / "copy", tmp_path / "whole")


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    tensors = {name: value.astype(mx.bfloat16) for name, value in layouts.backbone().items()}
    report = convert(
        layouts.write(tmp_path / "source", tensors, layouts.config()),
        tmp_path / "copy",
        Recipe(None, {"experts": setting(4, 32)}),
    )
    dtypes = {value.dtype for value in stored(tmp_path / "copy").values()}
    assert dtypes == {mx.bfloat16, mx.uint32}
    assert report.missing_head is not None


def test_groups_shrink_to_what_divides_the_inputs_and_odd_matrices_stay_plain(tmp_path: Path) -> None:
    convert(TINY, tmp_path / "copy", Recipe(setting(4, 64)))
    params = load_model(tmp_path / "copy", keep_quantized=True).params
    groups = {
        name: value.quantization.group_size if isinstance(value, Packed) else None for name, value in params.items()
    }
    # Inputs: 64 for q, 96 for the dense down projection, 32 for an expert's.
    assert groups["layers.0.attn.q_proj"] == 64
    assert groups["layers.0.mlp.down_proj"] == 32
    assert groups["layers.1.mlp.experts.down_proj"] == 32
    assert Recipe(setting(4, 64)).of("layers.0.attn.q_proj", 48) is None
    assert Recipe(setting(4, mode="mxfp4")).of("layers.0.attn.q_proj", 48) is None


def test_side_files_are_taken_over_but_no_code_and_no_other_weights(tmp_path: Path) -> None:
    source = Path(shutil.copytree(TINY, tmp_path / "source"))
    for name in ("chat_template.jinja", "special_tokens_map.json", "modeling.py", "pytorch_model.bin", "run.sh"):
        (source / name).write_text("{}")
    convert(source, tmp_path / "copy", Recipe(None))
    present = {file.name for file in (tmp_path / "copy").iterdir()}
    assert {"chat_template.jinja", "special_tokens_map.json", "tokenizer.json", "generation_config.json"} <= present
    assert not present & {"modeling.py", "pytorch_model.bin", "run.sh"}


def test_progress_covers_backbone_and_head(tmp_path: Path) -> None:
    steps: list[LoadProgress] = []
    convert(TINY, tmp_path / "copy", MIX, progress=steps.append)
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == steps[-1].total
    assert {step.file for step in steps} == {layouts.MAIN, layouts.HEAD}


def test_an_occupied_destination_is_refused_and_an_empty_one_used(tmp_path: Path) -> None:
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "keep.txt").write_text("mine")
    with pytest.raises(UserError, match="not an empty directory"):
        convert(TINY, occupied, MIX)
    assert [file.name for file in occupied.iterdir()] == ["keep.txt"]
    (tmp_path / "empty").mkdir()
    assert convert(TINY, tmp_path / "empty", MIX).nbytes > 0
    with pytest.raises(UserError, match="not an empty directory"):
        convert(tmp_path / "empty", tmp_path / "empty", MIX)


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = layouts.backbone()
    values = np.array(tensors["model.llm.norm.weight"])
    values[3] = np.nan
    tensors["model.llm.norm.weight"] = mx.array(values)
    source = layouts.write(tmp_path / "source", tensors, layouts.config())
    target = tmp_path / "target"
    with pytest.raises(CheckpointError, match=r"model\.llm\.norm\.weight holds NaN"):
        convert(source, target / "copy", MIX)

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("engine.weights.convert.shutil.copyfile", full)
    with pytest.raises(UserError, match="No space left"):
        convert(TINY, target / "copy", MIX)
    assert list(target.iterdir()) == []


def test_a_volume_that_is_too_full_is_said_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("engine.weights.convert.shutil.disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(UserError, match=r"has 1\.00 kB free; the copy needs about [\d.]+ [kM]B, and 67\.1 MB to spare"):
        convert(TINY, tmp_path / "copy", MIX)
    assert list(tmp_path.iterdir()) == []


def test_a_destination_that_cannot_be_written_is_not_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/copy cannot be written: Not a directory") as error:
        convert(TINY, tmp_path / "file" / "copy", MIX)
    assert "space" not in error.value.hint

    def read_only(*args: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("engine.weights.convert.tempfile.mkdtemp", read_only)
    with pytest.raises(UserError, match="new/copy cannot be written: Read-only file system") as error:
        convert(TINY, tmp_path / "new" / "copy", MIX)
    assert "space" not in error.value.hint
    assert not (tmp_path / "new").exists()


def test_an_unusable_source_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    tensors = layouts.backbone()
    del tensors["model.llm.norm.weight"]
    source = layouts.write(tmp_path / "source", tensors, layouts.config())
    with pytest.raises(CheckpointError, match=r"model\.llm\.norm\.weight"):
        convert(source, tmp_path / "target" / "copy", MIX)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(("bits", "group", "mode"), [(7, 64, "affine"), (4, 48, "affine"), (4, 64, "int4")])
def test_impossible_settings_are_refused(bits: int, group: int, mode: str) -> None:
    with pytest.raises(UserError):
        setting(bits, group, mode)


def test_the_bundled_model_is_small_and_packed_as_its_papers_say() -> None:
    assert sum(file.stat().st_size for file in DEMO.iterdir()) <= 46_000_000
    model = load_model(DEMO, keep_quantized=True)
    head = load_head(DEMO, target=model.config, keep_quantized=True)
    bits = {"embed": 6, "lm_head": 8, "attention": 6, "dense": 6, "experts": 5, "shared": 5, "mtp": 6}
    for name, value in {**model.params, **head.params}.items():
        if module_class(name) != "other":
            assert isinstance(value, Packed), name
            assert value.quantization == Quantization(64, bits[module_class(name)]), name

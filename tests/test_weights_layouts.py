"""Every layout of a checkpoint gives the same parameters."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import layouts
import mlx.core as mx
import pytest

from engine.cache import Cache
from engine.errors import CheckpointError
from engine.model.backbone import Backbone
from engine.model.linear import Packed, Quantization
from engine.model.params import Params, arrays_of
from engine.weights.load import load_head, load_model

TINY = layouts.TINY


def assert_same(left: Params, right: Params, tolerance: float = 0.0) -> None:
    assert left.keys() == right.keys()
    for name in left:
        for a, b in zip(arrays_of(left[name]), arrays_of(right[name]), strict=True):
            assert a.shape == b.shape, name
            assert a.dtype == b.dtype, name
            assert mx.max(mx.abs(a - b)).item() <= tolerance, name


def no_head(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "mtp_config"}


@pytest.mark.parametrize(
    ("convert", "config"),
    [
        pytest.param(layouts.to_transformers, layouts.transformers_config(), id="transformers"),
        pytest.param(
            lambda tensors: layouts.to_transformers(tensors, "model."),
            layouts.transformers_config(text_only=True),
            id="transformers-text-only",
        ),
        pytest.param(layouts.to_mlx_vlm, layouts.config(), id="mlx-vlm"),
        pytest.param(lambda t: layouts.to_mlx_vlm(t, fused=False), layouts.config(), id="mlx-vlm-unfused"),
        pytest.param(layouts.to_split_experts, layouts.config(), id="split-experts"),
        pytest.param(layouts.to_mixed, layouts.transformers_config(), id="mixed"),
    ],
)
def test_a_layout_gives_the_parameters_of_the_published_one(
    convert: Callable[[layouts.Tensors], layouts.Tensors], config: dict[str, Any], tmp_path: Path
) -> None:
    expected = load_model(TINY)
    loaded = load_model(layouts.write(tmp_path, convert(layouts.backbone()), config))
    assert_same(loaded.params, expected.params)
    assert loaded.config.text == expected.config.text


def test_towers_are_skipped_and_reported() -> None:
    skipped = load_model(TINY).report.skipped
    assert "model.visual.final_norm.weight" in skipped["vision"]
    assert set(skipped["audio"]) == {"model.audio.encoder.weight", "model.audio.final_norm.weight"}


def test_a_scale_may_be_stored_without_an_axis(tmp_path: Path) -> None:
    tensors = {name: v.reshape(()) if v.shape == (1,) else v for name, v in layouts.backbone().items()}
    assert any(value.ndim == 0 for value in tensors.values())
    assert_same(load_model(layouts.write(tmp_path, tensors, layouts.config())).params, load_model(TINY).params)


def test_identity_scales_of_a_conversion_are_left_out(tmp_path: Path) -> None:
    tensors = layouts.to_mlx_vlm(layouts.backbone())
    for i in range(1, 6):
        for scale in ("gate_scale", "out_scale"):
            tensors[f"language_model.model.layers.{i}.mlp.switch_mlp.{scale}"] = mx.ones(8)
    assert_same(load_model(layouts.write(tmp_path, tensors, layouts.config())).params, load_model(TINY).params)


AFFINE = [{"group_size": 32, "bits": bits} for bits in (2, 3, 4, 5, 6, 8)]
FLOATS = [
    {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    {"group_size": 32, "bits": 8, "mode": "mxfp8"},
    {"group_size": 16, "bits": 4, "mode": "nvfp4"},
]


@pytest.mark.parametrize("setting", [*AFFINE, *FLOATS], ids=lambda s: f"{s.get('mode', 'affine')}-{s['bits']}")
@pytest.mark.parametrize("layout", ["published", "mlx-vlm", "split-experts"])
def test_packed_matrices_expand_to_what_they_stand_for(layout: str, setting: dict[str, Any], tmp_path: Path) -> None:
    convert = {"published": dict, "mlx-vlm": layouts.to_mlx_vlm, "split-experts": layouts.to_split_experts}[layout]
    packed, plain = layouts.pack(layouts.backbone(), lambda name: True, **setting)
    expected = load_model(layouts.write(tmp_path / "plain", plain, layouts.config()))
    config = {**layouts.config(), "quantization": setting}
    directory = layouts.write(tmp_path / "packed", convert(packed), config)
    expanded = load_model(directory, keep_quantized=False)
    assert expanded.report.expanded
    assert_same(expanded.params, expected.params, 1e-6)
    kept = load_model(directory, keep_quantized=True)
    matrices = [value for value in kept.params.values() if not isinstance(value, mx.array)]
    assert matrices
    for value in matrices:
        assert isinstance(value, Packed)
        assert value.quantization == Quantization(setting["group_size"], setting["bits"], setting.get("mode", "affine"))
    assert sum(kept.report.packing.values()) == len(matrices)


def test_router_and_other_arrays_are_expanded_even_when_packing_is_kept(tmp_path: Path) -> None:
    tensors = layouts.backbone()
    name = "model.llm.layers.2.mlp.gate"
    codes, scales, biases = mx.quantize(tensors.pop(f"{name}.weight"), group_size=32, bits=8)
    tensors |= {f"{name}.weight": codes, f"{name}.scales": scales, f"{name}.biases": biases}
    loaded = load_model(layouts.write(tmp_path, tensors, layouts.config()), keep_quantized=True)
    router = loaded.params["layers.2.mlp.router"]
    assert isinstance(router, mx.array)
    assert router.dtype == mx.float32
    assert mx.allclose(router, mx.dequantize(codes, scales, biases, group_size=32, bits=8), atol=1e-6).item()


@pytest.mark.parametrize(
    "spelling",
    [
        "model.llm.layers.{i}.attn.wq_du",
        "language_model.model.layers.{i}.self_attn.q_proj",
        "language_model.model.layers.{i}.self_attn.qkvr_proj",
    ],
)
def test_overrides_apply_in_any_spelling(spelling: str, tmp_path: Path) -> None:
    attention = re.compile(r"\.attn\.w[qkvr]_").search
    packed, _ = layouts.pack(layouts.backbone(), lambda name: not attention(name), group_size=32, bits=4)
    packed, _ = layouts.pack(packed, lambda name: bool(attention(name)), group_size=32, bits=8)
    override = {"group_size": 32, "bits": 8}
    block = {"group_size": 32, "bits": 4, **{spelling.format(i=i): override for i in range(6)}}
    config = {**layouts.config(), "quantization": block}
    loaded = load_model(layouts.write(tmp_path, layouts.to_mlx_vlm(packed), config), keep_quantized=True)
    bits = {name: value.quantization.bits for name, value in loaded.params.items() if isinstance(value, Packed)}
    assert {bits[f"layers.0.attn.{part}_proj"] for part in "qkvr"} == {8}
    assert {bits["embed"], bits["layers.0.attn.o_proj"], bits["layers.3.mlp.experts.up_proj"]} == {4}


@pytest.mark.parametrize("override", [{"group_size": 32, "bits": 3}, False])
def test_an_override_that_contradicts_its_tensors_is_named(override: object, tmp_path: Path) -> None:
    packed, _ = layouts.pack(layouts.backbone(), lambda name: True, group_size=32, bits=4)
    block = {"group_size": 32, "bits": 4, "model.llm.layers.4.attn.wo_ud": override}
    directory = layouts.write(tmp_path, packed, {**layouts.config(), "quantization": block})
    with pytest.raises(CheckpointError, match=r"layers\.4\.attn\.wo_ud is affine 4-bit.*declares"):
        load_model(directory)


def test_the_tensors_win_over_a_global_setting_that_does_not_fit_them(tmp_path: Path) -> None:
    packed, _ = layouts.pack(layouts.backbone(), lambda name: "unembed" in name, group_size=32, bits=6)
    config = {**layouts.config(), "quantization": {"group_size": 64, "bits": 4}}
    loaded = load_model(layouts.write(tmp_path, packed, config), keep_quantized=True)
    head = loaded.params["lm_head"]
    assert isinstance(head, Packed)
    assert head.quantization == Quantization(32, 6)
    assert any("unembed" in note for note in loaded.report.notes)


@pytest.mark.parametrize("where", ["config.json", "hf_quant_config.json"])
@pytest.mark.parametrize("keep", [False, True])
def test_modelopt_nvfp4_computes_what_its_codes_stand_for(where: str, keep: bool, tmp_path: Path) -> None:
    packed, plain = layouts.to_modelopt(layouts.backbone(), lambda name: ".layers.1." in name)
    expected = load_model(layouts.write(tmp_path / "plain", plain, layouts.config()))
    block = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["model.llm.layers.1.mlp.experts*"]}
    config = layouts.config()
    if where == "config.json":
        config["quantization_config"] = {"quant_method": "modelopt", **block}
    directory = layouts.write(tmp_path / "packed", packed, config, dtypes=layouts.modelopt_dtype)
    if where != "config.json":
        (directory / where).write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": block}))
    loaded = load_model(directory, keep_quantized=keep)
    assert "layers.1.mlp.experts.gate_scale" not in loaded.params
    assert arrays_of(loaded.params["layers.2.mlp.experts.gate_scale"])[0].shape == (8,)
    assert isinstance(loaded.params["layers.2.mlp.experts.gate_proj"], Packed) == keep
    assert any("input_amax" in name for name in loaded.report.skipped["calibration"])

    tokens = mx.array([[3, 77, 140, 9, 210, 8, 61]])

    def logits(params: Params) -> mx.array:
        model = Backbone(expected.config, params, mx.float32)
        cache: Cache = model.make_cache()
        return model.project(model.final_norm(model(tokens, cache)))

    assert mx.allclose(logits(loaded.params), logits(expected.params), atol=2e-4).item()


def test_modelopt_nvfp4_of_shared_experts_is_expanded_with_the_scale_of_each(tmp_path: Path) -> None:
    packed, plain = layouts.to_modelopt(layouts.backbone(), lambda name: False, r"\.shared_w(13|2)_weight$")
    expected = load_model(layouts.write(tmp_path / "plain", plain, layouts.config()))
    config = {**layouts.config(), "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    directory = layouts.write(tmp_path / "packed", packed, config, dtypes=layouts.modelopt_dtype)
    assert_same(load_model(directory, keep_quantized=True).params, expected.params, 1e-6)


def test_packed_matrices_with_float16_scales_compute_in_the_activation_dtype(tmp_path: Path) -> None:
    tensors = {name: value.astype(mx.float16) for name, value in layouts.backbone().items()}
    packed, _ = layouts.pack(tensors, lambda name: True, group_size=32, bits=4)
    assert packed["model.llm.embed.scales"].dtype == mx.float16
    for name, dtype in (("f32", mx.float32), ("bf16", mx.bfloat16)):
        params = load_model(layouts.write(tmp_path, packed, layouts.config()), dtype=name, keep_quantized=True).params
        embed = params["embed"]
        assert isinstance(embed, Packed)
        assert embed.biases is not None
        assert (embed.scales.dtype, embed.biases.dtype) == (dtype, dtype)


@pytest.mark.parametrize(
    "setting", [None, {"group_size": 32, "bits": 4}, {"group_size": 32, "bits": 4, "mode": "mxfp4"}]
)
def test_the_head_is_packed_like_the_backbone(setting: dict[str, Any] | None, tmp_path: Path) -> None:
    target = load_model(TINY).config
    packed, plain = layouts.pack(layouts.head(), lambda name: setting is not None, **(setting or {}))
    expected = load_head(layouts.write(tmp_path / "plain", {}, layouts.config(), head=plain), target=target)
    directory = layouts.write(tmp_path / "packed", {}, layouts.config(), head=packed)
    loaded = load_head(directory, target=target, keep_quantized=False)
    assert_same(loaded.params, expected.params, 1e-6)
    assert all(name.startswith("mtp.") for name in loaded.params)


def test_bfloat16_and_float16_files_become_the_activation_dtype(tmp_path: Path) -> None:
    for stored in (mx.bfloat16, mx.float16):
        tensors = {name: value.astype(stored) for name, value in layouts.backbone().items()}
        directory = layouts.write(tmp_path / str(stored), tensors, layouts.config())
        for name, dtype in (("f32", mx.float32), ("bf16", mx.bfloat16)):
            params = load_model(directory, dtype=name).params
            assert arrays_of(params["layers.2.attn.q_proj"])[0].dtype == dtype
            assert arrays_of(params["layers.0.mlp.global_scale"])[0].dtype == dtype
            always = ("router", "router_bias", "router_scale")
            assert {arrays_of(params[f"layers.2.mlp.{part}"])[0].dtype for part in always} == {mx.float32}
            assert arrays_of(params["layers.2.attn.k_conv"])[0].dtype == mx.float32


def test_shards_are_read_with_and_without_an_index(tmp_path: Path) -> None:
    tensors = layouts.backbone()
    names = list(tensors)
    files = {f"model-{i + 1:05d}-of-00003.safetensors": names[i::3] for i in range(3)}
    directory = layouts.write(tmp_path, {}, layouts.config())
    (directory / "model.safetensors").unlink()
    for file, members in files.items():
        layouts.save(directory / file, {name: tensors[name] for name in members})
    expected = load_model(TINY).params
    assert_same(load_model(directory).params, expected)
    weight_map = {name: file for file, members in files.items() for name in members}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    # With an index, a file that it does not list is not part of the model.
    layouts.save(directory / "other.safetensors", {"model.llm.norm.weight": mx.zeros(64)})
    assert_same(load_model(directory).params, expected)


def test_progress_grows_to_the_total() -> None:
    steps: list[tuple[int, int, str]] = []
    report = load_model(TINY, progress=lambda step: steps.append((step.done, step.total, step.file))).report
    assert [done for done, _, _ in steps] == sorted({done for done, _, _ in steps})
    assert steps[-1][:2] == (report.nbytes, report.nbytes)
    assert {file for _, _, file in steps} == {layouts.MAIN}


def test_a_directory_given_as_text_works(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "tiny")
    assert load_model(str(tmp_path / "tiny")).config.text.num_layers == 6

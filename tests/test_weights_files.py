"""Damaged and misleading files: found before any data is read, named, with a cure."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import layouts
import mlx.core as mx
import numpy as np
import pytest

from engine.errors import CheckpointError, UserError
from engine.weights.load import load_model

INDEX = "model.safetensors.index.json"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may damage."""
    return Path(shutil.copytree(layouts.TINY, tmp_path / "checkpoint"))


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test that reads tensor data."""

    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("tensor data was read")

    monkeypatch.setattr("engine.weights.read.Shards.take", refuse)


def failure(directory: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as error:
        load_model(directory)
    assert error.value.hint
    return error.value


def without_index(checkpoint: Path) -> None:
    (checkpoint / INDEX).unlink()


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("kept", [0.9, 0.5, 0.001])
def test_a_truncated_shard_is_named(kept: float, checkpoint: Path) -> None:
    shard = checkpoint / layouts.MAIN
    shard.write_bytes(shard.read_bytes()[: int(shard.stat().st_size * kept)])
    error = failure(checkpoint)
    assert "truncated" in error.title
    assert layouts.MAIN in error.title
    assert "Download" in error.hint


@pytest.mark.usefixtures("no_data")
def test_a_missing_shard_is_named(checkpoint: Path) -> None:
    (checkpoint / layouts.MAIN).unlink()
    error = failure(checkpoint)
    assert f"{layouts.MAIN} is missing" in error.title
    assert "Download" in error.hint


def test_a_missing_shard_of_the_head_alone_does_not_matter(checkpoint: Path) -> None:
    (checkpoint / layouts.HEAD).unlink()
    assert load_model(checkpoint).report.files == (layouts.MAIN,)


@pytest.mark.usefixtures("no_data")
def test_a_directory_without_weights(checkpoint: Path) -> None:
    without_index(checkpoint)
    for name in (layouts.MAIN, layouts.HEAD):
        (checkpoint / name).unlink()
    assert "holds no weights" in failure(checkpoint).title


def rewrite(checkpoint: Path, change: Callable[[layouts.Tensors], None]) -> Path:
    """Change the backbone's tensors."""
    tensors = layouts.backbone()
    change(tensors)
    without_index(checkpoint)
    layouts.save(checkpoint / layouts.MAIN, tensors)
    return checkpoint


@pytest.mark.usefixtures("no_data")
def test_missing_unexpected_and_wrong_tensors_are_all_named(checkpoint: Path) -> None:
    def change(tensors: layouts.Tensors) -> None:
        del tensors["model.llm.layers.1.attn.wv_dv.weight"], tensors["model.llm.layers.3.mlp.experts.w13_weight"]
        tensors["model.llm.layers.0.attn.q_bias"] = mx.zeros(64)
        tensors["model.llm.layers.6.attn_norm.weight"] = mx.zeros(64)
        tensors["something.else"] = mx.zeros(1)
        tensors["model.llm.layers.2.attn.wq_du.weight"] = mx.zeros((64, 32))
        tensors["model.llm.layers.0.mlp.w2_md.weight"] = mx.zeros((64, 96), mx.uint32)

    title = failure(rewrite(checkpoint, change)).title
    assert str(checkpoint) in title
    assert "2 tensors are missing" in title
    assert "3 tensors are unexpected" in title
    for name in (
        "model.llm.layers.1.attn.wv_dv.weight",
        "model.llm.layers.3.mlp.experts.w13_weight",
        "model.llm.layers.0.attn.q_bias",
        "model.llm.layers.6.attn_norm.weight",
        "something.else",
        "model.llm.layers.2.attn.wq_du.weight has the shape [64, 32] instead of [64, 64]",
        "model.llm.layers.0.mlp.w2_md.weight holds U32 values",
    ):
        assert name in title


@pytest.mark.usefixtures("no_data")
def test_missing_tensors_are_named_as_the_checkpoint_spells_them(tmp_path: Path) -> None:
    tensors = layouts.to_mlx_vlm(layouts.backbone(), fused=False)
    del tensors["language_model.model.layers.4.self_attn.o_proj.weight"]
    title = failure(layouts.write(tmp_path, tensors, layouts.config())).title
    assert "language_model.model.layers.4.self_attn.o_proj.weight" in title


@pytest.mark.usefixtures("no_data")
def test_a_config_of_another_size_is_noticed(checkpoint: Path) -> None:
    config = layouts.config()
    config["text_config"]["hidden_size"] = 128
    (checkpoint / "config.json").write_text(json.dumps(config))
    title = failure(checkpoint).title
    assert "do not fit config.json" in title
    assert "more (`inkstand inspect` lists all)" in title


@pytest.mark.usefixtures("no_data")
def test_one_parameter_under_two_names_is_refused(checkpoint: Path) -> None:
    def change(tensors: layouts.Tensors) -> None:
        tensors["lm_head.weight"] = tensors["model.llm.unembed.weight"]

    assert "lm_head" in failure(rewrite(checkpoint, change)).title


@pytest.mark.usefixtures("no_data")
def test_packed_matrices_without_scales_or_with_odd_ones_are_refused(tmp_path: Path) -> None:
    packed, _ = layouts.pack(layouts.backbone(), lambda name: True, group_size=32, bits=4)
    lone = {name: value for name, value in packed.items() if name != "model.llm.unembed.scales"}
    assert "model.llm.unembed" in failure(layouts.write(tmp_path / "lone", lone, layouts.config())).title
    odd = {**packed, "model.llm.unembed.scales": mx.zeros((256, 3)), "model.llm.unembed.biases": mx.zeros((256, 3))}
    assert "packed in no known way" in failure(layouts.write(tmp_path / "odd", odd, layouts.config())).title
    bare = {name: value for name, value in packed.items() if name != "model.llm.unembed.weight"}
    assert "model.llm.unembed.weight" in failure(layouts.write(tmp_path / "bare", bare, layouts.config())).title


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["model.llm.layers.3.mlp.experts.w2_weight", "model.llm.layers.5.mlp.gate.bias"])
@pytest.mark.parametrize("stored", [mx.float32, mx.bfloat16])
def test_a_tensor_that_is_not_finite_is_named(name: str, bad: float, stored: mx.Dtype, checkpoint: Path) -> None:
    def change(tensors: layouts.Tensors) -> None:
        values = np.array(tensors[name])
        values.flat[values.size - 1] = bad
        tensors[name] = mx.array(values).astype(stored)

    error = failure(rewrite(checkpoint, change))
    assert f"{name} holds NaN or infinite values" in error.title
    assert layouts.MAIN in error.title


@pytest.mark.parametrize(
    ("mode", "group", "bits", "nan"),
    [("affine", 32, 4, None), ("mxfp4", 32, 4, 0xFF), ("mxfp8", 32, 8, 0xFF), ("nvfp4", 16, 4, 0x7F)],
)
def test_scales_that_are_not_finite_are_named(
    mode: str, group: int, bits: int, nan: int | None, tmp_path: Path
) -> None:
    packed, _ = layouts.pack(layouts.backbone(), lambda name: True, group_size=group, bits=bits, mode=mode)
    scales = np.array(packed["model.llm.embed.scales"])
    scales[200, 1] = np.nan if nan is None else nan
    packed["model.llm.embed.scales"] = mx.array(scales)
    assert "model.llm.embed.scales" in failure(layouts.write(tmp_path, packed, layouts.config())).title


@pytest.mark.parametrize("nan", [0x7F, 0xFF])
def test_codes_that_are_not_finite_are_named(nan: int, tmp_path: Path) -> None:
    """Of the packed formats mxfp8 alone has codes for NaN."""
    packed, _ = layouts.pack(layouts.backbone(), lambda name: True, group_size=32, bits=8, mode="mxfp8")
    codes = np.array(packed["model.llm.embed.weight"]).view(np.uint8)
    codes[200, 1] = nan
    packed["model.llm.embed.weight"] = mx.array(codes.view(np.uint32))
    assert "model.llm.embed.weight" in failure(layouts.write(tmp_path, packed, layouts.config())).title


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(
    "file", ["../other.safetensors", "/etc/passwd", "a/b.safetensors", "..", "x.bin", "a\\b.safetensors"]
)
def test_an_index_cannot_name_files_elsewhere(file: str, checkpoint: Path) -> None:
    (checkpoint / INDEX).write_text(json.dumps({"weight_map": {"model.llm.norm.weight": file}}))
    error = failure(checkpoint)
    assert repr(file) in error.title
    assert "trust" in error.hint


@pytest.mark.usefixtures("no_data")
def test_a_link_cannot_lead_out_of_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.safetensors"
    (checkpoint / layouts.MAIN).rename(outside)
    (checkpoint / layouts.MAIN).symlink_to(outside)
    assert "outside the checkpoint" in failure(checkpoint).title


def test_the_links_of_the_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    repository = tmp_path / "models--a--b"
    snapshot = repository / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for i, file in enumerate(layouts.TINY.iterdir()):
        shutil.copy(file, repository / "blobs" / str(i))
        (snapshot / file.name).symlink_to(f"../../blobs/{i}")
    assert load_model(snapshot).report.tensors > 0


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("content", ["{}", "[]", "", '{"weight_map": 3}'])
def test_a_broken_index_is_named(content: str, checkpoint: Path) -> None:
    (checkpoint / INDEX).write_text(content)
    assert INDEX in failure(checkpoint).title


@pytest.mark.usefixtures("no_data")
def test_an_index_that_promises_more_than_the_shard_holds(checkpoint: Path) -> None:
    index = json.loads((checkpoint / INDEX).read_text())
    index["weight_map"]["model.llm.layers.9.attn_norm.weight"] = layouts.MAIN
    (checkpoint / INDEX).write_text(json.dumps(index))
    title = failure(checkpoint).title
    assert "model.llm.layers.9.attn_norm.weight" in title
    assert layouts.MAIN in title


@pytest.mark.usefixtures("no_data")
def test_the_same_tensor_in_two_files(checkpoint: Path) -> None:
    without_index(checkpoint)
    layouts.save(checkpoint / "copy.safetensors", {"model.llm.norm.weight": mx.ones(64)})
    title = failure(checkpoint).title
    assert "copy.safetensors" in title
    assert layouts.MAIN in title


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ({"bits": 7, "group_size": 64}, "bits is 7"),
        ({"bits": 4, "group_size": 48}, "group_size is 48"),
        ({"bits": 4, "mode": "int4"}, "mode is 'int4'"),
        ({"bits": 8, "mode": "mxfp4"}, "mxfp4"),
        ({"quant_method": "compressed-tensors"}, "'compressed-tensors'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64}, "'gptq'"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "'FP8'"),
        ({"quant_algo": "NVFP4", "group_size": 32}, "32"),
        ({"bits": 4, "model.llm.embed": {"bits": "4"}}, "'4'"),
    ],
)
@pytest.mark.usefixtures("no_data")
def test_a_quantization_that_is_not_supported_is_named(block: dict[str, Any], named: str, checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text(json.dumps({**layouts.config(), "quantization_config": block}))
    assert named in failure(checkpoint).title


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("dtype", ["f16", "float16", "int8", ""])
def test_float16_activations_are_refused(dtype: str, checkpoint: Path) -> None:
    with pytest.raises(UserError, match=repr(dtype)) as error:
        load_model(checkpoint, dtype=dtype)
    assert "bf16" in error.value.hint
    assert ("overflow" in error.value.title) == (dtype in ("f16", "float16"))


def test_loading_the_bundled_model_takes_little_more_memory_than_its_weights() -> None:
    script = (
        "import resource, sys\n"
        "from engine.weights.load import load_head, load_model\n"
        "from engine.model.params import nbytes\n"
        "import mlx.core as mx\n"
        "mx.eval(mx.zeros(8) + 1)\n"
        "unit = 1 if sys.platform == 'darwin' else 1024\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit\n"
        "before = peak()\n"
        "model = load_model(sys.argv[1])\n"
        "head = load_head(sys.argv[1], target=model.config)\n"
        "print(peak() - before, nbytes(model.params) + nbytes(head.params))\n"
    )
    root = Path(__file__).parent.parent
    demo = root / "resources" / "demo_checkpoint"
    done = subprocess.run(
        [sys.executable, "-c", script, str(demo)], cwd=root, capture_output=True, text=True, check=True
    )
    grown, weights = map(int, done.stdout.split())
    assert weights > 230e6
    assert grown < 1.25 * weights


def test_a_single_tensor_that_lacks_is_counted_in_the_singular(checkpoint: Path) -> None:
    def change(tensors: layouts.Tensors) -> None:
        del tensors["model.llm.norm.weight"]

    assert "; 1 tensor is missing: model.llm.norm.weight" in failure(rewrite(checkpoint, change)).title

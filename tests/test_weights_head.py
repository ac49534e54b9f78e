"""Finding an MTP head: by tensors, never by what a config promises; and whether it fits a model."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import layouts
import mlx.core as mx
import pytest

from engine.config import ModelConfig
from engine.errors import HeadAloneError, HeadError
from engine.installed import read_facts
from engine.model.params import arrays_of
from engine.weights.head import HeadFound, HeadMissing, find_head
from engine.weights.inspect import inspect
from engine.weights.load import load_head, load_model

INDEX = "model.safetensors.index.json"
TARGET = ModelConfig.from_directory(layouts.TINY)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may change."""
    return Path(shutil.copytree(layouts.TINY, tmp_path / "checkpoint"))


def config_without_mtp(directory: Path) -> None:
    config = layouts.config()
    del config["mtp_config"]
    (directory / "config.json").write_text(json.dumps(config))


def drop_head(directory: Path, *, from_index: bool = True) -> None:
    (directory / layouts.HEAD).unlink()
    if from_index:
        index = json.loads((directory / INDEX).read_text())
        index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file != layouts.HEAD}
        (directory / INDEX).write_text(json.dumps(index))


def test_load_drafter_detects_mtp_tensors_not_config_flag(checkpoint: Path) -> None:
    config_without_mtp(checkpoint)
    found = find_head(checkpoint)
    assert isinstance(found, HeadFound)
    assert (found.files, found.depths, len(found.tensors)) == ((layouts.HEAD,), 3, 60)
    drop_head(checkpoint)
    (checkpoint / "config.json").write_text(json.dumps(layouts.config()))
    missing = find_head(checkpoint)
    assert isinstance(missing, HeadMissing)
    assert f"{checkpoint / 'config.json'} announces 3 MTP depths, but no safetensors file there holds" in missing.reason
    with pytest.raises(HeadError, match="announces 3 MTP depths"):
        load_head(checkpoint, target=TARGET)


def test_a_drafter_folder_of_mlx_vlm_is_the_same_head(tmp_path: Path) -> None:
    drafter = layouts.to_drafter(tmp_path / "tiny-mtp")
    found = find_head(drafter)
    assert isinstance(found, HeadFound)
    assert (found.files, found.depths) == (("model.safetensors",), 3)
    expected, got = (load_head(directory, target=TARGET) for directory in (layouts.TINY, drafter))
    assert got.config == expected.config
    assert set(got.params) == set(expected.params)
    for name, value in expected.params.items():
        pairs = zip(arrays_of(value), arrays_of(got.params[name]), strict=True)
        assert all(mx.array_equal(one, other) for one, other in pairs), name


def test_a_head_where_a_model_was_named_is_called_what_it_is(checkpoint: Path, tmp_path: Path) -> None:
    for file in checkpoint.glob("model*"):
        file.unlink()
    for alone in (checkpoint, layouts.to_drafter(tmp_path / "tiny-mtp")):
        with pytest.raises(HeadAloneError, match="holds an MTP head and no model") as caught:
            load_model(alone)
        assert f"--draft-model {alone}" in caught.value.hint
        seen = inspect(alone)
        assert (seen.problems, seen.backbone_parameters) == ((), 0)
        assert any("holds an MTP head and no model" in note for note in seen.notes)
        facts = read_facts(alone)
        assert (facts.family, facts.backbone, facts.head, facts.problem) == ("Inkling", False, True, None)


def side_file(directory: Path) -> None:
    """The head lies beside an index that does not list it."""
    index = json.loads((directory / INDEX).read_text())
    index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file != layouts.HEAD}
    (directory / INDEX).write_text(json.dumps(index))


def head_only(directory: Path) -> None:
    (directory / INDEX).unlink()
    (directory / layouts.MAIN).unlink()


def one_file(directory: Path) -> None:
    (directory / INDEX).unlink()
    (directory / layouts.HEAD).unlink()
    layouts.save(directory / layouts.MAIN, {**layouts.backbone(), **layouts.head()})


def backbone_missing(directory: Path) -> None:
    """Indexed, but the backbone's shards were not downloaded."""
    (directory / layouts.MAIN).unlink()


@pytest.mark.parametrize("arrange", [None, side_file, head_only, one_file, backbone_missing])
def test_where_a_head_may_lie(arrange: Any, checkpoint: Path) -> None:
    if arrange is not None:
        arrange(checkpoint)
    found = find_head(checkpoint)
    assert isinstance(found, HeadFound)
    assert found.depths == 3
    head = load_head(checkpoint, target=TARGET)
    assert head.config.sliding == (True, False, True)
    assert head.params.keys() == load_head(layouts.TINY, target=TARGET).params.keys()
    assert head.report.tensors == 60


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("prefix", ["language_model.mtp.", "mtp."])
def test_a_head_under_another_prefix(prefix: str, told: bool, checkpoint: Path) -> None:
    """As conversions leave it that move everything below one module; with and without a config that describes it."""
    if not told:
        config_without_mtp(checkpoint)
    (checkpoint / INDEX).unlink()
    tensors = {name.replace("model.mtp.", prefix): value for name, value in layouts.head().items()}
    layouts.save(checkpoint / layouts.HEAD, tensors)
    head = load_head(checkpoint, target=TARGET)
    assert head.config.sliding == (True, False, True)
    assert head.params.keys() == load_head(layouts.TINY, target=TARGET).params.keys()


@pytest.mark.parametrize(
    ("directory", "family", "head"),
    [
        ("published", "inkling_mm_model", True),
        ("transformers", "inkling_mm_model", False),
        ("text-only", "inkling_text", False),
        ("mlx-vlm", "inkling_mm_model", False),
        ("mlx-vlm-with-head", "inkling_mm_model", True),
    ],
)
def test_family_and_head_of_each_layout(directory: str, family: str, head: bool, tmp_path: Path) -> None:
    backbone = layouts.backbone()
    tensors, config = {
        "published": (backbone, layouts.config()),
        "transformers": (layouts.to_transformers(backbone), layouts.transformers_config()),
        "text-only": (layouts.to_transformers(backbone, "model."), layouts.transformers_config(text_only=True)),
        "mlx-vlm": (layouts.to_mlx_vlm(backbone), layouts.config()),
        "mlx-vlm-with-head": (layouts.to_mlx_vlm(backbone), layouts.config()),
    }[directory]
    layouts.write(tmp_path, tensors, config, head=layouts.head() if head else None)
    assert ModelConfig.from_directory(tmp_path).model_type == family
    assert isinstance(find_head(tmp_path), HeadFound) == head


def test_a_head_that_a_config_is_silent_about_is_recognised_by_its_bias_banks(checkpoint: Path) -> None:
    config_without_mtp(checkpoint)
    head = load_head(checkpoint, target=TARGET)
    assert (head.config.sliding, head.config.chain_norm) == ((True, False, True), False)


def test_the_chain_norm_is_read_where_the_config_asks_for_it(checkpoint: Path) -> None:
    config = layouts.config()
    config["mtp_config"]["chain_hidden_post_norm"] = True
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(HeadError, match=r"model\.mtp\.chain_norm\.weight"):
        load_head(checkpoint, target=TARGET)
    (checkpoint / INDEX).unlink()
    layouts.save(checkpoint / layouts.HEAD, {**layouts.head(), "model.mtp.chain_norm.weight": mx.ones(64)})
    assert load_head(checkpoint, target=TARGET).params["mtp.chain_norm"].shape == (64,)


def test_only_shards_with_the_head_are_read(checkpoint: Path) -> None:
    (checkpoint / layouts.MAIN).write_bytes(b"damaged")
    assert load_head(checkpoint, target=TARGET).report.files == (layouts.HEAD,)


def test_a_missing_or_damaged_shard_of_the_head_is_the_reason(checkpoint: Path) -> None:
    (checkpoint / layouts.HEAD).write_bytes(b"damaged")
    missing = find_head(checkpoint)
    assert isinstance(missing, HeadMissing)
    assert "mtp.safetensors is not a sound safetensors file" in missing.reason
    drop_head(checkpoint, from_index=False)
    missing = find_head(checkpoint)
    assert isinstance(missing, HeadMissing)
    assert "mtp.safetensors is missing" in missing.reason


def test_without_directory_or_promise(tmp_path: Path) -> None:
    for directory, what in ((tmp_path / "nowhere", "nowhere is not there"), (tmp_path, f"{tmp_path} has no MTP head")):
        missing = find_head(directory)
        assert isinstance(missing, HeadMissing)
        assert what in missing.reason


def test_incomplete_heads_name_what_lacks(checkpoint: Path) -> None:
    (checkpoint / INDEX).unlink()
    tensors = layouts.head()
    del tensors["model.mtp.layers.1.input_proj.weight"]
    tensors["model.mtp.layers.0.transformer_block.attn.wq_du.weight"] = mx.zeros((32, 64))
    layouts.save(checkpoint / layouts.HEAD, tensors)
    with pytest.raises(HeadError, match=r"model\.mtp\.layers\.1\.input_proj\.weight.*\[32, 64\] instead of \[64, 64\]"):
        load_head(checkpoint, target=TARGET)


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("hidden_size", 128, "hidden_size is 64, the model's is 128"),
        ("vocab_size", 512, "vocab_size is 256, the model's is 512"),
        ("unpadded_vocab_size", 200, "unpadded_vocab_size is 250, the model's is 200"),
        ("mup_multiplier", 16.0, "logits_mup_width_multiplier is 2.0, the model's is 16.0"),
    ],
)
def test_the_head_of_another_model_is_refused_with_both_values(field: str, value: Any, name: str) -> None:
    other = dataclasses.replace(TARGET, text=dataclasses.replace(TARGET.text, **{field: value}))
    with pytest.raises(HeadError) as error:
        load_head(layouts.TINY, target=other)
    assert name in error.value.title
    assert "same model" in error.value.hint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_attention_heads", 8),
        ("swa_num_key_value_heads", 2),
        ("swa_head_dim", 16),
        ("sliding_window_size", 16),
        ("rel_extent", 32),
        ("d_rel", 8),
        ("sconv_kernel_size", 3),
        ("dense_intermediate_size", 48),
    ],
)
def test_a_head_of_other_blocks_is_refused(field: str, value: int) -> None:
    """Its blocks are computed with the model's geometry, so its own must be the same."""
    config = layouts.config()
    ours = config["text_config"][field]
    config["text_config"][field] = value
    with pytest.raises(HeadError, match=f"its {field} is {ours}, the model's is {value}"):
        load_head(layouts.TINY, target=ModelConfig.from_dict(config))


def test_a_head_stored_in_float16_is_refused(checkpoint: Path) -> None:
    (checkpoint / INDEX).unlink()
    layouts.save(checkpoint / layouts.HEAD, {name: value.astype(mx.float16) for name, value in layouts.head().items()})
    with pytest.raises(HeadError, match=r"stored in float16 .*, the model in float32"):
        load_head(checkpoint, target=TARGET)


def test_the_backbone_of_a_checkpoint_with_a_head_is_without_it() -> None:
    assert not any(name.startswith("mtp.") for name in load_model(layouts.TINY).params)

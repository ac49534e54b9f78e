"""`inspect`: family, layout, packing, sizes, head, and everything that is wrong, without reading data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import layouts
import mlx.core as mx
import pytest

from engine.errors import ConfigError, UserError
from engine.loaded import Engine
from engine.weights.head import HeadFound, HeadMissing
from engine.weights.inspect import inspect

DEMO = Path(__file__).parent.parent / "resources" / "demo_checkpoint"


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """No inspection reads tensor data."""

    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("tensor data was read")

    monkeypatch.setattr("engine.weights.read.Shards.take", refuse)


def test_a_published_checkpoint() -> None:
    found = inspect(layouts.TINY)
    assert (found.family, found.layout, found.problems) == ("inkling_mm_model", "published", ())
    assert found.packing == {"unquantized": 65 + 3 * 9}
    assert found.sizes["embed"] == found.sizes["lm_head"] == 256 * 64 * 4
    assert found.sizes["experts"] == 5 * 8 * 3 * 32 * 64 * 4
    assert set(found.skipped) == {"vision", "audio"}
    assert isinstance(found.head, HeadFound)
    data = sum(file.stat().st_size for file in layouts.TINY.glob("*.safetensors"))
    assert 0.95 * data < found.nbytes + sum(found.skipped.values()) < data


def test_the_bundled_model() -> None:
    found = inspect(DEMO)
    assert (found.layout, found.problems, found.skipped) == ("mlx-vlm", (), {})
    assert found.packing == {
        "affine 8-bit, groups of 64": 1,
        "affine 6-bit, groups of 64": 103,
        "affine 5-bit, groups of 64": 60,
    }
    assert found.backbone_parameters == 51_479_900
    assert isinstance(found.head, HeadFound)
    assert found.sizes["mtp"] == found.head.nbytes


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        (layouts.to_transformers, "transformers"),
        (layouts.to_mlx_vlm, "mlx-vlm"),
        (layouts.to_split_experts, "published names, split experts"),
        (lambda tensors: layouts.to_transformers(tensors, "model."), "transformers, text only"),
    ],
)
def test_layouts_are_told_apart(layout: layouts.Layout, name: str, tmp_path: Path) -> None:
    found = inspect(layouts.write(tmp_path, layout(layouts.backbone()), layouts.config()))
    assert (found.layout, found.problems) == (name, ())
    assert isinstance(found.head, HeadMissing)
    assert "announces 3 MTP depths" in found.head.reason


def test_another_family_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**layouts.config(), "model_type": "inkling2"}))
    found = inspect(tmp_path)
    assert (found.family, found.config) == ("inkling2", None)
    assert len(found.problems) == 1
    assert "'inkling2'" in found.problems[0]


def test_every_problem_is_listed(tmp_path: Path) -> None:
    config = layouts.config()
    config["text_config"]["hidden_size"] = 128
    directory = Path(shutil.copytree(layouts.TINY, tmp_path / "copy"))
    (directory / "config.json").write_text(json.dumps(config))
    problems = inspect(directory).problems
    assert sum(problem.startswith("MTP head: ") for problem in problems) > 20
    assert sum(problem.startswith("model.llm.") for problem in problems) > 60


def test_damaged_files_are_problems(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(layouts.TINY, tmp_path / "copy"))
    (directory / layouts.MAIN).write_bytes(b"short")
    found = inspect(directory)
    assert any(layouts.MAIN in problem for problem in found.problems)
    assert isinstance(found.head, HeadFound)
    (directory / "config.json").write_text("{")
    assert inspect(directory).family is None


def test_an_incomplete_head_is_a_problem(tmp_path: Path) -> None:
    head = layouts.head()
    del head["model.mtp.layers.2.hidden_norm.weight"]
    found = inspect(layouts.write(tmp_path, layouts.backbone(), layouts.config(), head=head))
    assert found.problems == ("MTP head: model.mtp.layers.2.hidden_norm.weight is missing.",)


def broken_template(directory: Path) -> None:
    (directory / "chat_template.jinja").write_text("{% if %}")


def template_folder(directory: Path) -> None:
    (directory / "chat_template.jinja").unlink()
    (directory / "chat_template.jinja").mkdir()


def no_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").unlink()


def broken_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (broken_template, "chat_template.jinja, line 1: the chat template has a syntax error"),
        (template_folder, "chat_template.jinja cannot be read"),
        (no_tokenizer, "tokenizer.json does not exist"),
        (broken_tokenizer, "tokenizer.json is not a valid tokenizer file"),
    ],
)
def test_text_files_that_keep_a_model_from_loading_are_problems(
    damage: Callable[[Path], None], problem: str, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(DEMO, tmp_path / "copy"))
    damage(directory)
    (found,) = inspect(directory).problems
    assert problem in found
    with pytest.raises(UserError) as error:
        Engine.load(directory)
    assert str(error.value) == found


def test_a_model_without_a_template_is_noted(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(DEMO, tmp_path / "copy"))
    (directory / "chat_template.jinja").unlink()
    found = inspect(directory)
    assert found.problems == ()
    assert found.notes == ("There is no chat template: the model completes raw text, and cannot chat.",)
    assert inspect(DEMO).notes == ()


def test_a_lone_head_needs_no_text_files(tmp_path: Path) -> None:
    for name in ("config.json", layouts.HEAD):
        shutil.copy(layouts.TINY / name, tmp_path / name)
    found = inspect(tmp_path)
    assert isinstance(found.head, HeadFound)
    assert not any("tokenizer" in problem for problem in found.problems)
    assert not any("template" in note for note in found.notes)


def test_a_setting_that_does_not_fit_is_noted(tmp_path: Path) -> None:
    packed, _ = layouts.pack(layouts.backbone(), lambda name: "embed" in name, group_size=32, bits=8)
    config = {**layouts.config(), "quantization": {"group_size": 64, "bits": 4}}
    found = inspect(layouts.write(tmp_path, packed, config))
    assert found.problems == ()
    assert any("affine 8-bit" in note and "affine 4-bit" in note for note in found.notes)


def test_a_directory_without_config_is_refused(tmp_path: Path) -> None:
    layouts.save(tmp_path / "model.safetensors", {"a": mx.zeros(1)})
    with pytest.raises(ConfigError, match=r"no config\.json"):
        inspect(tmp_path)

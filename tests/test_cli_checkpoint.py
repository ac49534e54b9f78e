"""The command line over a real, tiny checkpoint: equal answers with and without the drafter, and every bad input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.cli.main import main

TINY = Path(__file__).parent / "data" / "inkling-tiny"
SHARD = "model-00001-of-00001.safetensors"
TEMPLATE = (
    "{% for m in messages %}<|message_user|><|content_text|>{{ m.content }}<|end_message|>{% endfor %}<|message_model|>"
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may damage."""
    return Path(shutil.copytree(TINY, tmp_path / "checkpoint"))


def generate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["generate", "-p", "hello there", "-n", "24", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("schedule", ["stateful", "chained"])
@pytest.mark.parametrize("rollback", ["trim", "replay"])
def test_the_drafter_changes_figures_but_no_token(
    schedule: str, rollback: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = generate(capsys, "-m", str(TINY), "--draft-kind", "none")
    fast = generate(capsys, "-m", str(TINY), "--draft-schedule", schedule, "--rollback", rollback)
    assert fast["token_ids"] == plain["token_ids"]
    assert fast["text"] == plain["text"]
    assert fast["stats"]["rounds"] > 0
    assert fast["draft"]["schedule"] == schedule
    assert (plain["stats"]["rounds"], plain["stats"]["plain_steps"]) == (0, 23)
    assert plain["draft"]["effective"] == "none"


def test_a_block_larger_than_the_head_is_clamped_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    draft = generate(capsys, "-m", str(TINY), "--draft-block-size", "9")["draft"]
    assert draft["block_size"] == 4
    assert "9" in draft["reason"]


def test_a_seed_repeats_a_sampled_answer_of_rounds_alike(capsys: pytest.CaptureFixture[str]) -> None:
    sampled = ["-m", str(TINY), "--temperature", "1.2", "--draft-block-size", "4", "--seed"]
    first, again, other = (generate(capsys, *sampled, seed)["token_ids"] for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


def test_a_head_in_a_directory_of_its_own(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = tmp_path / "head"
    head.mkdir()
    for name in ("config.json", "mtp.safetensors"):
        shutil.copy(checkpoint / name, head)
    without_head(checkpoint)
    alone = generate(capsys, "-m", str(checkpoint))
    assert alone["draft"]["effective"] == "none"
    assert alone["draft"]["reason"]
    both = generate(capsys, "-m", str(checkpoint), "--draft-model", str(head))
    assert both["draft"]["effective"] == "mtp"
    assert both["token_ids"] == alone["token_ids"]
    assert main(["generate", "-p", "x", "-m", str(checkpoint), "--draft-kind", "mtp"]) == 2


def test_draft_report_covers_every_wiring(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draft-report", "-m", str(TINY), "-p", "hello there", "-n", "16", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["drafts"] == 3
    assert len({(row["hidden"], row["embedding"], row["readout"]) for row in report["wirings"]}) == 8
    used = next(row for row in report["wirings"] if row.items() >= report["used"].items())
    stats = generate(capsys, "-m", str(TINY), "-n", "16", "--draft-block-size", "4")["stats"]
    for name in ("rounds", "drafted", "accepted", "per_position"):
        assert used[name] == stats[name]


def test_convert_writes_a_checkpoint_that_generates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    line = ["convert", str(TINY), str(copy), "--quantize", "8:32", "--set", "mtp=none", "--json"]
    assert main(line) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["directory"] == str(copy)
    assert report["missing_head"] is None
    assert report["bytes"] == sum(file.stat().st_size for file in copy.iterdir())
    assert generate(capsys, "-m", str(copy))["draft"]["effective"] == "mtp"
    assert main(line) == 2
    assert str(copy) in capsys.readouterr().err


def test_convert_packs_again_only_when_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed, copy = tmp_path / "packed", tmp_path / "copy"
    assert main(["convert", str(TINY), str(packed), "-q", "none", "--set", "experts=8:32"]) == 0
    for wanted in (["-q", "4"], ["--set", "experts=4"]):
        assert main(["convert", str(packed), str(copy), *wanted]) == 2
        assert "is packed already (15 matrices affine 8-bit, groups of 32)" in capsys.readouterr().err
    assert not copy.exists()
    assert main(["convert", str(packed), str(copy), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kept"] == report["packing"].pop("affine 8-bit, groups of 32") == 15
    assert any(how.startswith("affine 4-bit") for how in report["packing"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--quantize", "7"], "-q/--quantize 7: "),
        (["--quantize", ""], "is no quantization"),
        (["--set", "mtp=4:13"], "--set mtp 4:13: "),
        (["--quantize", "mxfp5"], "mxfp5"),
        (["--quantize", "4:x"], "4:x"),
        (["--set", "expert=4"], "--set expert=4"),
        (["--set", "experts"], "--set experts"),
    ],
)
def test_convert_names_a_wrong_recipe(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(TINY), str(tmp_path / "copy"), *arguments]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_inspect_names_what_is_wrong(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without_head(checkpoint)
    assert main(["inspect", str(checkpoint)]) == 0
    assert "MTP head   none: " in capsys.readouterr().out
    truncate(checkpoint)
    assert main(["inspect", str(checkpoint), "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert SHARD in problem
    assert main(["inspect", str(checkpoint)]) == 2
    out = capsys.readouterr().out
    assert SHARD in out
    assert "0 B" not in out, "nothing was read, so nothing is counted"


def test_inspect_describes_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(TINY)]) == 0
    text = capsys.readouterr().out
    for expected in ("inkling", "MTP head", "3 depths"):
        assert expected in text
    assert main(["inspect", str(TINY), "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out)["head"]["depths"] == 3


def test_inspect_counts_parameters_and_bytes_of_the_same_tensors(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = inspected(checkpoint, capsys)
    assert main(["inspect", str(checkpoint)]) == 0
    assert "0.6 million parameters, 2.31 MB, MTP head included\n" in capsys.readouterr().out
    (checkpoint / "mtp.safetensors").unlink()
    bare = inspected(checkpoint, capsys)
    assert whole["parameters"] - bare["parameters"] == whole["head"]["parameters"] > 0
    assert whole["bytes"] - bare["bytes"] == whole["head"]["bytes"] == whole["sizes"]["mtp"]
    # Everything in it is stored as float32.
    assert (whole["bytes"], sum(whole["sizes"].values())) == (4 * whole["parameters"], whole["bytes"])


def inspected(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["inspect", str(folder), "--json"])
    return json.loads(capsys.readouterr().out)


Damage = Callable[[Path], None]


def edit_config(**changes: Any) -> Damage:
    def damage(directory: Path) -> None:
        file = directory / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return damage


def edit_tensor(file: str, change: Callable[[np.ndarray], np.ndarray], *, part: str) -> Damage:
    """Replaces the first tensor whose name contains `part`."""

    def damage(directory: Path) -> None:
        tensors = load_file(directory / file)
        name = next(name for name in sorted(tensors) if part in name)
        tensors[name] = change(tensors[name])
        save_file(tensors, directory / file)

    return damage


def truncate(directory: Path) -> None:
    data = (directory / SHARD).read_bytes()
    (directory / SHARD).write_bytes(data[: len(data) // 2])


def with_nan(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flat[0] = np.nan
    return values


def without_head(directory: Path) -> None:
    """Removes the head's tensors, index entries included; config.json still promises it."""
    (directory / "mtp.safetensors").unlink()
    index = directory / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"] = {name: file for name, file in document["weight_map"].items() if ".mtp." not in name}
    index.write_text(json.dumps(document))


def template(text: str | bytes) -> Damage:
    def damage(directory: Path) -> None:
        (directory / "chat_template.jinja").write_bytes(text if isinstance(text, bytes) else text.encode())

    return damage


BAD_INPUTS: dict[str, tuple[Damage, list[str], list[str]]] = {
    "missing directory": (shutil.rmtree, [], ["checkpoint"]),
    "no config": (lambda directory: (directory / "config.json").unlink(), [], ["config.json"]),
    "broken config": (lambda directory: (directory / "config.json").write_text("{"), [], ["config.json"]),
    "wrong family": (edit_config(model_type="inkling2"), [], ["inkling2"]),
    "truncated shard": (truncate, [], [SHARD]),
    "missing shard": (lambda directory: (directory / SHARD).unlink(), [], [SHARD]),
    "NaN tensor": (edit_tensor(SHARD, with_nan, part="wo"), [], ["wo"]),
    "wrong shape": (edit_tensor(SHARD, lambda values: values[:-1].copy(), part="unembed"), [], ["unembed"]),
    "head of another model": (
        edit_tensor("mtp.safetensors", lambda values: values[:, :-1].copy(), part="input_proj"),
        ["--draft-kind", "mtp"],
        ["input_proj"],
    ),
    "missing head": (without_head, ["--draft-kind", "mtp"], ["mtp"]),
    "unknown effort": (lambda directory: None, ["--effort", "heroic"], ["heroic"]),
    "prompt longer than the context": (lambda directory: None, ["--context", "4"], ["4"]),
    "context longer than the model's": (lambda directory: None, ["--context", "99999999"], ["99999999"]),
    "unreadable template": (template(b"\xff\xfe{{"), [], ["chat_template.jinja"]),
    "template with a syntax error": (template("{% for %}"), [], ["chat_template.jinja"]),
    "template that raises": (template("{{ raise_exception('no cats') }}"), [], ["no cats"]),
    "messages without a template": (lambda directory: None, ["--system", "s"], ["chat template"]),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_is_named_with_its_cure(name: str, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage, arguments, named = BAD_INPUTS[name]
    damage(checkpoint)
    assert main(["generate", "-m", str(checkpoint), "-p", "hello there", "-n", "4", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    message = err[err.index("error: ") :]
    for text in named:
        assert text in message
    assert len(message.strip().splitlines()) >= 2, "a cure follows the message"


def test_a_template_of_the_checkpoint_is_used(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = generate(capsys, "-m", str(checkpoint))
    template(TEMPLATE)(checkpoint)
    chat = generate(capsys, "-m", str(checkpoint))
    assert chat["prompt_tokens"] > raw["prompt_tokens"]

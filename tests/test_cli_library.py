"""`-m owner/name`: models of the library by name, with the head they are paired with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.cli.main import main
from engine.installed import open_library
from tests.support import TINY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A further folder of the library with the tiny model and, beside it, its head."""
    whole, head = tmp_path / "some" / "tiny", tmp_path / "some" / "tiny-head"
    shutil.copytree(TINY, whole)
    head.mkdir()
    (whole / "mtp.safetensors").rename(head / "mtp.safetensors")
    shutil.copy(whole / "config.json", head)
    index = whole / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    backbone = {name: file for name, file in weight_map.items() if ".mtp." not in name}
    index.write_text(json.dumps({"metadata": {}, "weight_map": backbone}))
    open_library().add_folder(tmp_path)
    return tmp_path


def generate(model: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = main(["generate", "-m", model, "-p", "Hi", "-n", "4", "--json", *more])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_model_is_found_by_name_and_drafts_with_its_paired_head(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = generate("some/tiny", capsys)
    assert code == 0, err
    by_name = json.loads(out)
    assert by_name["draft"]["effective"] == "mtp"
    code, out, _ = generate(str(folder / "some" / "tiny"), capsys)
    by_path = json.loads(out)
    assert by_path["draft"]["effective"] == "none"
    assert by_name["token_ids"] == by_path["token_ids"]


def test_the_head_is_left_out_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = generate("some/tiny", capsys, "--draft-kind", "none")
    assert (code, json.loads(out)["draft"]["effective"]) == (0, "none")


def test_what_cannot_be_read_is_listed_as_nothing_that_it_is_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (folder / "some" / "tiny").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:1000])
    assert main(["models", "list"]) == 0
    out, err = capsys.readouterr()
    row = next(line for line in out.splitlines() if line.startswith("some/tiny "))
    assert "unusable" in row
    assert "MTP head only" not in row
    assert "`inkstand models info MODEL` says what is wrong" in err


def test_without_checksums_nothing_counts_as_verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "verify", "some/tiny"]) == 0
    out = capsys.readouterr().out
    assert "no checksums are known" in out
    assert "0 files" not in out


def test_an_unknown_name_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = generate("nobody/nothing", capsys)
    assert (code, out) == (2, "")
    assert "nobody/nothing" in err
    assert "inkstand download" in err


def test_a_head_is_named_like_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(folder / "some" / "tiny")
    code, out, err = generate(model, capsys, "--draft-model", "some/tiny-head")
    assert code == 0, err
    assert json.loads(out)["draft"]["effective"] == "mtp"
    code, _, err = generate(model, capsys, "--draft-model", "some/tiny")
    assert code == 2
    assert "some/tiny has no MTP head" in err
    assert generate(model, capsys, "--draft-model", "nobody/nothing")[0] == 2


def test_inspect_and_convert_take_a_name(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "some/tiny-head", "--json"]) == 0  # a head alone is nothing wrong
    report = json.loads(capsys.readouterr().out)
    assert report["directory"] == str(folder / "some" / "tiny-head")
    assert report["head"]["depths"] == 3
    copy = tmp_path_factory.mktemp("converted") / "copy"
    assert main(["convert", "some/tiny", str(copy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["directory"] == str(copy)
    assert main(["convert", "some/tiny-head", str(copy)]) == 2
    assert "only an MTP head" in capsys.readouterr().err

"""The command itself: help, versions, start-up, `info`, and where things are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import engine
from engine.cli.main import build_parser, main
from engine.errors import UserError
from engine.paths import resource, user_paths

COMMANDS = ["chat", "generate", "convert", "inspect", "draft-report", "bench", "parity", "info"]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert command in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: inkstand {command}" in capsys.readouterr().out


def test_every_option_of_generate_explains_itself() -> None:
    (commands,) = (action for action in build_parser()._actions if action.dest == "command")
    for name, command in commands.choices.items():  # type: ignore[union-attr]
        if name in {"chat", "generate"}:
            assert [action.dest for action in command._actions if not action.help] == []


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"inkstand {engine.__version__}\n"


@pytest.mark.parametrize("line", [["dance"], ["--loud"], ["info", "--loud"], ["generate", "-n"]])
def test_a_wrong_command_line_exits_with_2_and_points_to_help(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "--help" in err


@pytest.mark.parametrize("line", [["parity", "-m", "tiny"], ["bench", "context", "--loud"], ["bench", "--loud"]])
def test_an_unknown_option_points_to_the_help_of_its_command(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    hint = capsys.readouterr().err.splitlines()[-1]
    assert hint.removeprefix("See: inkstand ") in {"parity --help", "bench context --help", "bench speed --help"}
    assert line[0] in hint


def test_help_does_not_import_mlx_or_the_tokenizer() -> None:
    heavy = ["mlx.core", "tokenizers", "jinja2", "numpy", "huggingface_hub"]
    script = (
        "import sys; from engine.cli.main import main; main(['generate', '--help']);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("[]\n"), done.stdout


def test_a_reader_that_goes_away_is_no_failure() -> None:
    command = f"{sys.executable} -m app info | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n"
    assert done.stderr == ""


def test_an_old_locale_does_not_end_an_answer() -> None:
    environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    script = "import sys; from engine.cli.main import main; code = main(['--version']); print('Malm\\xf6', code)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60, env=environ
    )
    assert "Malm? 0" in done.stdout


def test_info_reports_models_that_are_installed(inkstand_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = inkstand_home / "data" / "models" / "someone" / "Inkling-Test"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"0" * 98)
    assert main(["info", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    report = json.loads(out)
    assert report["version"] == engine.__version__
    assert report["packages"]["mlx"]
    assert report["device"]["default"] in {"cpu", "gpu"}
    assert report["paths"]["data"] == str(inkstand_home / "data")
    assert report["memory"]["total"] > 1e9
    assert report["models"] == [{"name": "someone/Inkling-Test", "bytes": 100}]
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert "someone/Inkling-Test" in text
    assert f"BLAS      {engine.BLAS.state}: " in text


def test_info_tells_the_memory_that_loading_counts_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.memory.available_memory", lambda: 7_340_000)
    monkeypatch.setattr("engine.memory.total_memory", lambda: None)
    main(["info", "--json"])
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert (memory["available"], memory["total"]) == (7_340_000, None)
    main(["info"])
    assert "memory    7.34 MB of – free\n" in capsys.readouterr().out


def test_the_home_variable_replaces_all_directories(tmp_path: Path) -> None:
    paths = user_paths({"INKSTAND_HOME": str(tmp_path)})
    assert {path.parent for path in (paths.data, paths.cache, paths.config, paths.logs)} == {tmp_path}
    assert paths.models == tmp_path / "data" / "models"
    usual = user_paths({})
    assert usual.data.name == "inkstand"
    assert tmp_path not in usual.data.parents


@pytest.mark.parametrize("below", ["", "inside/it"])
@pytest.mark.parametrize("line", [["info"], ["models"], ["generate", "-p", "x", "-m", "someone/model"]])
def test_a_home_that_is_a_file_is_named(
    line: list[str], below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "taken"
    file.write_text("")
    monkeypatch.setenv("INKSTAND_HOME", str(file / below))
    assert main(line) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: INKSTAND_HOME is {file / below}, but {file} is not a directory.")
    assert main(["--help"]) == 0


def test_resources_are_found_inside_the_package_before_beside_it(tmp_path: Path) -> None:
    inside, beside = tmp_path / "engine" / "resources", tmp_path / "resources"
    for root in (inside, beside):
        (root / "demo_checkpoint").mkdir(parents=True)
    assert resource("demo_checkpoint", roots=[inside, beside]) == inside / "demo_checkpoint"
    (inside / "demo_checkpoint").rmdir()
    assert resource("demo_checkpoint", roots=[inside, beside]) == beside / "demo_checkpoint"


def test_a_missing_resource_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="demo_checkpoint is missing") as caught:
        resource("demo_checkpoint", roots=[tmp_path])
    assert str(tmp_path) in caught.value.title
    assert "-m" in caught.value.hint

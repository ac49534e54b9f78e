"""What is wrong with a command line is said before anything is loaded, fetched or measured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_fakes import Fakes, fakes  # noqa: F401 (a fixture)

from engine.cli.main import main
from tests.support import TINY

BENCHES = (
    ["bench"],
    ["bench", "roofline"],
    ["bench", "context"],
    ["bench", "sessions"],
    ["bench", "rounds"],
    ["parity"],
)
LONG = " ".join(["read all of this"] * 1000)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file and a folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


def refused(line: list[str], model: Fakes, capsys: pytest.CaptureFixture[str]) -> str:
    """Runs a command that must end as the user's mistake before it works; returns the message."""
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: "), err
    assert len(err.splitlines()) >= 2, "a cure follows the message"
    assert model.engine.loads == []
    return err


@pytest.mark.parametrize(
    "line",
    [
        ["generate", "-p", "hi", "-m", ""],
        ["generate", "-p", "hi", "--draft-model", ""],
        ["generate", "--messages", ""],
        ["chat", "-m", ""],
        ["plan", "a/b", "--to", ""],
        ["plan", "a/b", "--revision", ""],
        ["plan", "a/b", "--include", ""],
        ["download", "a/b", "--exclude", ""],
        ["download", "a/b", "--limit-rate", ""],
        ["models", "info", ""],
        ["models", "remove", ""],
        ["models", "cancel", ""],
        ["models", "pair", "a/b", ""],
        ["models", "move", ""],
        ["models", "folders", "--add", ""],
        ["models", "folders", "--remove", ""],
        ["convert", "", "copy"],
        ["convert", "folder", ""],
        ["inspect", ""],
        ["plan-memory", ""],
        ["plan-memory", "--config", ""],
        ["plan-memory", "--draft-model", ""],
        ["draft-vocabulary", "--from", ""],
        ["draft-vocabulary", "--from", "file", "--out", ""],
        ["draft-report", "-p", ""],
        ["bench", "--peer", ""],
        ["bench", "--work", ""],
        ["bench", "slice", "--json", ""],
        *([*bench, "-m", ""] for bench in (["draft-report"], ["draft-vocabulary", "--answers"])),
        *([*bench, "--json", ""] for bench in BENCHES),
        *([*bench, "--prompts", ""] for bench in (["bench"], ["bench", "roofline"], ["bench", "rounds"], ["parity"])),
    ],
    ids=" ".join,
)
def test_nothing_is_no_name(
    line: list[str],
    places: Path,
    fakes: Fakes,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "must not be empty" in refused(line, fakes, capsys)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["generate", "--messages", "folder"], "folder is a folder; name a file"),
        (["generate", "--messages", "none.json"], "there is no file none.json"),
        (["generate", "-p", "hi", "-m", "n" * 300], "File name too long"),
        (["plan", "a/b", "--to", "file"], "file is a file; name a folder"),
        (["plan", "a/b", "--to", "file/inside"], "file/inside cannot be written: "),
        (["download", "a/b", "--to", "~nobody-of-that-name/x"], "there is no home folder of nobody-of-that-name"),
        (["models", "move", "file"], "file is a file; name a folder"),
        (["models", "move", "new/" + "n" * 300], "cannot be written: File name too long"),
        (["models", "folders", "--add", "file"], "file is a file; name a folder"),
        (["models", "catalog", "--memory", "nan"], "above 0"),
        (["models", "catalog", "--memory", "-1"], "above 0"),
        (["convert", "folder", "file"], "file is a file; name a folder"),
        (["inspect", "file"], "file is a file"),
        (["inspect", "none"], "none is not there"),
        (["generate", "-p", "hi", "-m", "some/where"], "some/where is neither a folder nor the owner/name of a model"),
        (["plan-memory", "--config", "folder"], "folder is a folder; name a file"),
        (["draft-vocabulary", "--from", "folder"], "folder is a folder; name a file"),
        (["draft-vocabulary", "--answers", "--out", "folder"], "folder is a folder; name a file"),
        (["draft-vocabulary", "--answers", "--out", "none/ids.json"], "there is no folder none"),
        (["bench", "bogus"], "'bogus' is neither one of speed, roofline, context, sessions, rounds, slice"),
        (["bench", "--peer", "./file"], "file is no program that can be run"),
        (["bench", "--peer", "no-such-python"], "no-such-python is no program that can be run"),
        (["bench", "--work", "file"], "file is a file; name a folder"),
        (["bench", "slice", "--json", "none/x.json"], "there is no folder none"),
        (["-m", "folder"], "-m has no command before it"),
        (["--loud"], "--loud has no command before it"),
        *(([*bench, "--json", "none/x.json"], "there is no folder none") for bench in BENCHES),
        *(([*bench, "--json", "folder"], "folder is a folder; name a file") for bench in BENCHES),
        *(
            ([*bench, *wrong], said)
            for bench in (["bench"], ["bench", "roofline"], ["bench", "rounds"], ["parity"])
            for wrong, said in (
                (["--prompts", "folder"], "folder cannot be read: Is a directory"),
                (["--prompts", "none"], "none cannot be read"),
                (["--effort", "bogus"], "Unknown thinking effort 'bogus'"),
            )
        ),
        (["generate", "hello"], "A text belongs after its option, such as -p, and in quotes."),
        (["generate", "-p", "tell", "me", "more"], "Unrecognized arguments: me more."),
        (["generate", "-p", LONG], "tokens; the context holds 2048"),
        (["generate", "-p", "hi", "--context", "9"], "it takes 2048"),
        (["chat", "--system", LONG], "tokens; the context holds 2048"),
        (["chat", "--context", "9"], "it takes 2048"),
        (["plan-memory", "--no-head", "--draft-model", "folder"], "not allowed with argument --no-head"),
        (["plan-memory", "folder", "--config", "file"], "not allowed with argument MODEL"),
        (["plan-memory", "--config", "file", "--draft-model", "x"], "--draft-model has no effect with --config"),
        (["plan-memory", "--layers", "3"], "--layers has no effect without --check"),
        (["draft-report", "--quantize-rest", "4", "--draft-schedule", "chained"], "not with chained"),
        (
            ["draft-vocabulary", "--from", "file", "--dtype", "f32", "--draft-model", "x"],
            "--draft-model and --dtype have no effect without --answers",
        ),
        (["plan", "https://huggingface.co/a/b/tree/dev", "--revision", "main"], "names revision dev, --revision names"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_named(
    line: list[str],
    said: str,
    places: Path,
    fakes: Fakes,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said in refused(line, fakes, capsys)


def test_a_folder_that_cannot_be_written_is_named(
    places: Path,
    monkeypatch: pytest.MonkeyPatch,
    fakes: Fakes,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != "folder")
    said = refused(["bench", "slice", "--json", "folder/x.json"], fakes, capsys)
    assert "folder/x.json cannot be written: permission denied" in said


@pytest.mark.parametrize(
    "line",
    [
        ["models", "move", "folder/new"],
        ["plan", "a/b", "--to", "folder"],
        ["download", "a/b", "--to", "folder/new"],
        ["convert", "some/tiny", "folder/new"],
        ["bench", "--work", "folder/new", "--peer", "python3"],
    ],
    ids=" ".join,
)
def test_a_folder_for_new_files_can_be_written(
    line: list[str],
    places: Path,
    monkeypatch: pytest.MonkeyPatch,
    fakes: Fakes,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    writable = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "folder" and writable(path, mode))
    assert "folder may not be changed; name another folder" in refused(line, fakes, capsys)


def test_the_folder_of_the_peer_is_made_before_the_model_is_loaded(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.session.Engine.load", lambda *_, **__: pytest.fail("loaded"))
    assert main(["bench", "--peer", "python3", "--work", "new/" + "n" * 300]) == 2
    assert "File name too long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["bench", "--peer-threads", "2", "--work", "w"], "--peer-threads and --work have no effect without --peer"),
        (["bench", "context", "--lengths", "4,99999999999"], "A forward after 99999999999 tokens was asked for"),
        (["generate", "-p", "x", "--context", "99999999999"], "A context of 99999999999 tokens was asked for"),
        (["chat", "--context", "1"], "A context of 1 tokens was asked for"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_what_a_model_cannot_do_is_refused_before_its_weights_are_read(
    line: list[str], said: str, places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.loaded.load_model", lambda *_, **__: pytest.fail("loaded"))
    monkeypatch.setattr("engine.cli.loading.demo_checkpoint", lambda: TINY)
    assert main(line) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) >= 2


def test_a_checkpoint_without_a_template_is_refused_before_its_weights_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.loaded.load_model", lambda *_, **__: pytest.fail("loaded"))
    for line in (["chat"], ["generate", "--system", "short", "-p", "x"]):
        assert main([*line, "-m", str(TINY)]) == 2
        assert "no chat template" in capsys.readouterr().err


def test_a_folder_that_is_gone_can_be_taken_off_the_list(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "folders", "--add", "folder"]) == 0
    assert str(places / "folder") in capsys.readouterr().out
    (places / "folder").rmdir()
    (places / "folder").touch()
    assert main(["models", "folders", "--remove", "folder"]) == 0
    assert str(places / "folder") not in capsys.readouterr().out

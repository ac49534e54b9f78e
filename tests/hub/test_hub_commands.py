"""`inkstand download`, `plan` and `models`, as a user types them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_hub import TOKEN, FakeHub, Fault
from huggingface_hub import constants

from engine.cli.main import main
from engine.cli.units import duration, size
from engine.hub.storage import lock_folder
from tests.processes import as_a_terminal_starts_it

ROOT = Path(__file__).parents[2]
FILES = {p.name: p.read_bytes() for p in (ROOT / "tests" / "data" / "inkling-tiny").iterdir()}
REPO = "owner/tiny"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs a command in this process; returns its exit code and what it printed."""
    # Both are made from HF_ENDPOINT when huggingface_hub is imported.
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf-cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    hub.push(REPO, FILES)

    def run(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def models_folder(home: Path) -> Path:
    return home / "data" / "models"


def test_a_downloaded_checkpoint_loads_and_generates(run: Run, inkstand_home: Path) -> None:
    code, out, err = run("download", REPO)
    assert code == 0
    assert out.strip() == str(models_folder(inkstand_home) / REPO)
    assert "7 files, 2.46 MB; 2.46 MB to fetch." in err
    code, out, _ = run("generate", "-m", out.strip(), "-p", "hi", "-n", "5", "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["completion_tokens"] == len(answer["token_ids"]) > 0
    assert answer["draft"]["effective"] == "mtp"


def test_include_fetches_just_these(run: Run, hub: FakeHub, inkstand_home: Path) -> None:
    code, _, _ = run("download", REPO, "--include", "config.json", "--include", "mtp.safetensors")
    assert code == 0
    folder = models_folder(inkstand_home) / REPO
    assert {p.name for p in folder.iterdir()} == {"config.json", "mtp.safetensors", ".inkstand.json"}
    assert hub.sent() == len(FILES["config.json"]) + len(FILES["mtp.safetensors"])


def test_lines_of_json(run: Run, tmp_path: Path) -> None:
    code, out, err = run("download", REPO, "--mtp-head", "--to", str(tmp_path / "head"), "--json")
    assert (code, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert events[0]["event"] == "plan"
    assert {e["event"] for e in events[1:-1]} == {"progress"}
    assert (events[-1]["event"], events[-1]["state"]) == ("end", "ready")
    assert {e["total"] for e in events} == {len(FILES["config.json"]) + len(FILES["mtp.safetensors"])}
    # A folder outside of the models folder is looked into from now on.
    assert json.loads(run("models", "list", "--json")[1])["models"][0]["path"] == str(tmp_path / "head")


def test_a_plan_fetches_nothing(run: Run, hub: FakeHub, inkstand_home: Path) -> None:
    code, out, _ = run("plan", REPO)
    assert code == 0
    assert "model-00001-of-00001.safetensors" in out
    assert "7 files, 2.46 MB; 2.46 MB to fetch." in out
    assert json.loads(run("plan", REPO, "--mtp-head", "--json")[1])["total"] < 600_000
    assert not models_folder(inkstand_home).exists()
    assert hub.sent() < 100_000


def test_refusals_say_what_to_do(run: Run, hub: FakeHub) -> None:
    hub.push("owner/gated", FILES)
    hub.repos["owner/gated"].gated = True
    texts = [run("download", "owner/none"), run("plan", "owner/gated"), run("plan", REPO, "--revision", "v9")]
    assert [code for code, _, _ in texts] == [2, 2, 2]
    assert "no repository owner/none" in texts[0][2]
    assert "Accept the terms" in texts[1][2]
    assert "no revision 'v9'" in texts[2][2]
    assert not [err for _, _, err in texts if "Traceback" in err]
    code, out, _ = run("download", "owner/gated", "--json")
    assert code == 2
    assert {"event": "error", "code": "gated"}.items() <= json.loads(out).items()
    assert run("plan", "nonsense")[0] == run("download", REPO, "--limit-rate", "fast")[0] == 2


def test_a_download_that_fails_exits_with_2(run: Run, hub: FakeHub) -> None:
    hub.fault = lambda request: Fault(flip=3) if request.file == "mtp.safetensors" else None
    code, _, err = run("download", REPO, "--connections", "1")
    assert code == 2
    assert "mtp.safetensors arrived damaged" in err
    code, out, _ = run("models")
    assert "incomplete" in out
    assert "owner/tiny: failed" in out
    assert "mtp.safetensors arrived damaged" in out
    assert "`inkstand models cancel MODEL` takes it off the list" in out


def failed_download(run: Run, hub: FakeHub, *more: str) -> None:
    hub.fault = lambda request: Fault(flip=3) if request.file == "mtp.safetensors" else None
    assert run("download", REPO, "--connections", "1", *more)[0] == 2
    hub.fault = lambda request: None


@pytest.mark.parametrize("name", [REPO, "TINY", "folder"])
def test_a_failed_download_is_taken_off_the_list(name: str, run: Run, hub: FakeHub, inkstand_home: Path) -> None:
    failed_download(run, hub)
    folder = models_folder(inkstand_home) / REPO
    kept = {p.name for p in folder.iterdir()}
    code, out, _ = run("models", "cancel", str(folder) if name == "folder" else name)
    assert (code, out) == (0, f"The download of {REPO} is cancelled. What was fetched is kept.\n")
    assert {p.name for p in folder.iterdir()} == kept
    assert "failed" not in run("models")[1]
    code, _, err = run("models", "cancel", REPO)
    assert code == 2
    assert f"There is no unfinished download of {REPO}" in err
    sent = hub.sent()
    assert run("download", REPO)[0] == 0
    assert hub.sent() - sent < 700_000, "what is kept is not fetched again"


def test_what_a_failed_download_fetched_is_deleted_when_asked_for(run: Run, hub: FakeHub, inkstand_home: Path) -> None:
    failed_download(run, hub)
    code, _, err = run("models", "cancel", REPO, "--delete")
    assert code == 2
    assert "Add --yes" in err
    assert "failed" in run("models")[1]
    code, out, _ = run("models", "cancel", REPO, "--delete", "--yes")
    assert code == 0
    assert "MB freed." in out
    assert not models_folder(inkstand_home).exists() or not list(models_folder(inkstand_home).iterdir())
    assert "No models yet" in run("models")[1]


def test_a_download_to_several_folders_is_cancelled_by_folder(run: Run, hub: FakeHub, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        failed_download(run, hub, "--to", str(tmp_path / folder))
    code, _, err = run("models", "cancel", REPO)
    assert code == 2
    assert str(tmp_path / "one") in err
    assert str(tmp_path / "two") in err
    assert run("models", "cancel", str(tmp_path / "two"))[0] == 0
    assert run("models", "cancel", REPO)[0] == 0


def test_a_download_of_which_nothing_is_there_is_cancelled_and_not_removed(
    run: Run, hub: FakeHub, tmp_path: Path
) -> None:
    failed_download(run, hub, "--to", str(tmp_path / "gone"))
    shutil.rmtree(tmp_path / "gone")
    code, _, err = run("models", "remove", REPO, "--yes")
    assert code == 2
    assert "inkstand models cancel" in err


def test_a_running_download_is_not_cancelled_from_elsewhere(run: Run, hub: FakeHub, inkstand_home: Path) -> None:
    failed_download(run, hub)
    with lock_folder(inkstand_home / "data" / "downloads", models_folder(inkstand_home) / REPO):
        code, _, err = run("models", "cancel", REPO)
    assert code == 2
    assert "is being downloaded" in err
    assert "failed" in run("models")[1]


def test_a_plan_with_everything_there_says_so(run: Run, hub: FakeHub, inkstand_home: Path) -> None:
    run("download", REPO)
    assert "Everything is here: 7 files, 2.46 MB. Nothing is to be fetched." in run("plan", REPO)[1]
    code, _, err = run("download", REPO)
    assert code == 0
    assert "Everything is here: 7 files, 2.46 MB. Nothing is to be fetched.\n" in err
    os.utime(models_folder(inkstand_home) / REPO / "config.json")
    assert "Everything is here: 7 files, 2.46 MB; to be verified: 1." in run("plan", REPO)[1]


def test_looking_after_models(run: Run, inkstand_home: Path, tmp_path: Path) -> None:
    assert "No models yet" in run("models")[1]
    run("download", REPO)
    listing = run("models", "list")[1].splitlines()
    assert listing[0].split() == ["MODEL", "STATE", "SIZE", "KIND", "MTP", "HEAD", "FROM"]
    assert listing[1].split() == [REPO, "ready", "2.47", "MB", "float32", "own", "inkstand"]
    info = run("models", "info", "tiny")[1]
    for part in ("published", "float32", "3 depths", "checked by checksum", "main at "):
        assert part in info
    assert run("models", "verify", REPO) == (0, f"{REPO}: 7 files are as downloaded.\n", "")
    assert run("models", "pair", REPO, "--none")[1] == f"{REPO}: none\n"
    assert run("models", "pair", REPO, "--auto")[1] == f"{REPO}: own\n"
    assert run("models", "move", str(tmp_path / "new"))[0] == 0
    assert run("models", "folders")[1] == f"{tmp_path / 'new'}\n"
    (tmp_path / "new" / REPO / "tokenizer.json").write_text("{}")
    code, out, err = run("models", "verify", REPO)
    assert code == 2
    assert "damaged: tokenizer.json" in out
    assert "inkstand download owner/tiny" in err
    assert run("models", "remove", REPO)[0] == 2  # nobody is there to confirm
    code, out, _ = run("models", "remove", REPO, "--yes")
    assert code == 0
    assert "MB freed" in out
    assert "No models yet" in run("models")[1]
    assert run("models", "info", REPO)[0] == 2


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "it holds no files"),
        ({"pytorch_model.bin": b"1", "run.py": b"2"}, "pytorch_model.bin (may hold a pickle"),
        ({"config.json": b"{}", "sub/model.safetensors": b"1"}, "all in subfolders"),
    ],
)
def test_a_repository_with_nothing_to_load(
    run: Run, hub: FakeHub, inkstand_home: Path, files: dict[str, bytes], said: str
) -> None:
    hub.push("owner/other", files)
    code, out, _ = run("plan", "owner/other")
    assert code == 0
    assert "Nothing in owner/other can be loaded" in out
    assert said in out
    code, out, err = run("download", "owner/other")
    assert code == 2
    assert said in err
    assert "chat" not in out + err
    assert not models_folder(inkstand_home).exists()
    assert json.loads(run("download", "owner/other", "--json")[1].splitlines()[-1])["code"] == "selection"


def test_chosen_files_come_all_the_same_without_a_word_of_chatting(run: Run, hub: FakeHub) -> None:
    hub.push("owner/other", {"config.json": b"{}", "pytorch_model.bin": b"1"})
    code, out, err = run("download", "owner/other", "--include", "config.json")
    assert code == 0
    assert "inkstand chat" not in out + err
    assert "cannot be loaded" in err
    code, _, err = run("generate", "-m", "owner/other", "-p", "hi")
    assert code == 2
    assert "inkstand download" not in err


def test_chat_by_name_in_the_librarys_folder_and_by_path_elsewhere(run: Run, tmp_path: Path) -> None:
    assert f"inkstand chat -m {REPO}\n" in run("download", REPO)[2]
    assert f"inkstand chat -m '{tmp_path / 'my models'}'\n" in run("download", REPO, "--to", f"{tmp_path}/my models")[2]


def test_a_folder_that_cannot_be_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path / "locked")  # root may write anywhere
    for folder, why in (("file/model", f"{tmp_path / 'file'} is a file"), ("locked/model", "may not be changed")):
        for command in ("plan", "download"):
            code, out, err = run(command, REPO, "--to", str(tmp_path / folder))
            assert code == 2
            assert f"{tmp_path / folder} cannot be written" in err
            assert why in err
            assert "volume" not in out + err


def test_one_file_is_no_files(run: Run) -> None:
    assert "1 file, " in run("plan", REPO, "--include", "config.json")[1]
    run("download", REPO, "--include", "config.json")
    assert "1 file is as downloaded" in run("models", "verify", REPO)[1]


def test_the_catalog(run: Run) -> None:
    assert "thinkingmachines/Inkling-Small-NVFP4" in run("models", "catalog")[1]
    assert [row["repo"] for row in json.loads(run("models", "catalog", "--memory", "16", "--json")[1])] == [
        "inference-optimization/Inkling-0.6B-A0.6B"
    ]


def test_ctrl_c_pauses_and_the_same_command_continues(hub: FakeHub, tmp_path: Path) -> None:
    """In a process of its own, which also shows that the variables of the environment count."""
    weights = os.urandom(3_000_000)
    hub.push("owner/private", {"config.json": b"{}", "model.safetensors": weights})
    hub.repos["owner/private"].private = True
    hub.slice = 1 << 13
    hub.fault = lambda request: Fault(rate=1e6)
    command = [sys.executable, "-m", "app", "download", "owner/private", "--json"]
    environ = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "INKSTAND_HOME": str(tmp_path)}
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_a_terminal_starts_it,  # noqa: PLW1509
    )
    while hub.sent("model.safetensors") < 1_000_000 and child.poll() is None:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130, err
    end = json.loads(out.splitlines()[-1])
    assert (end["event"], end["state"]) == ("end", "paused")
    assert end["done"] > 500_000
    hub.fault = lambda request: None
    since = len(hub.log)
    again = subprocess.run([*command[:-1]], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert Path(again.stdout.strip(), "model.safetensors").read_bytes() == weights
    assert f"{size(end['done'])} of it there already" in again.stderr
    assert hub.sent("model.safetensors", since=since) == len(weights) + 2 - end["done"]


def test_units() -> None:
    assert [size(n) for n in (0, 999, 1000, 12_345, 999_999, 4_463_000_000, 1.9047e12)] == [
        "0 B", "999 B", "1.00 kB", "12.3 kB", "1.00 MB", "4.46 GB", "1.90 TB",
    ]  # fmt: skip
    assert [duration(s) for s in (0, 47.6, 185, 3600, 7805, 97200)] == [
        "0 s", "48 s", "3 min 5 s", "1 h", "2 h 10 min", "1 d 3 h",
    ]  # fmt: skip

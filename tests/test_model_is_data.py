"""A model directory is data: whatever lies in it, nothing of it runs, and nothing leaves the program's folders."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import TINY

WATCH = """
import json, os, sys
seen = []
def watch(event, arguments):
    if event == "open" and arguments[0] is not None and not isinstance(arguments[0], int):
        path, mode, flags = arguments
        writing = any(c in (mode or "") for c in "wax+") if mode else bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
        seen.append(["write" if writing else "read", os.fsdecode(path)])
    elif event == "subprocess.Popen":
        seen.append([event, str(arguments[0])])
    elif event.split(".")[0] in ("socket", "pickle", "shutil", "ftplib", "urllib"):
        seen.append([event, ""])
    elif event in {"os." + name for name in "system exec posix_spawn remove rename mkdir link symlink".split()}:
        seen.append([event, os.fsdecode(arguments[0])])
sys.addaudithook(watch)
sys.argv[0] = "inkstand"
from engine.cli.main import main
code = main(sys.argv[1:])
sys.stderr.write("WATCHED" + json.dumps(seen))
raise SystemExit(code)
"""


FINE = {os.devnull, "/usr/bin/vm_stat"}
"""What asks macOS how much memory is free."""


class Bomb:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.mark),))


@pytest.fixture
def armed(tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint full of things that other loaders run, and the mark that is made when one of them does."""
    directory, mark = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(TINY, directory)
    code = f"import os\nos.mkdir({str(mark)!r})\n"
    for name in ("modeling_inkling.py", "configuration_inkling.py", "sitecustomize.py", "__init__.py", "mlx.py"):
        (directory / name).write_text(code, encoding="utf-8")
    for name in ("pytorch_model.bin", "training_args.bin", "weights.npz", "tokenizer.pkl"):
        (directory / name).write_bytes(pickle.dumps(Bomb(mark)))
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    config |= {"auto_map": {"AutoModelForCausalLM": "modeling_inkling.Model"}, "trust_remote_code": True}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory, mark


@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_nothing_of_it_runs_connects_or_writes_elsewhere(
    command: str, armed: tuple[Path, Path], inkstand_home: Path
) -> None:
    directory, mark = armed
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    line = (
        ["inspect", str(directory)]
        if command == "inspect"
        else ["generate", "-m", str(directory), "-n", "6", "-p", "a"]
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *line],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    events = json.loads(done.stderr.split("WATCHED", 1)[1])
    assert not mark.exists()
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before
    read = {Path(path).name for kind, path in events if kind == "read" and Path(path).parent == directory}
    assert "config.json" in read
    assert {Path(name).suffix for name in read} <= {".json", ".safetensors", ".jinja"}
    elsewhere = [
        (kind, path)
        for kind, path in events
        if kind != "read" and not Path(path).is_relative_to(inkstand_home) and path not in FINE
    ]
    assert elsewhere == []

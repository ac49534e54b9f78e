"""A model directory is data: whatever lies in it, nothing of it runs, and nothing leaves the program's folders."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from guard import guard
from support import TINY

from engine.errors import UserError
from engine.loaded import Engine

ROOT = Path(__file__).parents[1]
WATCH = """
import json, sys
from pathlib import Path
from guard import guard
home, data, *line = sys.argv[1:]
sys.argv = ["inkstand", *line]
notes = guard()
with notes.watch(writable=[Path(home)], data=Path(data)):
    from engine.cli.main import main
    code = main(line)
sys.stderr.write("WATCHED" + json.dumps([notes.seen, notes.read]))
raise SystemExit(code)
"""


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


COMMANDS = {
    "generate": ["generate", "-m", "MODEL", "-n", "6", "-p", "a"],
    "inspect": ["inspect", "MODEL"],
    "plan-memory": ["plan-memory", "MODEL", "--check"],
    "convert": ["convert", "MODEL", "HOME/converted", "-q", "8"],
    "models": ["models", "list"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_it_runs_connects_or_writes_elsewhere(
    command: str, armed: tuple[Path, Path], inkstand_home: Path, tmp_path: Path
) -> None:
    directory, mark = armed
    if command == "models":
        library = inkstand_home / "data" / "models" / "somebody"
        library.mkdir(parents=True)
        directory = directory.rename(library / "model")
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    line = [word.replace("MODEL", str(directory)).replace("HOME", str(inkstand_home)) for word in COMMANDS[command]]
    done = started(line, directory, inkstand_home, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    seen, read = json.loads(done.stderr.split("WATCHED", 1)[1])
    assert not mark.exists()
    assert seen == []
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before
    names = {Path(path).name for path in read if Path(path).parent == directory}
    assert "config.json" in names
    assert {Path(name).suffix for name in names} <= {".json", ".safetensors", ".jinja"}
    if command == "convert":
        made = {path.suffix for path in (inkstand_home / "converted").iterdir()}
        assert made <= {".json", ".safetensors", ".jinja", ".txt", ".md", ""}


def started(line: list[str], inside: Path, home: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """A command that is watched, with the model's own folder as the current one."""
    script = scratch / "watch" / "watched.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(WATCH, encoding="utf-8")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.run(
        [sys.executable, script, home, inside, *line],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": paths},
        cwd=inside,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("place", ["config.json", "model-00001-of-00001.safetensors"])
def test_a_pipe_in_the_place_of_what_is_needed_is_not_waited_for(place: str, armed: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match=re.escape(place)):
        Engine.load(piped(armed[0], place))


@pytest.mark.parametrize("place", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_pipe_in_the_place_of_a_text_is_not_waited_for(place: str, armed: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match=f"{re.escape(place)} cannot be read: it is not a file"):
        Engine.load(piped(armed[0], place))


@pytest.mark.parametrize("place", ["generation_config.json", "hf_quant_config.json", "model.safetensors.index.json"])
def test_a_pipe_in_the_place_of_what_can_be_missing_is_passed_over(place: str, armed: tuple[Path, Path]) -> None:
    assert Engine.load(piped(armed[0], place)).backbone is not None


def piped(directory: Path, name: str) -> Path:
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    return directory


def test_the_watch_notices_what_it_is_there_for(tmp_path: Path) -> None:
    data, allowed, elsewhere = tmp_path / "data", tmp_path / "allowed", tmp_path / "elsewhere"
    for folder in (data, allowed, elsewhere):
        folder.mkdir()
    (data / "evil.py").write_text("x = 1", encoding="utf-8")
    notes = guard()
    with notes.watch(writable=[allowed], data=data):
        (allowed / "fine").write_bytes(b"")
        (data / "evil.py").read_bytes()
        (elsewhere / "file").write_bytes(b"")
        (elsewhere / "file").unlink()
        (elsewhere / "folder").mkdir()
        (data / "evil.py").rename(elsewhere / "evil.py")
        exec(compile("x = 1", str(data / "evil.py"), "exec"))
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        subprocess.run([sys.executable, "-c", ""], check=True)
        pickle.loads(pickle.dumps(Bomb(allowed / "ran")))
    kinds = [kind for kind, _ in notes.seen]
    assert str(data / "evil.py") in notes.read
    assert kinds.count("write") == 1
    assert set(kinds) >= {"os.remove", "os.mkdir", "os.rename", "compile", "exec", "socket.connect", "subprocess.Popen"}
    assert "pickle.find_class" in kinds
    (elsewhere / "later").write_bytes(b"")
    assert len(notes.seen) == len(kinds)

"""The program started twice: one window per data folder, whatever became of the process that had it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from disks import ReadOnly, SmallDisk

from app.instance import LOCK, claim
from engine.errors import UserError
from engine.paths import user_paths
from tests.processes import holding

ROOT = Path(__file__).parents[2]
_HOLDER = """
import sys, time
from pathlib import Path
from app.instance import claim
instance = claim(Path(sys.argv[1]))
assert instance is not None
print("holds", flush=True)
time.sleep(60)
"""


def held(folder: Path) -> bool:
    """Whether another process is refused."""
    try:
        instance = claim(folder, answer_s=0.05, leave_s=0.1)
    except UserError:
        return True
    assert instance is not None
    instance.close()
    return False


def test_the_second_one_shows_the_window_of_the_first(tmp_path: Path, wait: Callable[..., None], qapp: object) -> None:
    first = claim(tmp_path)
    assert first is not None
    shown: list[int] = []
    first.listen(lambda: shown.append(1))
    results: list[object] = []
    for count in (1, 2):
        second = threading.Thread(target=lambda: results.append(claim(tmp_path)))
        second.start()
        wait(lambda second=second: not second.is_alive())
        assert results == [None] * count
        assert len(shown) == count
    first.close()
    assert not held(tmp_path)


def test_one_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with holding(_HOLDER, tmp_path) as process:
        began = time.monotonic()
        with pytest.raises(UserError) as caught:
            claim(tmp_path, answer_s=0.2)
        assert time.monotonic() - began < 5
        assert f"process {process.pid}" in caught.value.title
        assert str(tmp_path) in caught.value.title
        assert "end the process" in caught.value.hint
        assert "INKSTAND_HOME" in caught.value.hint


def test_a_killed_one_is_not_in_the_way(tmp_path: Path) -> None:
    with holding(_HOLDER, tmp_path) as process:
        assert held(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not held(tmp_path)


def test_one_that_is_quitting_is_waited_for(tmp_path: Path) -> None:
    first = claim(tmp_path)
    assert first is not None
    first.stop_listening()
    threading.Timer(0.3, first.close).start()
    second = claim(tmp_path)
    assert second is not None
    second.close()


def test_folders_of_their_own_do_not_meet(tmp_path: Path) -> None:
    instances = [claim(tmp_path / name) for name in ("one", "two", "a" * 200)]
    assert None not in instances
    assert all(held(tmp_path / name) for name in ("one", "two", "a" * 200))
    for instance in instances:
        assert instance is not None
        instance.close()


def test_a_link_to_the_folder_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with holding(_HOLDER, tmp_path / "data"):
        assert held(tmp_path / "link")


TEXTS = ["", "{", "[]", '{"pid": "x"}', "\0" * 100, '{"pid": 1, "host": 2, "user": 3}', '{"pid": 1e999}', "[" * 4096]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:12])
def test_what_is_written_in_the_lock_counts_for_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(text)
    assert not held(tmp_path)
    with holding(_HOLDER, tmp_path):
        (tmp_path / LOCK).write_text(text)
        with pytest.raises(UserError, match="already running"):
            claim(tmp_path, answer_s=0.05, leave_s=0.1)


def test_one_of_another_user_on_another_machine_is_named(tmp_path: Path) -> None:
    with holding(_HOLDER, tmp_path):
        facts = {"pid": 4711, "host": "elsewhere", "user": "someone", "address": "/nowhere/at/all"}
        (tmp_path / LOCK).write_text(json.dumps(facts))
        with pytest.raises(UserError, match="process 4711 of someone on elsewhere"):
            claim(tmp_path, answer_s=0.05, leave_s=0.1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_the_lock_of_another_user_is_seen(public_folder: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from app.instance import claim; os.setuid(65534)\n"
        "try:\n    claim(Path(sys.argv[1]), answer_s=0.05, leave_s=0.1)\nexcept Exception as error:\n    print(error)\n"
    )
    with holding(_HOLDER, public_folder) as process:
        done = subprocess.run(
            [sys.executable, "-c", program, str(public_folder)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert f"process {process.pid} of root" in done.stdout


def test_a_folder_that_cannot_be_written_needs_no_lock(tmp_path: Path, read_only: ReadOnly) -> None:
    read_only(tmp_path)
    for folder in (tmp_path, tmp_path / "data"):
        instance = claim(folder)
        assert instance is not None
        instance.close()
    (tmp_path.parent / "file").write_text("mine")
    assert claim(tmp_path.parent / "file" / "data") is not None


def test_a_full_disk_does_not_keep_it_from_starting(small_disk: SmallDisk) -> None:
    small_disk.fill()
    instance = claim(small_disk.root / "data")
    assert instance is not None
    instance.close()


def test_a_socket_that_is_nobodys_is_replaced(tmp_path: Path) -> None:
    first = claim(tmp_path)
    assert first is not None
    address = json.loads((tmp_path / LOCK).read_text())["address"]
    first.close()
    assert not Path(address).exists()
    Path(address).touch()
    second = claim(tmp_path)
    assert second is not None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
    second.close()


def test_a_socket_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"inkstand-{os.getuid()}").symlink_to(tmp_path)
    first = claim(tmp_path / "data")
    assert first is not None
    assert json.loads((tmp_path / "data" / LOCK).read_text())["address"] == ""
    assert held(tmp_path / "data")
    first.close()


# -- the program ----------------------------------------------------------------------------------


def start(*arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    return subprocess.Popen(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_open(process: subprocess.Popen[str]) -> None:
    """Return once its window answers."""
    lock = user_paths().data / LOCK
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        if lock.exists() and lock.stat().st_size and json.loads(lock.read_text())["pid"] == process.pid:
            return
        time.sleep(0.02)
    pytest.fail("the window did not open")


@pytest.mark.slow
def test_the_program_started_twice_and_after_a_kill(inkstand_home: Path) -> None:
    first = start()
    try:
        until_open(first)
        second = start()
        output, errors = second.communicate(timeout=60)
        assert second.returncode == 0, errors
        assert output == "Inkstand is open already; its window was brought to the front.\n"
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    third = start()
    try:
        until_open(third)
        # Once it answers, it is all there.
        assert claim(user_paths().data, answer_s=60) is None
    finally:
        third.kill()
        third.communicate()


@pytest.mark.slow
def test_a_stopped_program_is_named_and_the_history_left_alone(inkstand_home: Path) -> None:
    with holding(_HOLDER, user_paths().data) as process:
        second = start()
        output, errors = second.communicate(timeout=60)
        assert second.returncode == 2
        assert output == ""
        assert errors.startswith("error: Inkstand is already running with")
        assert f"process {process.pid}" in errors
        assert "its window does not answer" in errors
    assert sorted(path.name for path in user_paths().data.iterdir()) == [LOCK]


@pytest.mark.slow
def test_being_asked_to_end_is_quitting(inkstand_home: Path) -> None:
    program = start()
    try:
        until_open(program)
        # Once it answers, its event loop runs.
        assert claim(user_paths().data, answer_s=60) is None
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=60)
        assert program.returncode == 0, errors
    finally:
        program.kill()
        program.wait()
    settings = json.loads((user_paths().config / "settings.json").read_text())
    assert settings["window_state"], "quitting keeps the window's places"

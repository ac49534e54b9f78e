"""Locks between processes: who has one is named, a killed holder is not in the way, and no file is trusted."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.hub.errors import BusyError
from engine.hub.jobs import lock_download
from engine.hub.library_settings import SettingsFile
from engine.locks import FileLock, HeldError, Holder
from engine.weights.convert import convert
from engine.weights.recipe import Recipe, setting
from tests.processes import holding
from tests.support import TINY

_HOLDER = """
import sys, time
from pathlib import Path
from engine.locks import FileLock
with FileLock(Path(sys.argv[1])).acquire():
    print("holds", flush=True)
    time.sleep(60)
"""


def held(path: Path) -> bool:
    try:
        FileLock(path).acquire().release()
    except HeldError:
        return True
    return False


def test_the_holder_is_named_and_a_killed_one_is_not_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holding(_HOLDER, path) as process:
        with pytest.raises(HeldError) as caught:
            FileLock(path).acquire()
        assert caught.value.holder.pid == process.pid
        assert caught.value.holder.name.startswith(f"process {process.pid} of ")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not held(path)


def test_two_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first = FileLock(path).acquire()
    assert held(path)
    first.release()
    first.release()
    assert not held(path)


def test_a_lock_is_waited_for_as_long_as_was_said(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first = FileLock(path).acquire()
    began = time.monotonic()
    with pytest.raises(HeldError):
        FileLock(path).acquire(wait_s=0.2)
    assert 0.2 <= time.monotonic() - began < 5
    threading.Timer(0.2, first.release).start()
    with FileLock(path).acquire(wait_s=20) as second:
        assert second.held


def test_a_file_that_its_holder_removed_is_no_lock_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lock"
    first, flock = FileLock(path).acquire(), fcntl.flock

    def late(file: int, how: int) -> None:
        # Opened while the first had it, locked after it was gone.
        first.release(remove=True)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    second = FileLock(path).acquire()
    monkeypatch.undo()
    assert path.exists()
    assert held(path)
    second.release(remove=True)
    assert not path.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_done_without(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = FileLock(tmp_path / "a.lock").acquire()
    assert not lock.held
    lock.release(remove=True)
    assert not (tmp_path / "a.lock").exists()


def test_what_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "none" / "a.lock").acquire()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "\0" * 9000])
def test_what_stands_in_the_file_counts_for_nothing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text(text)
    assert not held(path)
    with FileLock(path).acquire():
        path.write_text(text)
        with pytest.raises(HeldError) as caught:
            FileLock(path).acquire()
        assert caught.value.holder == Holder()
        assert caught.value.holder.name == "another process"


_SILENT_HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("holds", flush=True)
time.sleep(60)
"""
"""Has the lock on a file that it may read only, and so names nobody there."""


@pytest.mark.parametrize("left", ["ended", "nobody", "elsewhere", "alive"])
def test_a_holder_that_has_ended_is_not_named(left: str, tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holding(_HOLDER, path) as process:
        pass
    host = "elsewhere" if left == "elsewhere" else socket.gethostname()
    pid = {"nobody": -1, "alive": os.getpid()}.get(left, process.pid)
    named = Holder(pid, host, "root", "/run/window")
    path.write_text(json.dumps(asdict(named)))
    with holding(_SILENT_HOLDER, path), pytest.raises(HeldError) as caught:
        FileLock(path).acquire()
    assert caught.value.holder == (named if left in ("elsewhere", "alive") else Holder())


def test_a_file_of_another_user_is_replaced_and_names_the_new_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lock"
    path.write_text(json.dumps(asdict(Holder(1, socket.gethostname(), "root"))))
    path.chmod(0o444)
    opened = os.open

    def checked(name: str | Path, flags: int, mode: int = 0o777) -> int:
        # As for anybody but root, who may write what nobody may.
        if Path(name) == path and path.exists() and not path.stat().st_mode & 0o200 and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(name, flags, mode)

    monkeypatch.setattr(os, "open", checked)
    with FileLock(path).acquire() as first:
        assert first.held
        with pytest.raises(HeldError) as caught:
            FileLock(path).acquire()
        assert caught.value.holder.pid == os.getpid()
    assert not held(path)

    # Where it cannot be replaced, it still locks.
    path.chmod(0o444)
    monkeypatch.setattr(Path, "unlink", lambda self, **_: (_ for _ in ()).throw(PermissionError(errno.EPERM, "no")))
    with FileLock(path).acquire() as second:
        assert second.held
        assert held(path)


def test_whoever_is_in_the_way_is_named_to_the_user(tmp_path: Path) -> None:
    recipe = Recipe(setting(8, 32), {})
    with holding(_HOLDER, tmp_path / ".copy.converting.lock") as process, pytest.raises(UserError) as caught:
        convert(TINY, tmp_path / "copy", recipe)
    assert f"is being written by process {process.pid} of " in caught.value.title
    convert(TINY, tmp_path / "copy", recipe)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]

    first = lock_download(tmp_path / "journals", tmp_path / "m")
    with pytest.raises(BusyError, match="m is being downloaded\\."):
        lock_download(tmp_path / "journals", tmp_path / "m")
    first.release()
    (lock,) = (tmp_path / "journals").glob("*.lock")
    with (
        holding(_HOLDER, lock) as process,
        pytest.raises(BusyError, match=f"m is being downloaded by process {process.pid} of "),
    ):
        lock_download(tmp_path / "journals", tmp_path / "m")


def test_the_settings_of_the_library_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.hub.library_settings._TURN_S", 0.2)
    file = SettingsFile(tmp_path / "library.json")
    with (
        holding(_HOLDER, tmp_path / "library.lock") as process,
        pytest.raises(BusyError, match=f"in use by process {process.pid} of "),
        file.change(),
    ):
        pass
    with file.change() as settings:
        settings.folders = ["/elsewhere"]
    assert file.read().folders == ["/elsewhere"]

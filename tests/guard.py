"""Notices what a process does beyond computing: writes, connections, programs, code that lies in a data folder."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

FINE = frozenset({os.devnull, "/usr/bin/vm_stat"})
"""What asks macOS how much memory is free is a program."""
_CHANGES = frozenset(
    ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown")
)
_NETWORK = frozenset(
    ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname")
)
_PROGRAMS = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"))
_CODE = frozenset(("compile", "exec", "import", "ctypes.dlopen"))
_ALWAYS = _NETWORK | _PROGRAMS | {"pickle.find_class", "webbrowser.open", "ftplib.connect", "urllib.Request"}


class Guard:
    """An audit hook, of which Python never lets go: one for the whole process, switched on by `watch`.

    Attributes:
        seen: (event, what it is about) of everything that was not allowed.
        read: files that were opened for reading.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.read: list[str] = []
        self._writable: tuple[Path, ...] = ()
        self._data: Path | None = None
        self._on = False
        sys.addaudithook(self._hook)

    @contextmanager
    def watch(self, *, writable: Sequence[Path] = (), data: Path | None = None) -> Iterator[None]:
        """Takes notes inside the block.

        Args:
            writable: folders in which files may be written.
            data: folder of which nothing may be run as code; its chat template is compiled, by the sandbox.
        """
        self.seen, self.read = [], []
        self._writable, self._data, self._on = tuple(map(_resolved, writable)), data and _resolved(data), True
        try:
            yield
        finally:
            self._on = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on:
            return
        if event == "open":
            self._opened(*arguments)
        elif event in _ALWAYS:
            self.seen.append((event, str(arguments[:2])))
        elif event in _CHANGES or event == "sqlite3.connect":
            # The second path of rename and link; os.mkdir has a mode there.
            for path in (argument for argument in arguments[:2] if isinstance(argument, str | bytes)):
                self._changed(event, path)
        elif event in _CODE and self._data is not None:
            self._ran(event, arguments)

    def _opened(self, path: object, mode: str | None, flags: int | None) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        if any(c in (mode or "") for c in "wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self._changed("write", os.fspath(path))
        else:
            self.read.append(os.fsdecode(path))

    def _changed(self, event: str, path: str | bytes) -> None:
        name = os.fsdecode(path)
        if name in FINE or name == ":memory:":
            return
        place = _resolved(Path(name))
        if not any(place.is_relative_to(folder) for folder in self._writable):
            self.seen.append((event, name))

    def _ran(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec":
            names = [arguments[0].co_filename] if isinstance(arguments[0], CodeType) else []
        else:
            names = [name for name in arguments[:2] if isinstance(name, str | bytes)]
        for name in map(os.fsdecode, names):
            if name.startswith(str(self._data)) and not name.endswith((".jinja", "tokenizer_config.json")):
                self.seen.append((event, name))


def _resolved(path: Path) -> Path:
    # Not Path.resolve: a name with a null character, or a loop of links, is no reason to fail here.
    return Path(os.path.abspath(path))  # noqa: PTH100


@cache
def guard() -> Guard:
    """The one of this process."""
    return Guard()


@contextmanager
def confined(*folders: Path, data: Path | None = None) -> Iterator[None]:
    """Fails when the block connects, starts a program, or writes outside of these folders."""
    notes = guard()
    with notes.watch(writable=folders, data=data):
        yield
    assert not notes.seen, notes.seen


def scratch() -> Path:
    """A folder of this process for files that are made over and over, in memory where there is such a place."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="inkstand-fuzz-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder

"""Disks that are small, and folders that cannot be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

ReadOnly = Callable[[Path], None]
SIZE_KB = 4096


def _mount(*arguments: str | Path) -> None:
    done = subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")


def _unmount(place: Path) -> None:
    # Lazily: a test that fails may have left a file open.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


class SmallDisk:
    """A file system of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self) -> None:
        """Leave no block."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12):
                try:
                    while file.write(b"\0" * size) == size:
                        pass
                except OSError:
                    continue

    def make_room(self) -> None:
        self._ballast.unlink()


@contextmanager
def small(place: Path) -> Iterator[SmallDisk]:
    """A small disk at `place`. Skips the test where it cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    _mount("-t", "tmpfs", "-o", f"size={SIZE_KB}k", "tmpfs", place)
    try:
        yield SmallDisk(place)
    finally:
        _unmount(place)


@contextmanager
def read_only() -> Iterator[ReadOnly]:
    """A function that makes folders read-only: for root, whom no mode keeps from writing, by a mount of its own."""
    with ExitStack() as undo:

        def make(folder: Path) -> None:
            if os.geteuid() != 0:
                mode = folder.stat().st_mode
                folder.chmod(0o555)
                undo.callback(folder.chmod, mode)
                return
            _mount("--bind", folder, folder)
            undo.callback(_unmount, folder)
            _mount("-o", "remount,bind,ro", folder)

        yield make

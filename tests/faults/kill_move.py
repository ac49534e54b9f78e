"""Kills while the models move to another folder, on another volume where there is one."""

from __future__ import annotations

import random
import shutil
import tempfile
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import move_victim
from kill_convert import TINY, digests
from killing import Place, duration

from engine.hub.library import Library
from engine.hub.manifest import FileEntry, Manifest
from engine.installed import read_facts

NAMES = ("owner/one", "owner/two", "other/three")
_SHARED = Path("/dev/shm")


def make_model(models: Path, name: str) -> None:
    """A model as a download leaves it."""
    folder = models / name
    shutil.copytree(TINY, folder)
    manifest = Manifest(name, "https://example.com", "main", "c" * 40)
    for file, digest in digests(folder).items():
        stat = (folder / file).stat()
        manifest.files[file] = FileEntry(stat.st_size, digest, digest, stat.st_mtime_ns)
        manifest.expected[file] = stat.st_size
    manifest.save(folder)


class Moving(Place):
    """Three models that move there and back again."""

    name = "moving"

    def __init__(self, folder: Path, dice: random.Random, context: ForkServerContext) -> None:
        super().__init__(folder, dice)
        self._context = context
        self._home = folder / "home"
        self._marker = folder / "busy"
        other = _SHARED if _SHARED.is_dir() else folder
        self._volume = tempfile.TemporaryDirectory(prefix="inkstand-faults-", dir=other)
        self._folders = [self._home / "data" / "models", Path(self._volume.name) / "models"]
        self._at, self._moves, self._between = 0, 0, 0
        for name in NAMES:
            make_model(self._folders[0], name)
        self._wanted = digests(TINY)
        self.span = duration(self, self._arrived)
        self._arrived()

    @property
    def _library(self) -> Library:
        return Library(self._home / "data", read_facts, cache=self._home / "hf")

    def _arrived(self) -> None:
        self._at = 1 - self._at
        self._moves += 1

    def start(self) -> BaseProcess:
        self._marker.unlink(missing_ok=True)
        child = self._context.Process(
            target=move_victim.run, args=(str(self._home), str(self._folders[1 - self._at]), str(self._marker))
        )
        child.start()
        return child

    def is_busy(self) -> bool:
        return self._marker.exists()

    def check(self) -> None:
        for name in NAMES:
            found = [digests(folder / name) for folder in self._folders if (folder / name).is_dir()]
            for file, digest in self._wanted.items():
                if digest not in [copy.get(file) for copy in found]:
                    self.losses.append(f"{name}/{file} is in neither folder")
        models = {model.path: model for model in self._library.models()}
        there = [self._folders[1 - self._at] / name for name in NAMES]
        if self._library.settings.read().moving is not None:
            self._between += 1
        elif all(path in models for path in there):
            self._arrived()
            broken = [model.name for model in models.values() if not model.verified]
            left = [path for path in self._folders[1 - self._at].rglob("*") if path.is_file()]
            if broken or left or len(models) != len(NAMES):
                self.losses.append(f"after a move {broken} are broken, and {left} stayed behind")

    def close(self) -> None:
        child = self.start()
        child.join()
        if child.exitcode != 0:
            self.losses.append(f"the last move ended with {child.exitcode}")
        moves = self._moves
        self.check()
        if self._moves == moves:
            self.losses.append("the last move did not arrive")
        self._volume.cleanup()

    def note(self) -> str:
        return f"{self._between} times between the folders, {self._moves} whole moves"

"""Kills while a checkpoint is converted."""

from __future__ import annotations

import hashlib
import random
import shutil
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import convert_victim
from killing import ROOT, Place, duration

from engine.hub.library import Library
from engine.installed import read_facts

TINY = ROOT / "tests" / "data" / "inkling-tiny"


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Converting(Place):
    """The same copy again and again; conversions depend on nothing but the source, so every byte is known."""

    name = "converting"

    def __init__(self, folder: Path, dice: random.Random, context: ForkServerContext) -> None:
        super().__init__(folder, dice)
        self._context = context
        self._source = folder / "source"
        shutil.copytree(TINY, self._source)
        self._before = digests(self._source)
        self._models = folder / "home" / "models"
        self._target = self._models / "owner" / "copy"
        self._marker = folder / "busy"
        self._copies = self._partial = 0
        self._library = Library(folder / "home", read_facts, cache=folder / "hf")
        self.span = duration(self, lambda: shutil.rmtree(self._target))
        self._whole = digests(self._target)
        shutil.rmtree(self._target)

    def start(self) -> BaseProcess:
        self._marker.unlink(missing_ok=True)
        child = self._context.Process(
            target=convert_victim.run, args=(str(self._source), str(self._target), str(self._marker))
        )
        child.start()
        return child

    def is_busy(self) -> bool:
        return self._marker.exists()

    def check(self) -> None:
        if digests(self._source) != self._before:
            self.losses.append("the source was changed")
        # Killed right after the copy got its name, its lock is still there, and locks nothing.
        mine = (self._target, self._target.with_name(".copy.converting.lock"))
        left = [path for path in self._target.parent.iterdir() if path not in mine] if self._models.exists() else []
        listed = [model.path for model in self._library.models()]
        if self._target.exists():
            if digests(self._target) != self._whole:
                self.losses.append("a half-written copy has the name of a whole one")
            if listed != [self._target]:
                self.losses.append(f"the library lists {listed}")
            if left:
                self.losses.append(f"{left} stayed behind")
            shutil.rmtree(self._target)
            self._copies += 1
        else:
            self._partial += any(path.is_dir() and any(path.iterdir()) for path in left)
            if listed:
                self.losses.append(f"the library lists {listed}, which is unfinished")

    def close(self) -> None:
        child = self.start()
        child.join()
        if child.exitcode != 0:
            self.losses.append(f"the last conversion ended with {child.exitcode}")
        self.check()

    def note(self) -> str:
        return f"{self._partial} times in the middle of a file or between two; {self._copies} whole copies"

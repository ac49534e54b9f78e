"""Kills while a checkpoint is downloaded."""

from __future__ import annotations

import hashlib
import random
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import download_victim
from fake_hub import FakeHub, Fault
from killing import Place

from engine.hub.library import Library
from engine.hub.manifest import load_manifest
from engine.installed import read_facts

REPO = "owner/model"
RATE = 1.5e6


class Downloading(Place):
    """A repository of three large and twenty small files; when it is complete, the next one begins."""

    name = "downloading"
    span = 0.3

    def __init__(self, folder: Path, dice: random.Random, context: ForkServerContext) -> None:
        super().__init__(folder, dice)
        self._context = context
        self._files = {f"model-{k}.safetensors": dice.randbytes(1_500_000 + k) for k in range(3)}
        self._files |= {f"part-{k:02}.json": dice.randbytes(200 * k) for k in range(20)}
        self._wanted = {name: hashlib.sha256(data).digest() for name, data in self._files.items()}
        self._hub = FakeHub()
        self._hub.__enter__()
        self._hub.push(REPO, self._files)
        self._hub.slice = 1 << 12
        self._hub.fault = lambda request: Fault(rate=RATE)
        self._round = self._since = self._whole = 0

    @property
    def _home(self) -> Path:
        return self.folder / str(self._round)

    @property
    def _target(self) -> Path:
        return self._home / "models" / REPO

    def start(self) -> BaseProcess:
        self._since = len(self._hub.log)
        child = self._context.Process(
            target=download_victim.download,
            args=(self._hub.endpoint, str(self._home), REPO, str(self.folder / "received.log")),
        )
        child.start()
        return child

    def is_busy(self) -> bool:
        return any(request.file for request in self._hub.log[self._since :])

    def check(self) -> None:
        found = {path.name for path in self._target.iterdir()} if self._target.is_dir() else set()
        for name in found & self._wanted.keys():
            if hashlib.sha256((self._target / name).read_bytes()).digest() != self._wanted[name]:
                self.losses.append(f"{name} has its name and not its content")
        manifest = load_manifest(self._target)
        complete = manifest is not None and not manifest.missing(self._target)
        for model in Library(self._home, read_facts, cache=self.folder / "hf").models():
            if (model.status == "incomplete") == complete:
                self.losses.append(f"a download is called {model.status}")
        journals = list((self._home / "downloads").glob("*.jsonl"))
        if complete and not journals:
            # A manifest that was being written is removed by a later run, a minute after.
            rest = {name for name in found - self._wanted.keys() if not name.startswith(".inkstand.json")}
            if rest or not found >= self._wanted.keys():
                self.losses.append(f"besides what was wanted there is {sorted(rest)}")
            self._whole += 1
            self._round += 1

    def close(self) -> None:
        whole = self._whole
        child = self.start()
        child.join(60)
        if child.exitcode != 0:
            child.kill()
            self.losses.append(f"the last download ended with {child.exitcode}")
        self.check()
        if self._whole == whole:
            self.losses.append("the last download is not complete")
        self._hub.__exit__()

    def note(self) -> str:
        size = sum(map(len, self._files.values()))
        again = self._hub.sent() / (size * self._whole) - 1 if self._whole else 0.0
        return f"{self._whole} whole downloads, {100 * again:.0f} % fetched again"

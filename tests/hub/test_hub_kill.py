"""kill -9 at random moments."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import kill_child
import pytest
from fake_hub import FakeHub, Fault
from hub_desk import REPO

from engine.hub.context import TransferSettings
from engine.hub.manifest import load_manifest

KILLS = 50
SCALE = 64
"""The test's chunk and buffer are the real ones divided by this, and so is what may be lost."""
PROMISE = (8 << 20) // SCALE
"""Bytes per open range that may be fetched twice after one kill."""


def wait_for_content(hub: FakeHub, since: int, child: BaseProcess) -> None:
    """Returns once the child has asked for content: however slow the machine, most kills hit the transfer."""
    while child.is_alive() and not any(r.file for r in hub.log[since:]):
        time.sleep(0.005)


def received_twice(log: Path, since: int, had: dict[str, bytearray]) -> tuple[int, int]:
    """Bytes that the program was given after offset `since` of its log although it had been given them before.

    Adds the new ones to `had`. Returns the log's end, too.
    """
    again = 0
    lines = log.read_bytes()[since:].splitlines() if log.exists() else []
    for line in lines:
        start, count, name = line.decode().split(" ", 2)
        seen = had.setdefault(name, bytearray(1 << 22))
        span = slice(int(start), int(start) + int(count))
        again += sum(seen[span])
        seen[span] = b"\1" * int(count)
    return again, since + sum(len(line) + 1 for line in lines)


@pytest.mark.slow
def test_fifty_kills_lose_a_chunk_per_connection_at_most(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server that forks the children imports everything once; Python 3.11 does not tell it the path.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    dice = random.Random(11)
    files = {f"model-{k}.safetensors": dice.randbytes(1_500_000 + k) for k in range(3)}
    files |= {f"part-{k:02}.json": dice.randbytes(200 * k) for k in range(20)}
    hub.push(REPO, files)
    hub.slice = 1 << 12
    hub.fault = lambda request: Fault(rate=1.5e6)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["kill_child"])
    kills = worst = rounds = 0
    while kills < KILLS:
        rounds += 1
        home = tmp_path / str(rounds)
        had: dict[str, bytearray] = {}
        log, read = tmp_path / f"{rounds}.log", 0
        while True:
            since = len(hub.log)
            child = processes.Process(target=kill_child.download, args=(hub.endpoint, str(home), REPO, str(log)))
            child.start()
            if dice.random() < 0.9:
                wait_for_content(hub, since, child)
            child.join(dice.uniform(0, 0.3) if kills < KILLS else None)
            if child.exitcode is not None:
                assert child.exitcode == 0
                break
            child.kill()
            child.join()
            kills += 1
            again, read = received_twice(log, read, had)
            worst = max(worst, again)
        again, _ = received_twice(log, read, had)
        worst = max(worst, again)
        target = home / "models" / REPO
        for name, data in files.items():
            assert hashlib.sha256((target / name).read_bytes()).digest() == hashlib.sha256(data).digest(), name
        manifest = load_manifest(target)
        assert manifest is not None
        assert manifest.missing(target) == []
        assert not list(target.rglob("*.part"))
        assert not list((home / "downloads").glob("*.jsonl"))
    real = TransferSettings()
    assert (real.chunk // SCALE, real.buffer // SCALE) == (kill_child.SETTINGS.chunk, kill_child.SETTINGS.buffer)
    assert 0 < worst <= real.connections * PROMISE
    print(f"{kills} kills in {rounds} downloads; at worst {worst} bytes fetched twice after one kill")

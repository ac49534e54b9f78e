"""Downloads against a server on loopback: throughput beside curl, with and without a limit, and peak memory.

    python -m engine.bench.hub [--gib 2] [--folder DIR]

Server, curl and download are processes of their own on one machine. Our figure includes SHA-256 of every byte and a
sync per chunk; curl only writes. Prints a line of JSON per measurement and exits with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from engine.bench.range_server import REPO, RangeServer
from engine.hub.client import HubClient
from engine.hub.manager import DownloadManager
from engine.hub.plan import PlanRequest

_NAME = "model.safetensors"
LIMIT = 100e6
"""Bytes per second of the limited server."""
LEAST_OF_CURL = 0.8
LEAST_RATE = 200e6
"""Bytes per second on loopback without a limit."""
MOST_MEMORY = 200e6
"""Bytes of resident memory while 2 GiB are fetched."""


def main() -> int:
    """Runs all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the file")
    parser.add_argument("--folder", type=Path, help="where to work; it needs three times the file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        source = folder / "served" / _NAME
        sha256 = _make(source, int(args.gib * 2**30))
        free = _measure(folder, source, sha256, None)
        limited = _measure(folder, source, sha256, LIMIT)
    kept = {
        "rate_unlimited": free["bytes_per_s"] >= LEAST_RATE,
        "memory": free["peak_memory"] < MOST_MEMORY,
        "share_of_curl_limited": limited["share_of_curl"] >= LEAST_OF_CURL,
    }
    _say({"promises": kept})
    return 0 if all(kept.values()) else 1


def _measure(folder: Path, source: Path, sha256: str, rate: float | None) -> dict[str, float]:
    """Fetches the file with curl and with us from a server with this limit."""
    size = source.stat().st_size
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(source, sha256, rate, theirs))
    server.start()
    try:
        endpoint = ours.recv()
        curl_s = _curl(f"{endpoint}/{REPO}/resolve/main/{_NAME}", folder / "curl")
        command = [sys.executable, "-m", "engine.bench.hub", "--fetch", endpoint, str(folder / "ours")]
        fetched = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    finally:
        server.terminate()
        server.join()
        shutil.rmtree(folder / "ours", ignore_errors=True)
    result: dict[str, float] = {
        "limit_bytes_per_s": rate or 0,
        "bytes": size,
        "bytes_per_s": round(size / fetched["seconds"]),
        "curl_bytes_per_s": round(size / curl_s),
        "share_of_curl": round(curl_s / fetched["seconds"], 3),
        "peak_memory": fetched["peak_memory"],
    }
    _say(result)
    return result


def _serve(source: Path, sha256: str, rate: float | None, pipe: Connection) -> None:
    server = RangeServer(source, sha256, rate)
    pipe.send(server.endpoint)
    server.serve_forever()


def _curl(url: str, target: Path) -> float:
    started = time.monotonic()
    subprocess.run(["curl", "--silent", "--fail", "--output", str(target), url], check=True)
    took = time.monotonic() - started
    target.unlink()
    return took


def fetch(endpoint: str, folder: Path) -> dict[str, float]:
    """One download in this process: seconds, and the most memory it ever held."""

    async def run() -> str:
        manager = DownloadManager(folder / "downloads", client=lambda _: HubClient(endpoint=endpoint, token=False))
        async with manager:
            plan = await manager.plan(PlanRequest(REPO), folder / "models" / REPO)
            return (await manager.wait(await manager.start(plan))).state

    started = time.monotonic()
    state = asyncio.run(run())
    took = time.monotonic() - started
    if state != "ready":
        raise RuntimeError(f"the download ended {state}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": took, "peak_memory": peak * (1 if sys.platform == "darwin" else 1024)}


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _make(path: Path, size: int) -> str:
    """A file of random bytes; returns its SHA-256."""
    path.parent.mkdir(parents=True)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while size:
            piece = os.urandom(min(size, 1 << 24))
            digest.update(piece)
            file.write(piece)
            size -= len(piece)
    return digest.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fetch"]:
        _say(fetch(sys.argv[2], Path(sys.argv[3])))
    else:
        sys.exit(main())

"""A hub with one file, on loopback, that sends as fast as it may: the other end of the download bench.

Content goes from the file to the socket inside the kernel, so that the server costs the client little of the machine.
"""

from __future__ import annotations

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPO = "bench/model"
COMMIT = "b" * 40
_SLICE = 1 << 18


class RangeServer(ThreadingHTTPServer):
    """Serves `file` as the only file of `REPO`.

    Args:
        sha256: of the file.
        rate: bytes per second over all connections; None = no limit.
    """

    daemon_threads = True

    def __init__(self, file: Path, sha256: str, rate: float | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.file = file
        self.sha256 = sha256
        self.rate = rate
        self._ready = 0.0
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def pace(self, count: int) -> None:
        """Waits until `count` more bytes are within the rate."""
        if self.rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._ready = max(self._ready, now - 0.02) + count / self.rate
            wait = self._ready - now
        if wait > 0:
            time.sleep(wait)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        size, name = self.server.file.stat().st_size, self.server.file.name
        if "/resolve/" in self.path:
            self._content(size)
        elif "/tree/" in self.path:
            lfs = {"oid": self.server.sha256, "size": size, "pointerSize": 134}
            self._json([{"type": "file", "path": name, "size": size, "oid": COMMIT, "lfs": lfs}])
        else:
            self._json({"id": REPO, "sha": COMMIT, "siblings": [{"rfilename": name}]})

    def _content(self, size: int) -> None:
        start, stop = 0, size
        asked = self.headers.get("range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1, size) if last else size
        self.send_response(206 if asked else 200)
        self.send_header("ETag", f'"{self.server.sha256}"')
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.end_headers()
        with self.server.file.open("rb") as file:
            while start < stop:
                count = min(_SLICE, stop - start)
                self.server.pace(count)
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, count)

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

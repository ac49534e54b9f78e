"""A hub on loopback that speaks the HTTP API which huggingface_hub uses, and misbehaves on demand.

Two servers, so that redirects lead to another origin: the hub (API, small files, redirects) and the storage (signed
addresses of LFS files). `test_fake_hub.py` holds it against huggingface_hub itself.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import httpx2

if TYPE_CHECKING:
    import pytest

TOKEN = "hf_" + "t" * 34


def plain_client() -> httpx2.AsyncClient:
    """Like huggingface_hub's, for servers without TLS."""
    return httpx2.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), follow_redirects=True, timeout=None)


def reach_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token, and clients that do not spend 0.1 s each on certificates that nothing here asks for."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.utils._http._GLOBAL_ASYNC_CLIENT_FACTORY", plain_client)


@dataclass
class FakeFile:
    """Content of one file. `lfs` files are redirected to the storage and named by SHA-256."""

    data: bytes
    lfs: bool = True
    xet: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def git_oid(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_oid


@dataclass
class FakeRepo:
    """Commits by id, the newest last; `main` is the newest."""

    commits: dict[str, dict[str, FakeFile]] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    def at(self, revision: str) -> str | None:
        if revision == "main":
            return self.head
        return next((c for c in self.commits if c == revision), None)


@dataclass
class Request:
    """One request as a server saw it. `sent` counts bytes of file content."""

    server: str
    path: str
    repo: str
    file: str | None
    headers: Mapping[str, str]
    start: int = 0
    stop: int = 0
    sent: int = 0
    status: int = 0
    at: float = 0.0


@dataclass
class Fault:
    """What goes wrong with one request for file content. Counts in bytes of the body."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    reset_after: int | None = None
    """The connection is reset."""
    close_after: int | None = None
    """The body ends early, against its Content-Length."""
    stall_after: int | None = None
    """Nothing more comes until the hub is released."""
    flip: int | None = None
    """Offset in the file of a byte that is sent with one bit wrong."""
    ignore_range: bool = False
    compress: bool = False
    wrong_start: bool = False
    chunked: bool = False
    rate: float | None = None
    """Bytes per second."""


class FakeHub:
    """Use as a context manager; `endpoint` is the address. All attributes may be changed while it runs.

    Attributes:
        fault: asked for each request for file content; None = all is well.
        api_fault: the same for everything else (a status and headers).
    """

    def __init__(self, *, page: int = 1000, token: str | None = None) -> None:
        self.repos: dict[str, FakeRepo] = {}
        self.log: list[Request] = []
        self.fault: Callable[[Request], Fault | None] = lambda request: None
        self.api_fault: Callable[[Request], Fault | None] = lambda request: None
        self.token = token
        self.page = page
        self.slice = 1 << 16
        self.tree = True
        self.bare = False
        """Like a simple caching mirror: no redirect, no ETag, no commit."""
        self.signed_for = 3600.0
        self.released = threading.Event()
        self.down = False
        """Whoever connects is hung up on."""
        self._epoch = 0
        self._servers: list[_Server] = []
        self._lock = threading.RLock()

    def __enter__(self) -> FakeHub:
        self._servers = [_Server(self, "hub"), _Server(self, "storage")]
        for server in self._servers:
            server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        for server in self._servers:
            server.stop()

    @property
    def endpoint(self) -> str:
        return self._servers[0].address

    @property
    def storage(self) -> str:
        return self._servers[1].address

    def push(self, repo: str, files: Mapping[str, bytes | FakeFile]) -> str:
        """A commit that holds exactly `files`. Weights are LFS files, the rest is in git."""
        tree = {
            path: data if isinstance(data, FakeFile) else FakeFile(data, lfs=path.endswith(".safetensors"))
            for path, data in files.items()
        }
        entry = self.repos.setdefault(repo, FakeRepo())
        text = json.dumps([repo, len(entry.commits), {p: f.sha256 for p, f in tree.items()}])
        commit = hashlib.sha1(text.encode()).hexdigest()
        entry.commits[commit] = tree
        return commit

    def cut(self) -> None:
        """The network is gone, in the middle of whatever was being sent; `down = False` brings it back."""
        self.down = True
        for server in self._servers:
            server.hang_up()

    def expire_signatures(self) -> None:
        """Signed addresses made so far are refused from now on."""
        self._epoch += 1

    def content_requests(self) -> list[Request]:
        with self._lock:
            return [r for r in self.log if r.file is not None and r.status in (200, 206)]

    def sent(self, file: str | None = None, *, since: int = 0) -> int:
        """Bytes of content sent, of one file or all, by requests from number `since` on."""
        with self._lock:
            return sum(r.sent for r in self.log[since:] if r.file is not None and (file is None or r.file == file))

    def note(self, request: Request) -> None:
        with self._lock:
            self.log.append(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, hub: FakeHub, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub
        self.name = name
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name=f"fake-{name}")

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.hang_up()
        self.server_close()

    def hang_up(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return not self.hub.down

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        # A small buffer, so that what was sent is about what has arrived.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.server.hub
        url = urlsplit(self.path)
        parts = [unquote(p) for p in url.path.strip("/").split("/")]
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        request = Request(self.server.name, self.path, "", None, dict(self.headers.items()), at=time.monotonic())
        hub.note(request)
        if self.server.name == "storage":
            self._blob(request, parts, query)
            return
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            request.repo = "/".join(parts[2:4])
        elif len(parts) >= 4 and parts[2] == "resolve":
            request.repo, request.file = "/".join(parts[:2]), "/".join(parts[4:])
        if (fault := hub.api_fault(request)) is not None and fault.status:
            self._error(request, fault.status, fault.headers)
        elif (repo := self._authorized(request)) is None:
            return
        elif request.file is not None:
            self._resolve(request, repo, parts[3])
        elif parts[4:5] == ["tree"] and hub.tree:
            self._tree(request, repo, parts[5], query)
        elif len(parts) == 4 or parts[4:5] == ["revision"]:
            self._info(request, repo, parts[5] if len(parts) > 5 else "main", "blobs" in query)
        else:
            self._error(request, 404, {})

    def _authorized(self, request: Request) -> FakeRepo | None:
        """The repository, or None once a refusal was sent, in the hub's own manner."""
        hub = self.server.hub
        given = self.headers.get("authorization")
        good = given == f"Bearer {hub.token or TOKEN}"
        if given is not None and not good:
            self._error(request, 401, {"X-Error-Message": "Invalid credentials in Authorization header"})
            return None
        repo = hub.repos.get(request.repo)
        if repo is None or (repo.private and not good):
            status = 404 if good else 401
            self._error(request, status, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            return None
        if repo.gated and request.file is not None:
            self._error(request, 403 if good else 401, {"X-Error-Code": "GatedRepo"})
            return None
        return repo

    def _info(self, request: Request, repo: FakeRepo, revision: str, blobs: bool) -> None:
        commit = repo.at(revision)
        if commit is None:
            self._error(request, 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            return
        siblings: list[dict[str, Any]] = []
        for path, file in repo.commits[commit].items():
            entry: dict[str, Any] = {"rfilename": path}
            if blobs:
                entry |= {"size": len(file.data), "blobId": file.git_oid}
                if file.lfs:
                    entry["lfs"] = {"sha256": file.sha256, "size": len(file.data), "pointerSize": 134}
            siblings.append(entry)
        gated = "manual" if repo.gated else False
        self._json(request, {"id": request.repo, "sha": commit, "gated": gated, "siblings": siblings})

    def _tree(self, request: Request, repo: FakeRepo, revision: str, query: Mapping[str, str]) -> None:
        commit = repo.at(revision)
        if commit is None:
            self._error(request, 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            return
        entries: list[dict[str, Any]] = []
        for path, file in repo.commits[commit].items():
            entry: dict[str, Any] = {"type": "file", "oid": file.git_oid, "size": len(file.data), "path": path}
            if file.lfs:
                entry["lfs"] = {"oid": file.sha256, "size": len(file.data), "pointerSize": 134}
            if file.xet:
                entry["xetHash"] = file.sha256
            entries.append(entry)
        first = int(query.get("cursor", 0))
        headers: dict[str, str] = {}
        if first + self.server.hub.page < len(entries):
            base = self.path.split("?")[0]
            following = f"{self.server.address}{base}?recursive=true&cursor={first + self.server.hub.page}"
            headers["Link"] = f'<{following}>; rel="next"'
        self._json(request, entries[first : first + self.server.hub.page], headers)

    def _resolve(self, request: Request, repo: FakeRepo, revision: str) -> None:
        commit = repo.at(revision)
        if commit is None:
            self._error(request, 404, {"X-Error-Code": "RevisionNotFound"})
            return
        file = repo.commits[commit].get(request.file or "")
        if file is None:
            self._error(request, 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
            return
        headers = {"X-Repo-Commit": commit}
        if self.server.hub.bare:
            self._content(request, file, {})
            return
        if not file.lfs:
            self._content(request, file, {**headers, "ETag": f'"{file.git_oid}"'})
            return
        hub = self.server.hub
        expires = time.time() + hub.signed_for
        headers |= {
            "Location": f"{hub.storage}/{quote(request.repo)}/{quote(request.file or '')}?blob={file.sha256}"
            f"&expires={expires}&epoch={hub._epoch}&X-Signature=secret",
            "X-Linked-Size": str(len(file.data)),
            "X-Linked-ETag": f'"{file.sha256}"',
        }
        if file.xet:
            headers |= {
                "X-Xet-Hash": file.sha256,
                "Link": f'<{self.server.address}/api/models/{request.repo}/xet-read-token/{commit}>; rel="xet-auth"',
            }
        self._send(request, 302, headers, b"Found. Redirecting.")

    def _blob(self, request: Request, parts: list[str], query: Mapping[str, str]) -> None:
        hub = self.server.hub
        request.repo, request.file = "/".join(parts[:2]), "/".join(parts[2:])
        stale = float(query.get("expires", 0)) < time.time() or int(query.get("epoch", -1)) != hub._epoch
        if stale or query.get("X-Signature") != "secret":
            self._error(request, 403, {})
            return
        commits = hub.repos[request.repo].commits.values()
        file = next(f for tree in commits for f in tree.values() if f.sha256 == query["blob"])
        self._content(request, file, {"ETag": f'"{hashlib.md5(file.data).hexdigest()}"'})

    def _content(self, request: Request, file: FakeFile, headers: dict[str, str]) -> None:
        hub, data = self.server.hub, file.data
        start, stop = 0, len(data)
        asked = self.headers.get("range", "")
        if asked.startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first)
            stop = min(int(last) + 1 if last else stop, stop)
        request.start, request.stop = start, stop
        with hub._lock:
            fault = hub.fault(request) or Fault()
        if fault.status:
            self._error(request, fault.status, fault.headers)
            return
        ranged = bool(asked) and not fault.ignore_range and not fault.compress
        if not ranged:
            start, stop = 0, len(data)
            request.start, request.stop = start, stop
        elif start >= len(data):
            self._send(request, 416, {"Content-Range": f"bytes */{len(data)}"}, b"out of range")
            return
        body = data[start:stop]
        if fault.flip is not None and start <= fault.flip < stop:
            at = fault.flip - start
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        headers = {**headers, "Accept-Ranges": "bytes"}
        if ranged:
            shown = start + 7 if fault.wrong_start else start
            headers["Content-Range"] = f"bytes {shown}-{stop - 1}/{len(data)}"
        if fault.compress:
            body = gzip.compress(body)
            headers["Content-Encoding"] = "gzip"
        self._head(request, 206 if ranged else 200, headers, None if fault.chunked else len(body))
        if self.command == "GET":
            self._body(request, body, fault)

    def _body(self, request: Request, body: bytes, fault: Fault) -> None:
        """Sends a body in slices, with what is to go wrong with it."""
        hub, position = self.server.hub, 0
        limits = [n for n in (fault.reset_after, fault.close_after, fault.stall_after) if n is not None]
        limit = min([*limits, len(body)])
        while position < limit:
            piece = body[position : min(position + hub.slice, limit)]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if fault.chunked else piece)
            position += len(piece)
            request.sent += len(piece)
            if fault.rate:
                time.sleep(len(piece) / fault.rate)
        if fault.stall_after is not None:
            hub.released.wait()
            self.close_connection = True
        elif fault.reset_after is not None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
            self.close_connection = True
        elif fault.close_after is not None:
            self.close_connection = True
        elif fault.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _json(self, request: Request, value: object, headers: Mapping[str, str] | None = None) -> None:
        self._send(request, 200, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())

    def _error(self, request: Request, status: int, headers: Mapping[str, str]) -> None:
        self._send(request, status, headers, json.dumps({"error": f"refused with {status}"}).encode())

    def _send(self, request: Request, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self._head(request, status, headers, len(body))
        if self.command == "GET":
            self.wfile.write(body)

    def _head(self, request: Request, status: int, headers: Mapping[str, str], length: int | None) -> None:
        request.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

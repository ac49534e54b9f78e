"""A hub whose every answer is made up: what it lists, says in headers, redirects to and sends."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import httpx2
from fuzz_paths import folder, told
from guard import confined
from hypothesis import strategies as st

from engine.errors import UserError
from engine.hub.client import HubClient
from engine.hub.context import TransferSettings
from engine.hub.manager import DownloadManager
from engine.hub.plan import Plan, PlanRequest
from engine.hub.retry import RetryPolicy

ENDPOINT = "https://hub.example"
TOKEN = "hf_" + "t" * 34
REPO = "owner/model"
SHA = "5" * 64
OID = "a" * 40
RETRY = RetryPolicy(
    first=0.0,
    ceiling=0.0,
    give_up_after=0.0,
    metadata_give_up_after=0.0,
    longest_wait=0.0,
    longest_metadata_wait=0.0,
)
SETTINGS = TransferSettings(connections=2, chunk=64, run=2, buffer=32, stall_after=5.0, tick=0.01, space_check=0.01)


@dataclass(frozen=True)
class Answer:
    """One response. `headers` hold what HTTP lets through."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Answer({self.status}, {self.headers!r:.300}, {self.body!r:.300})"

    def response(self, request: httpx2.Request) -> httpx2.Response:
        pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in self.headers]
        return httpx2.Response(self.status, headers=pairs, stream=httpx2.ByteStream(self.body), request=request)


@dataclass(frozen=True)
class MadeUpHub:
    """Answers by what is asked, each list over and over."""

    info: tuple[Answer, ...]
    tree: tuple[Answer, ...]
    content: tuple[Answer, ...]


HUGE = st.sampled_from([2**31, 2**63, 2**64, 10**40, 10**400])
SCALARS = st.none() | st.booleans() | st.integers(-3, 300) | HUGE | st.floats() | st.text(max_size=6)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
USUAL = st.sampled_from(
    ("config.json", "model.safetensors", "mtp.safetensors", "model.safetensors.index.json", "a/b.safetensors")
)
CLIMBING = st.sampled_from(
    ("../../evil.safetensors", "/etc/evil.json", "..\\evil.json", "C:\\evil.json", "a/../../evil.json", "./x.json")
)
ODD = st.sampled_from(
    (".inkstand.json", "con.json", "model.py", "\x1b[2J.json", "\u202egnp.json", "Config.json", "config.json/x.json")
)
PATHS = USUAL | USUAL | CLIMBING | ODD | st.text(max_size=8)
NUMBERS = st.sampled_from(["0", "1", "-1", "40", "64", "9" * 30, "9" * 5000, "1e5", "\xb2", "", "a"])
ELSEWHERE = st.sampled_from(
    ("https://cdn.example/x", "http://hub.example/down", "file:///etc/passwd", "javascript:alert(1)", "https://")
)
BROKEN = st.sampled_from(
    (
        "",
        "//",
        "http://[",
        "https://hub.example:99999/",
        "\xff\xfe",
        "https://\u2603.example/",
        "https://u:p@hub.example/",
    )
)
ADDRESSES = st.sampled_from((f"{ENDPOINT}/next", "/relative", "?only=query", "%zz")) | ELSEWHERE | BROKEN
DATES = st.sampled_from(("Mon, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 9999 23:59:59 -2359", "Mon"))
CODES = st.sampled_from(("GatedRepo", "EntryNotFound", "disabled", "\x85"))
TYPES = st.sampled_from(("application/json; charset=utf-7", "text/html; charset=\xff"))
HEADERS = st.one_of(
    st.tuples(st.sampled_from(["content-length", "x-linked-size", "retry-after", "content-range"]), NUMBERS),
    st.tuples(st.just("content-range"), st.builds("bytes {}-{}/{}".format, NUMBERS, NUMBERS, NUMBERS | st.just("*"))),
    st.tuples(st.just("link"), st.builds('<{}>; rel="next"'.format, ADDRESSES) | st.text(max_size=20)),
    st.tuples(st.just("location"), ADDRESSES),
    st.tuples(st.just("retry-after"), DATES),
    st.tuples(st.just("ratelimit"), st.builds('"api";r=0;t={}'.format, NUMBERS)),
    st.tuples(st.sampled_from(["etag", "x-linked-etag"]), st.sampled_from([f'"{SHA}"', f'W/"{OID}"', '"', "", "\xe9"])),
    st.tuples(st.just("x-repo-commit"), st.sampled_from(["b" * 40, "", "../x"])),
    st.tuples(st.just("content-encoding"), st.sampled_from(["gzip", "identity", "br", "zstd", "x"])),
    st.tuples(st.just("content-type"), TYPES),
    st.tuples(st.sampled_from(["x-error-code", "x-error-message"]), CODES),
)  # fmt: skip
STATUSES = st.sampled_from(
    [200, 200, 200, 206, 206, 301, 302, 304, 307, 400, 401, 403, 404, 410, 416, 429, 451, 500, 503, 999]
)
SIZES = st.integers(0, 200) | JSON
LFS = st.fixed_dictionaries({"oid": st.just(SHA) | JSON, "size": SIZES}) | JSON
ENTRIES = st.fixed_dictionaries(
    {"path": PATHS | JSON, "size": SIZES, "oid": st.just(OID) | JSON},
    optional={"type": st.sampled_from(["file", "directory"]) | JSON, "lfs": LFS},
)
INFO = st.fixed_dictionaries(
    {"sha": st.just("b" * 40) | JSON}, optional={"gated": JSON, "siblings": st.lists(ENTRIES, max_size=4) | JSON}
)


def dumped(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=True).encode()
    except ValueError:  # more digits than Python writes
        return b"9" * 5000


def answers(bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[Answer, ...]]:
    good = st.builds(Answer, st.just(200), st.just(()), bodies)
    odd = st.builds(Answer, STATUSES, st.lists(HEADERS, max_size=3).map(tuple), bodies | st.binary(max_size=40))
    return st.lists(good | good | odd, min_size=1, max_size=4).map(tuple)


def sliced(data: bytes) -> st.SearchStrategy[Answer]:
    """The right bytes as the right part, whatever was asked for."""

    def part(start: int, stop: int) -> Answer:
        return Answer(206, (("content-range", f"bytes {start}-{stop - 1}/{len(data)}"),), data[start:stop])

    return st.builds(part, st.sampled_from([0, 64, 128]), st.sampled_from([1, 64, 128, 200]))


DEEP = st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000, b'{"sha":"b", "x":' + b"[" * 5000])
HEADER_JSON = b'{"model.mtp.0.w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}'
FILES = st.sampled_from(
    [len(HEADER_JSON).to_bytes(8, "little") + HEADER_JSON + bytes(127), bytes(200), b"\xff" * 200,
     (190).to_bytes(8, "little") + b"[" * 192, b'{"weight_map": {"model.mtp.0.w": "mtp.safetensors"}}',
     (48).to_bytes(8, "little") + b'{"a":{"data_offsets":[0,Infinity]}}             ' + bytes(144)]
)  # fmt: skip
CONTENT = st.lists(FILES.flatmap(sliced), min_size=1, max_size=4).map(tuple) | answers(FILES)
HUBS = st.builds(
    MadeUpHub,
    answers(INFO.map(dumped) | JSON.map(dumped) | DEEP),
    answers(st.lists(ENTRIES, max_size=5).map(dumped) | JSON.map(dumped) | DEEP),
    CONTENT,
)
REQUESTS = st.builds(
    PlanRequest,
    st.just(REPO),
    kind=st.sampled_from(["whole", "head", "text"]),
    include=st.sampled_from([(), ("*.json",), ("[",)]),
)


class Wire:
    """The transport: no socket is opened. Remembers to whom the token went."""

    def __init__(self, hub: MadeUpHub) -> None:
        self._hub = hub
        self._count = 0
        self.trusted: set[str] = set()

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if "authorization" in request.headers:
            self.trusted.add(f"{request.url.scheme}://{request.url.netloc.decode()}")
        path = urlsplit(str(request.url)).path
        kind = self._hub.tree if "/tree/" in path else self._hub.info if "/api/" in path else self._hub.content
        self._count += 1
        assert self._count < 10_000, "requests without end"
        return kind[self._count % len(kind)].response(request)

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer), timeout=None)


def hub_plan(hub: MadeUpHub, request: PlanRequest) -> None:
    """Any answers make a plan of files below its folder, or a message; nothing is written."""
    home = folder() / "hub"
    home.mkdir(exist_ok=True)

    def run() -> None:
        try:
            made = asyncio.run(plan(home, request))
        except UserError as error:
            told(error)
            return
        target = home / "models" / REPO
        assert made.target == target
        assert all((target / file.path).resolve().is_relative_to(target) for file in made.files)
        assert all(0 <= file.size < 1 << 63 for file in made.files)

    with confined():
        connected(hub, run)
    assert list(home.iterdir()) == []


def hub_download(hub: MadeUpHub, request: PlanRequest) -> None:
    """Any answers end in a download or a message; nothing is written outside of its folders."""
    home = folder() / "downloads"

    def run() -> None:
        try:
            assert asyncio.run(download(home, request)) in ("ready", "failed", "paused")
        except UserError as error:
            told(error)

    try:
        with confined(home):
            connected(hub, run)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def connected(hub: MadeUpHub, run: Callable[[], Any]) -> Wire:
    """Runs with `hub` in place of the network. The token stayed with the hub."""
    wire = Wire(hub)
    with mock.patch("huggingface_hub.utils._http._GLOBAL_ASYNC_CLIENT_FACTORY", wire.client):
        run()
    assert wire.trusted <= {ENDPOINT}
    return wire


def client(_endpoint: str | None = None) -> HubClient:
    return HubClient(endpoint=ENDPOINT, token=TOKEN, retry=RETRY, stall_after=5.0)


async def plan(home: Path, request: PlanRequest) -> Plan:
    """What the hub's answers come to. Raises UserError."""
    async with asyncio.timeout(20), manager(home) as desk:
        return await desk.plan(request, home / "models" / REPO)


async def download(home: Path, request: PlanRequest) -> str:
    """How a whole download of it ends. Raises UserError where it does not begin."""
    async with asyncio.timeout(20), manager(home) as desk:
        job = await desk.start(await desk.plan(request, home / "models" / REPO))
        return (await desk.wait(job)).state


def manager(home: Path) -> DownloadManager:
    return DownloadManager(home / "downloads", settings=SETTINGS, client=client, reserve=0)

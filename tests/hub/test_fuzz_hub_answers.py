"""Answers that no hub should give, each of which was once taken for something else than a bad answer."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from fake_hub import FakeHub, Fault
from hub_desk import REPO, RETRY, Desk
from huggingface_hub import constants

from app.credentials import check_token
from app.settings import SettingsError
from engine.hub.body import read_body
from engine.hub.client import HubClient
from engine.hub.errors import SelectionError, ServerError
from engine.hub.plan import PlanRequest, make_plan
from engine.hub.responses import Subject, TransientError
from engine.hub.retry import retry_after

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 3000}
ENDPOINT = "https://hub.example"


@dataclass(frozen=True)
class Answer:
    content: bytes | str
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200

    def response(self) -> httpx2.Response:
        data = self.content if isinstance(self.content, bytes) else self.content.encode()
        return httpx2.Response(self.status, headers=dict(self.headers), stream=httpx2.ByteStream(data))


def wired(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, Answer]) -> list[str]:
    """Answers by the last part of the address, without a network. Returns the addresses that were asked for."""
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return next(answer for part, answer in answers.items() if part in str(request.url)).response()

    def client() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    monkeypatch.setattr("huggingface_hub.utils._http._GLOBAL_ASYNC_CLIENT_FACTORY", client)
    return asked


async def planned(home: Path, request: PlanRequest | None = None) -> None:
    async with HubClient(endpoint=ENDPOINT, token=False, retry=RETRY) as client:
        await make_plan(client, request or PlanRequest(REPO), target=home / "model", journal=home / "j")


INFO = Answer(json.dumps({"sha": "b" * 40}))


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [b"[" * 100_000, b'{"a":' * 100_000, b"<html>", b"\xff", b"9" * 5000])
async def test_what_is_no_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes) -> None:
    wired(monkeypatch, {"/revision/": Answer(answer)})
    with pytest.raises(ServerError, match=r"not JSON|names no commit"):
        await planned(tmp_path)


@pytest.mark.asyncio
async def test_what_is_not_compressed_as_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wired(monkeypatch, {"/revision/": Answer(b"no gzip", {"content-encoding": "gzip"})})
    with pytest.raises(ServerError, match="not JSON"):
        await planned(tmp_path)


@pytest.mark.asyncio
async def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(80 << 20))
    wired(monkeypatch, {"/revision/": Answer(bomb, {"content-encoding": "gzip"})})
    with pytest.raises(ServerError, match="without end"):
        await planned(tmp_path)


@pytest.mark.asyncio
async def test_globs_for_a_repository_without_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wired(monkeypatch, {"/tree/": Answer(b"[]"), "/revision/": INFO})
    await planned(tmp_path, PlanRequest(REPO, include=("*.json",)))
    wired(monkeypatch, {"/tree/": Answer('[{"path": "a.py", "size": 1}]'), "/revision/": INFO})
    with pytest.raises(SelectionError):
        await planned(tmp_path, PlanRequest(REPO, include=("*.py",)))


@pytest.mark.asyncio
@pytest.mark.parametrize("link", ["http://[", "https://hub.example:99999/", "file:///x", "http://hub.example/next"])
async def test_a_next_page_that_leads_nowhere_or_is_not_encrypted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, link: str
) -> None:
    page = Answer(b"[]", {"link": f'<{link}>; rel="next"'})
    asked = wired(monkeypatch, {"/tree/": page, "/revision/": INFO})
    with pytest.raises(ServerError, match="redirects to"):
        await planned(tmp_path)
    assert len(asked) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [10**400, 2**64, True, 1.5, "9", -1, None])
async def test_sizes_that_no_file_has_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: object
) -> None:
    tree = json.dumps([{"path": "model.safetensors", "size": size}])
    answers = {"/tree/": Answer(tree), "/revision/": INFO}
    length = Answer(b"x", {"content-length": "9" * 5000})
    asked = wired(monkeypatch, {**answers, "/resolve/": length})
    with pytest.raises(ServerError, match="does not say how long"):
        await planned(tmp_path)
    assert "/resolve/" in asked[-1]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "header", [b"[" * 190, b'{"a":{"data_offsets":[0,Infinity]}}'.ljust(190), b'{"a":{"data_offsets":{}}}'.ljust(190)]
)
async def test_headers_of_weights_that_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, header: bytes) -> None:
    data = (190).to_bytes(8, "little") + header
    if header.startswith(b"["):
        data = (30_000).to_bytes(8, "little") + b"[" * 30_000
    tree = json.dumps([{"path": "config.json", "size": 2}, {"path": "model.safetensors", "size": len(data)}])
    part = Answer(data, {"content-range": f"bytes 0-{len(data) - 1}/{len(data)}"}, 206)
    wired(monkeypatch, {"/tree/": Answer(tree), "/revision/": INFO, "/resolve/": part})
    with pytest.raises(ServerError, match="its header is damaged"):
        await planned(tmp_path, PlanRequest(REPO, kind="head"))


@pytest.mark.asyncio
async def test_an_index_that_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tree = json.dumps([{"path": "model.safetensors.index.json", "size": 1 << 50}])
    asked = wired(monkeypatch, {"/tree/": Answer(tree), "/revision/": INFO})
    with pytest.raises(ServerError, match="too long for an index"):
        await planned(tmp_path, PlanRequest(REPO, kind="head"))
    assert len(asked) == 2


@pytest.mark.parametrize(("start", "total"), [("9" * 5000, "5"), ("0", "9" * 5000), ("\xb2", "5")])
def test_ranges_that_no_file_has(start: str, total: str) -> None:
    value = f"bytes {start}-4/{total}".encode("latin-1")
    request = httpx2.Request("GET", f"{ENDPOINT}/x")
    response = httpx2.Response(206, headers=[(b"content-range", value)], request=request)
    with suppress(TransientError):
        assert read_body(response, Subject(REPO, "main"), 0).total is None


@pytest.mark.parametrize("value", ["Mon, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 9999 23:59:59 -2359", "Mon", "\xb2"])
def test_times_that_no_clock_shows(value: str) -> None:
    wait = retry_after({"retry-after": value}, datetime(2026, 1, 1, tzinfo=UTC))
    assert wait is None or wait >= 0


@pytest.mark.asyncio
async def test_a_file_that_grows_beyond_the_disk(hub: FakeHub, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.push(REPO, FILES)

    async def pages(_client: HubClient, _repo: str, _commit: str) -> AsyncIterator[list[object]]:
        yield [{"path": name, "size": 1 << 58} for name in FILES]

    async with desk.manager() as manager:
        plan = await desk.plan(manager)
        hub.fault = lambda request: Fault(status=416, headers={"Content-Range": f"bytes */{1 << 58}"})
        monkeypatch.setattr(HubClient, "pages", pages)
        last = await manager.wait(await manager.start(plan))
    assert last.state in ("paused", "failed")
    assert "but the volume" in (last.reason or "")


@pytest.mark.asyncio
async def test_nothing_is_asked_for_that_was_not_wanted(
    hub: FakeHub, desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """huggingface_hub's own headers fetch a list of coding agents, keep it, and say which one runs the program."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "agents.json"))
    monkeypatch.setenv("AI_AGENT", "somebody")
    hub.push(REPO, FILES)
    async with desk.manager() as manager:
        await desk.plan(manager)
    with pytest.raises(SettingsError):
        check_token("hf_good", endpoint=hub.endpoint)
    wanted = (f"/api/models/{REPO}/", "/api/whoami-v2")
    assert all(request.path.startswith(wanted) for request in hub.log), [request.path for request in hub.log]
    assert not (tmp_path / "agents.json").exists()
    agents = {request.headers.get("User-Agent", request.headers.get("user-agent", "")) for request in hub.log}
    assert all("agent/" not in agent and agent.startswith("inkstand/") for agent in agents)

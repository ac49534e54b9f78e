"""What the kill test runs in a process of its own, and kills."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote

import anyio._backends._asyncio  # noqa: F401 (imported on first use otherwise: in every child)
import httpx2
from fake_hub import plain_client
from hub_desk import CHUNK
from huggingface_hub import set_async_client_factory

from engine.hub.client import HubClient
from engine.hub.context import TransferSettings
from engine.hub.manager import DownloadManager
from engine.hub.plan import PlanRequest

SETTINGS = TransferSettings(chunk=CHUNK, run=4, buffer=CHUNK // 2, tick=0.05)


class _Counted(httpx2.AsyncByteStream):
    """Notes which bytes of which file the program is given, in a file that outlives it."""

    def __init__(self, inner: httpx2.AsyncByteStream, log: int, file: str, start: int) -> None:
        self._inner = inner
        self._log = log
        self._file = file
        self._at = start

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            os.write(self._log, f"{self._at} {len(piece)} {self._file}\n".encode())
            self._at += len(piece)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Transport(httpx2.AsyncHTTPTransport):
    def __init__(self, log: int) -> None:
        super().__init__()
        self._log = log

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        found = response.headers.get("content-range")
        if found and response.status_code == 206 and isinstance(response.stream, httpx2.AsyncByteStream):
            start = int(found.split()[1].split("-")[0])
            name = unquote(request.url.path).rsplit("/", 1)[-1]
            response.stream = _Counted(response.stream, self._log, name, start)
        return response


def download(endpoint: str, home: str, repo: str, log_path: str) -> None:
    """Downloads `repo` the way `inkstand download` does; exits with an error when it is not complete."""
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def client() -> httpx2.AsyncClient:
        made = plain_client()
        made._transport = _Transport(log)
        return made

    async def run() -> str:
        manager = DownloadManager(
            Path(home) / "downloads",
            settings=SETTINGS,
            client=lambda _: HubClient(endpoint=endpoint, token=False),
            reserve=0,
        )
        async with manager:
            plan = await manager.plan(PlanRequest(repo), Path(home) / "models" / repo)
            return (await manager.wait(await manager.start(plan))).state

    set_async_client_factory(client)
    raise SystemExit(0 if asyncio.run(run()) == "ready" else 1)

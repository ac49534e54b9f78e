"""Downloads from the fake hub, with sizes and times scaled down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fake_hub import FakeHub

from engine.hub.client import HubClient
from engine.hub.context import TransferSettings
from engine.hub.manager import DownloadManager
from engine.hub.partfile import Disk
from engine.hub.plan import Plan, PlanRequest
from engine.hub.progress import DownloadProgress
from engine.hub.retry import RetryPolicy

CHUNK = 1 << 16
SETTINGS = TransferSettings(
    chunk=CHUNK, run=4, buffer=1 << 14, stall_after=5.0, quiet_after=0.2, tick=0.05, space_check=0.05
)
RETRY = RetryPolicy(first=0.02, ceiling=0.1, give_up_after=3.0, metadata_give_up_after=1.0)
REPO = "owner/model"


@dataclass
class Desk:
    """A data directory and what downloads into it."""

    hub: FakeHub
    home: Path
    token: str | bool = False

    @property
    def target(self) -> Path:
        return self.home / "models" / REPO

    def manager(
        self,
        *,
        disk: Disk | None = None,
        reserve: int = 0,
        rate: float | None = None,
        parallel: int = 2,
        retry: RetryPolicy = RETRY,
        **changes: float,
    ) -> DownloadManager:
        settings = replace(SETTINGS, **changes)

        def client(endpoint: str | None) -> HubClient:
            return HubClient(
                endpoint=endpoint or self.hub.endpoint, token=self.token, retry=retry, stall_after=settings.stall_after
            )

        return DownloadManager(
            self.home / "downloads",
            settings=settings,
            client=client,
            disk=disk,
            reserve=reserve,
            rate=rate,
            parallel=parallel,
        )

    async def plan(self, manager: DownloadManager, target: Path | None = None, **request: object) -> Plan:
        return await manager.plan(PlanRequest(REPO, **request), target or self.target)  # type: ignore[arg-type]

    async def fetch(
        self, manager: DownloadManager, watch: Callable[[DownloadProgress], None] | None = None, **request: object
    ) -> DownloadProgress:
        """Plans, downloads and waits."""
        if watch:
            manager.subscribe(watch)
        return await manager.wait(await manager.start(await self.plan(manager, **request)))

    def check(self, files: dict[str, bytes]) -> None:
        """The target holds exactly these files, and ours."""
        found = {
            str(p.relative_to(self.target)): p.read_bytes()
            for p in self.target.rglob("*")
            if p.is_file() and p.name != ".inkstand.json"
        }
        assert {name: len(data) for name, data in found.items()} == {name: len(data) for name, data in files.items()}
        assert found == files


async def until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds; fails when that takes too long."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (there is no event for what a server has sent)
            await asyncio.sleep(0.005)

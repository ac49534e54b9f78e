"""What the parts of one running transfer share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from engine.hub.client import HubClient
from engine.hub.errors import HubError
from engine.hub.filework import FileWork
from engine.hub.folder import TargetFolder
from engine.hub.journal import Journal
from engine.hub.limiter import RateLimiter
from engine.hub.meter import RateMeter
from engine.hub.partfile import Disk
from engine.hub.plan import Plan
from engine.hub.tasks import Signal, in_pool

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """Sizes in bytes, times in seconds."""

    connections: int = 4
    chunk: int = 4 << 20
    """What the journal remembers. A kill costs each connection its unfinished chunk, and what came beyond its
    end while it was being noted (`buffer` and one read): less than 8 MiB."""
    run: int = 16
    """Chunks per request."""
    buffer: int = 2 << 20
    """Bytes of one connection that wait in memory for one write."""
    stall_after: float = 30.0
    """A connection that brought less than `min_rate` over this time is replaced."""
    min_rate: float = 1024.0
    quiet_after: float = 5.0
    """Without a byte for this long, the download is shown as stalled."""
    tick: float = 0.5
    space_check: float = 2.0
    max_restarts: int = 3
    """How often a file may turn out to be another one on the hub."""
    max_damaged: int = 1
    """How often a file is fetched again because its checksum was wrong."""


class Flow:
    """When bytes came, and why they do not."""

    def __init__(self) -> None:
        now = time.monotonic()
        self.meter = RateMeter(now)
        self.last_byte = now
        self.last_gain = now
        """When more was on the disk than ever before; bytes fetched again are no gain."""
        self.trouble: HubError | None = None
        self._best = -1
        self._closed_until = 0.0

    def received(self, count: int, now: float) -> None:
        """`count` bytes came at the monotonic time `now`."""
        self.last_byte = now
        self.trouble = None
        self.meter.add(count)

    def gained(self, done: int) -> None:
        """`done` bytes are on the disk now."""
        if done > self._best:
            self._best = done
            self.last_gain = time.monotonic()

    def close_for(self, seconds: float) -> None:
        """No request for so long: the server asks for a pause. It does not count as time without gain."""
        self._closed_until = max(self._closed_until, time.monotonic() + seconds)
        self.last_gain = max(self.last_gain, self._closed_until)

    async def until_open(self) -> None:
        """Returns once requests may be made."""
        # Another refusal may have moved the time meanwhile.
        while (wait := self._closed_until - time.monotonic()) > 0:  # noqa: ASYNC110 (nothing but time opens it)
            await asyncio.sleep(wait)


class TransferContext:
    """The plan, its files and its surroundings."""

    def __init__(
        self,
        plan: Plan,
        *,
        client: HubClient,
        journal: Journal,
        settings: TransferSettings,
        disk: Disk,
        limiter: RateLimiter,
    ) -> None:
        self.plan = plan
        self.client = client
        self.journal = journal
        self.settings = settings
        self.disk = disk
        self.limiter = limiter
        self.folder = TargetFolder(plan)
        self.flow = Flow()
        self.changed = Signal()
        """Set when a claim was given back, or a file opened, moved on, started over or settled."""
        repo, commit = plan.request.repo, plan.commit
        self.files = [FileWork(plan, f, client.source(repo, commit, f.path)) for f in plan.files]
        self._threads = ThreadPoolExecutor(settings.connections + 4, thread_name_prefix="inkstand-disk")

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a blocking function to its end, also when cancelled."""
        return await in_pool(self._threads, function, *args, **kwargs)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

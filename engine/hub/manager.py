"""All downloads of this program: start, pause, resume, cancel, and go on after a relaunch.

Everything belongs to one event loop. Subscribers are called in it with `DownloadProgress`. The journal of a running
download stays marked as running when the manager closes or the process dies, so that `restore` continues it; a
paused one stays paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.hub.client import HubClient
from engine.hub.context import TransferContext, TransferSettings
from engine.hub.errors import BusyError, HubError
from engine.hub.jobs import (
    at_rest,
    close_journal,
    job_of,
    lock_download,
    open_journal,
    read_downloads,
    requeued,
    stopped,
)
from engine.hub.limiter import RateLimiter
from engine.hub.partfile import Disk
from engine.hub.plan import RESERVE, Plan, PlanRequest, make_plan
from engine.hub.progress import RESTING, DownloadProgress
from engine.hub.storage import forget_download
from engine.hub.tasks import Signal, to_end
from engine.hub.transfer import Transfer
from engine.locks import FileLock

Subscriber = Callable[[DownloadProgress], None]


class _Job:
    """One download that this manager knows of."""

    def __init__(self, plan: Plan, progress: DownloadProgress) -> None:
        self.plan = plan
        self.progress = progress
        self.task: asyncio.Task[None] | None = None
        self.keep_running = False
        """The task is being stopped because the program ends, not because the user pauses."""
        self.moved = Signal()


class DownloadManager:
    """Use as an asynchronous context manager.

    Args:
        journals: folder of the journals.
        client: makes the client for an endpoint (None = the usual one); by default with huggingface_hub's token.
        parallel: downloads that run at once; further ones are queued.
        rate: bandwidth cap over all of them in bytes per second.
        reserve: bytes to leave free on a volume.
    """

    def __init__(
        self,
        journals: Path,
        *,
        settings: TransferSettings | None = None,
        client: Callable[[str | None], HubClient] | None = None,
        disk: Disk | None = None,
        parallel: int = 2,
        rate: float | None = None,
        reserve: int = RESERVE,
    ) -> None:
        self.journals = journals
        self.limiter = RateLimiter(rate)
        """Its `rate` may be set at any time."""
        self._settings = settings or TransferSettings()
        self._client = client or self._default_client
        self._disk = disk or Disk()
        self._slots = asyncio.Semaphore(parallel)
        self._reserve = reserve
        self._jobs: dict[str, _Job] = {}
        self._subscribers: list[Subscriber] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops everything within a moment, to be continued by `restore`."""
        for job in self._jobs.values():
            job.keep_running = True
        await asyncio.gather(*(self._stop(job) for job in self._jobs.values()))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Calls `subscriber` with every report from now on. Returns what ends that."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def downloads(self) -> tuple[DownloadProgress, ...]:
        """The last report of every download."""
        return tuple(job.progress for job in self._jobs.values())

    async def plan(self, request: PlanRequest, target: Path, *, endpoint: str | None = None) -> Plan:
        """What a request would fetch into `target`, an absolute path. Raises HubError."""
        journal = self.journal_path(target)
        async with self._client(endpoint) as client:
            return await make_plan(
                client, request, target=target, journal=journal, disk=self._disk, reserve=self._reserve
            )

    async def start(self, plan: Plan) -> str:
        """Starts a plan, in place of what its folder was fetching before. Returns the id of the download.

        Raises:
            BusyError: another process is fetching into this folder.
        """
        job_id = job_of(plan.target)
        if (running := self._jobs.get(job_id)) is not None:
            await self._stop(running)
        self._launch(job_id, plan)
        return job_id

    async def resume(self, job_id: str) -> None:
        """Goes on with a paused or failed download. Raises BusyError, KeyError."""
        job = self._jobs[job_id]
        if job.task is None:
            self._launch(job_id, job.plan, before=job.progress)

    async def pause(self, job_id: str) -> None:
        """Returns once the download stands still and everything fetched is noted. Raises KeyError."""
        await self._stop(self._jobs[job_id])

    async def cancel(self, job_id: str, *, delete: bool) -> int:
        """Stops and forgets a download. Raises BusyError, KeyError.

        Args:
            delete: remove what it fetched; otherwise that is kept, and the same download continues from it later.

        Returns:
            Bytes freed.
        """
        job = self._jobs[job_id]
        await self._stop(job)
        freed = await to_end(forget_download, job.plan.target, self.journals, delete=delete)
        del self._jobs[job_id]
        return freed

    async def wait(self, job_id: str) -> DownloadProgress:
        """The last report of a download, once it rests. Raises KeyError."""
        job = self._jobs[job_id]
        while job.progress.state not in RESTING:
            await job.moved.changed(job.moved.count)
        return job.progress

    async def restore(self) -> tuple[str, ...]:
        """Takes up what earlier runs left: continues what was running, lists what was paused or has failed.

        Downloads that another process is busy with are passed over. Returns the ids that are new here.
        """
        new: list[str] = []
        for found in await asyncio.to_thread(read_downloads, self.journals):
            if found.job in self._jobs:
                continue
            self._jobs[found.job] = _Job(found.plan, found.progress)
            if found.running:
                try:
                    self._launch(found.job, found.plan)
                except BusyError:
                    del self._jobs[found.job]
                    continue
            new.append(found.job)
        return tuple(new)

    def journal_path(self, target: Path) -> Path:
        """The journal of the folder `target`."""
        return self.journals / f"{job_of(target)}.jsonl"

    def _default_client(self, endpoint: str | None) -> HubClient:
        return HubClient(endpoint=endpoint, stall_after=self._settings.stall_after)

    def _launch(self, job_id: str, plan: Plan, *, before: DownloadProgress | None = None) -> None:
        lock = lock_download(self.journals, plan.target)
        # A plan that is older than what its download fetched knows less than the last report.
        job = _Job(plan, requeued(before) if before else at_rest(job_id, plan, "queued"))
        self._jobs[job_id] = job
        job.task = asyncio.create_task(self._run(job_id, job, lock), name=f"download {plan.request.repo}")
        self._report(job, job.progress)

    async def _stop(self, job: _Job) -> None:
        if job.task is not None:
            job.task.cancel()
            await asyncio.wait([job.task])

    def _report(self, job: _Job, progress: DownloadProgress) -> None:
        job.progress = progress
        job.moved.set()
        for subscriber in tuple(self._subscribers):
            subscriber(progress)

    async def _run(self, job_id: str, job: _Job, lock: FileLock) -> None:
        """One run of a download. Whatever happens, its last report is of a state of rest."""
        last: DownloadProgress | None = None
        try:
            async with self._slots:
                last = await self._fetch(job_id, job)
        except asyncio.CancelledError:
            last = replace(job.progress, state="paused", rate=None, eta=None, reason=None, cure=None)
        except HubError as error:
            last = stopped(job.progress, error)
        finally:
            job.task = None
            lock.release()
            if last is None:  # A bug: the task raises it, and the download must not look alive.
                last = replace(job.progress, state="failed", rate=None, eta=None, reason="A bug.", code="bug")
            self._report(job, last)

    async def _fetch(self, job_id: str, job: _Job) -> DownloadProgress:
        """Opens the journal, runs the transfer and notes how it ended. Returns the report of a complete download."""
        opening = asyncio.ensure_future(to_end(open_journal, self.journal_path(job.plan.target), job.plan))
        try:
            journal, plan = await asyncio.shield(opening)
        except asyncio.CancelledError:
            (await opening)[0].close()
            raise
        ending: dict[str, str | None] = {"state": "failed"}
        try:
            async with self._client(plan.endpoint) as client:
                context = TransferContext(
                    plan, client=client, journal=journal, settings=self._settings, disk=self._disk, limiter=self.limiter
                )
                transfer = Transfer(context, job=job_id, report=lambda progress: self._report(job, progress))
                try:
                    await transfer.run()
                finally:
                    job.progress = transfer.snapshot()
            ending = {"state": "ready"}
            return transfer.snapshot("ready")
        except asyncio.CancelledError:
            ending = {"state": "running" if job.keep_running else "paused"}
            raise
        except HubError as error:
            last = stopped(job.progress, error)
            ending = {"state": last.state, "reason": last.reason, "cure": last.cure, "code": last.code}
            raise
        finally:
            await to_end(close_journal, journal, ending)

"""Fetching one plan: a pool of connections, one follower per open file, one clock.

Connections take claims (runs of chunks) from the files in order. The follower of a file keeps its checksum behind
the contiguous frontier, and when all is there compares it and gives the file its name. The clock reports progress and
watches the free space. Cancelling `run` keeps everything: half-filled chunks are noted to the byte.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from engine.hub.connection import Connection
from engine.hub.context import TransferContext
from engine.hub.errors import DiskFullError, HubError
from engine.hub.filework import FileWork
from engine.hub.finishing import check_existing, follow
from engine.hub.progress import DownloadProgress, State
from engine.wording import size


class Transfer:
    """One run of one plan. Make a new one, with a new context, for every run.

    Args:
        job: id that snapshots carry.
        report: called in the event loop with every snapshot.
    """

    def __init__(self, context: TransferContext, *, job: str, report: Callable[[DownloadProgress], None]) -> None:
        self._context = context
        self._job = job
        self._report = report
        self._state: State | None = None

    async def run(self) -> None:
        """Fetches and verifies everything.

        Raises:
            HubError: what stopped it. What was fetched is kept, except a file whose checksum was wrong twice.
        """
        context = self._context
        try:
            await context.in_thread(self._prepare)
            await self._work()
            await context.in_thread(context.folder.drop_leftovers)
        finally:
            for file in context.files:
                with suppress(HubError):
                    await context.in_thread(file.close)
            with suppress(HubError):
                await context.in_thread(context.folder.save)
            context.close()
        if error := next((f.error for f in context.files if f.error), None):
            raise error

    def snapshot(self, state: State | None = None) -> DownloadProgress:
        """How far it is, as `state` or as whatever it is doing."""
        context, flow = self._context, self._context.flow
        now = time.monotonic()
        files = tuple(f.progress() for f in context.files)
        total, done = sum(f.size for f in files), sum(f.done for f in files)
        # Bytes that an earlier run had shown and lost are news to this one, though not to who watches.
        flow.gained(sum(f.peak for f in context.files))
        state = state or self._doing(now)
        trouble = flow.trouble if state == "stalled" else None
        moving = state == "downloading"
        return DownloadProgress(
            job=self._job,
            repo=context.plan.request.repo,
            target=str(context.plan.target),
            state=state,
            total=total,
            done=done,
            verified=sum(f.verified for f in files),
            files=files,
            rate=flow.meter.sample(now) if moving else None,
            eta=flow.meter.eta(total - done, now) if moving else None,
            reason=trouble.title if trouble else "No data is arriving." if state == "stalled" else None,
            cure=trouble.hint if trouble else None,
        )

    def _doing(self, now: float) -> State:
        files = self._context.files
        if all(f.settled or f.fetched or f.state == "verifying" for f in files):
            return "verifying"
        return "stalled" if now - self._context.flow.last_byte > self._context.settings.quiet_after else "downloading"

    def _prepare(self) -> None:
        """Claims the folder and checks that the rest fits. Blocks."""
        context, plan = self._context, self._context.plan
        context.folder.begin(context.journal.state.done)
        for file in context.files:
            if file.planned.presence == "there":
                file.state = "ready"
        free = context.disk.free(plan.target)
        if plan.remaining and plan.remaining + plan.reserve > free:
            raise DiskFullError(
                f"The download needs {size(plan.remaining)} and {size(plan.reserve)} in reserve, but the volume of "
                f"{plan.target} has {size(free)} free.",
                "Free some space, or choose a folder on another volume with --to.",
            )

    def _note_shown(self) -> None:
        for file in self._context.files:
            file.note_shown()

    async def _work(self) -> None:
        context = self._context
        try:
            async with asyncio.TaskGroup() as group:
                clock = group.create_task(self._clock())

                def opened(file: FileWork) -> None:
                    group.create_task(follow(context, file))

                tasks = [
                    group.create_task(check_existing(context, f))
                    for f in context.files
                    if f.planned.presence == "unchecked"
                ]
                tasks += [
                    group.create_task(Connection(context, opened).run()) for _ in range(context.settings.connections)
                ]
                await asyncio.wait(tasks)
                clock.cancel()
        except BaseExceptionGroup as failures:
            # A bug must not hide behind a broken connection.
            bugs = [e for e in failures.exceptions if not isinstance(e, HubError)]
            raise (bugs or failures.exceptions)[0] from None

    async def _clock(self) -> None:
        """Reports every tick. Raises DiskFullError when the reserve is touched."""
        context, settings = self._context, self._context.settings
        checked = time.monotonic()
        while True:
            snapshot = self.snapshot()
            # First noted, then shown: a killed run must not have shown more than the next one knows of.
            await context.in_thread(self._note_shown)
            self._report(snapshot)
            await asyncio.sleep(settings.tick)
            if time.monotonic() - checked >= settings.space_check:
                checked = time.monotonic()
                free = await context.in_thread(context.disk.free, context.plan.target)
                if free < context.plan.reserve and not all(f.settled or f.fetched for f in context.files):
                    raise DiskFullError(
                        f"The volume of {context.plan.target} has only {size(free)} left.",
                        "Everything fetched is kept. Free some space, then start the same download again.",
                    )

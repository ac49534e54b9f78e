"""One of the parallel connections of a transfer: it makes requests until every file is settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, suppress

from engine.hub.body import Body, OutOfRangeError
from engine.hub.chunks import Claim
from engine.hub.context import TransferContext
from engine.hub.errors import ChangedError, DiskFullError, FileMissingError, HubError, OfflineError, ServerError
from engine.hub.filework import FileWork
from engine.hub.listing import list_files
from engine.hub.plan import PlannedFile
from engine.hub.responses import TransientError
from engine.wording import size


class _SupersededError(Exception):
    """The file started over while this connection was at it."""


class _ChangedFileError(Exception):
    """The hub answered with another version of the file."""


class _Attempt:
    """One request for one claim."""

    def __init__(self, file: FileWork, claim: Claim) -> None:
        self.file = file
        self.claim = claim
        self.version = file.version
        self.received = 0
        self._held = True

    @property
    def superseded(self) -> bool:
        return self.file.version != self.version

    def take(self, claim: Claim, version: int) -> None:
        """Goes on with another claim, after `release`."""
        self.claim, self.version, self._held = claim, version, True

    def release(self) -> None:
        if self._held:
            self._held = False
            self.file.release(self.claim, self.version)


class Connection:
    """Takes claims and fetches them.

    Args:
        opened: called for each file that this connection opens.
    """

    def __init__(self, context: TransferContext, opened: Callable[[FileWork], None]) -> None:
        self._context = context
        self._settings = context.settings
        self._opened = opened
        self._failures = 0
        """In a row, without a byte."""

    async def run(self) -> None:
        """Returns when every file is settled.

        Raises:
            HubError: what makes going on pointless.
        """
        while (attempt := await self._next()) is not None:
            try:
                await self._fetch(attempt)
                self._failures = 0
            except TransientError as error:
                await self._back_off(attempt, error)
            except _ChangedFileError:
                await self._start_over(attempt)
            except _SupersededError:
                pass
            finally:
                attempt.release()
                self._context.changed.set()

    async def _next(self) -> _Attempt | None:
        """The next request to make; None when nothing is left to do."""
        context, settings = self._context, self._settings
        window = settings.connections * settings.run
        while True:
            await context.flow.until_open()
            seen = context.changed.count
            for file in context.files:
                if file.state == "queued" and not await self._open(file):
                    break
                claim = None if file.settled else file.claim(settings.run, window)
                if claim is not None:
                    return _Attempt(file, claim)
            if all(f.settled for f in context.files):
                return None
            await context.changed.changed(seen)

    async def _open(self, file: FileWork) -> bool:
        """Opens a file; False where so many are open that the checksums must catch up first."""
        context = self._context
        if sum(f.is_open for f in context.files) >= 2 * self._settings.connections:
            return False
        file.state = "downloading"
        await context.in_thread(file.open, context.journal, context.disk, self._settings.chunk)
        self._opened(file)
        context.changed.set()
        return True

    async def _fetch(self, attempt: _Attempt) -> None:
        """Makes one request and stores what it brings.

        Raises:
            TransientError: it broke off, or brought too little.
            _ChangedFileError, _SupersededError: see there.
        """
        file, claim = attempt.file, attempt.claim
        try:
            async with self._context.client.read(file.source, claim.start, claim.stop) as body:
                if attempt.superseded:
                    raise _SupersededError
                if file.is_other_version(body.total):
                    raise _ChangedFileError
                await self._context.in_thread(file.pin)
                if body.whole and claim != Claim(0, file.size):
                    await self._take_whole(attempt)
                await self._receive(attempt, body)
        except OutOfRangeError as error:
            if file.is_other_version(error.total):
                raise _ChangedFileError from error
            raise

    async def _take_whole(self, attempt: _Attempt) -> None:
        """The server ignored the range and sends the file from its start: so that is what is fetched."""
        file = attempt.file
        async with file.changing:
            if attempt.superseded:
                raise _SupersededError
            attempt.release()
            attempt.take(*await self._context.in_thread(file.claim_from_start))
        file.moved.set()

    async def _receive(self, attempt: _Attempt, body: Body) -> None:
        """Stores pieces as they come, a buffer at a time. What has come is stored whatever happens.

        Raises:
            TransientError: the body broke off, stalled, or was shorter than the claim.
        """
        file, stop = attempt.file, attempt.claim.stop
        flow, limiter = self._context.flow, self._context.limiter
        offset, buffer = attempt.claim.start, bytearray()

        stored = time.monotonic()

        async def flush() -> None:
            nonlocal offset, buffer, stored
            data, at = buffer, offset
            offset, buffer, stored = offset + len(data), bytearray(), time.monotonic()
            if data:
                await self._context.in_thread(file.store, data, at, attempt.version)
                file.moved.set()

        watch = _SlowWatch(self._floor(), self._settings.stall_after)
        try:
            async with aclosing(body.pieces()) as pieces:
                async for piece in pieces:
                    if attempt.superseded:
                        raise _SupersededError
                    room = stop - offset - len(buffer)
                    if not room:
                        break  # More than was asked for; what ends where it should is read to its end.
                    buffer += piece if len(piece) <= room else piece[:room]
                    attempt.received += len(piece)
                    now = time.monotonic()
                    flow.received(len(piece), now)
                    # On a slow line progress must not wait for a full buffer.
                    if len(buffer) >= self._settings.buffer or now - stored >= self._settings.tick:
                        await flush()
                    watch.check(len(piece), now)
                    if limiter.rate:
                        await limiter.take(len(piece))
        except BaseException as error:
            with suppress(HubError):
                await flush()
            if not (isinstance(error, TransientError) and offset == stop):
                raise
        await flush()
        if offset < stop:
            what = f"{self._context.client.host} sent less of {file.path} than it announced."
            raise TransientError(ServerError(what, "Try again later."), patience=8)

    async def _back_off(self, attempt: _Attempt, error: TransientError) -> None:
        """Waits before the next attempt. Raises the HubError behind `error` when it is time to give up."""
        flow, retry = self._context.flow, self._context.client.retry
        self._failures = 1 if attempt.received else self._failures + 1
        attempt.release()
        self._context.changed.set()
        flow.trouble = error.shown
        if error.wait is not None:
            if error.wait > retry.longest_wait:
                raise error.shown from error
            flow.close_for(error.wait)
            return
        silent = time.monotonic() - flow.last_gain
        if silent > retry.give_up_after or (error.patience is not None and self._failures >= error.patience):
            raise error.shown from error
        await asyncio.sleep(retry.delay(self._failures))

    async def _start_over(self, attempt: _Attempt) -> None:
        """Reads the hub's listing again and fetches the file anew, in the version that is there now.

        Raises:
            ChangedError: that happened too often.
            HubError: the hub has no such file any more, or does not answer.
        """
        file, plan = attempt.file, self._context.plan
        async with file.changing:
            if attempt.superseded:
                return
            file.restarts += 1
            if file.restarts > self._settings.max_restarts:
                raise ChangedError(
                    f"{plan.request.repo}/{file.path} is another file every time it is asked for.",
                    "Start the same download again; if it stays so, the hub or a proxy is at fault.",
                )
            listing = await list_files(self._context.client, plan.request.repo, plan.commit)
            found = next((f for f in listing if f.path == file.path), None)
            if found is None:
                raise FileMissingError(
                    f"{plan.request.repo} has no {file.path} any more.", "Start the same download again."
                )
            fresh = PlannedFile(found.path, found.size, found.sha256, found.git_oid)
            free = await self._context.in_thread(self._context.disk.free, plan.target)
            if fresh.size + plan.reserve > free + file.progress().done:
                raise DiskFullError(
                    f"{file.path} now has {size(fresh.size)}, but the volume of {plan.target} has {size(free)} free.",
                    "Free some space, or choose a folder on another volume with --to.",
                )
            file.trust_etag = fresh.identity == file.planned.identity
            await self._context.in_thread(file.restart, fresh)
            self._context.folder.expect(fresh)
        file.moved.set()

    def _floor(self) -> float:
        """Bytes per second below which a connection is replaced."""
        cap = self._context.limiter.rate
        return min(self._settings.min_rate, cap / (4 * self._settings.connections)) if cap else self._settings.min_rate


class _SlowWatch:
    """Notices a connection that drips. A silent one is the HTTP client's read timeout."""

    def __init__(self, floor: float, span: float) -> None:
        self._floor = floor
        self._span = span
        self._since = time.monotonic()
        self._count = 0

    def check(self, count: int, now: float) -> None:
        """`count` bytes came. Raises TransientError when too few came over the whole span."""
        self._count += count
        elapsed = now - self._since
        if elapsed < self._span:
            return
        if self._count < self._floor * elapsed:
            raise TransientError(OfflineError("The connection has become too slow.", "Check the network."))
        self._since, self._count = now, 0

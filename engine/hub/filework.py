"""One file of a running transfer: its bytes on the disk, its claims, its version."""

from __future__ import annotations

import asyncio
import threading

from engine.hub.chunks import Claim
from engine.hub.client import Source
from engine.hub.errors import ChecksumError, HubError
from engine.hub.journal import Journal
from engine.hub.manifest import FileEntry
from engine.hub.names import WEIGHTS_SUFFIX
from engine.hub.partfile import Digest, Disk, PartFile, in_the_way
from engine.hub.plan import Plan, PlannedFile
from engine.hub.progress import FileProgress, FileState
from engine.hub.tasks import Signal


class FileWork:
    """State of one planned file. `store` and `publish` block and run in threads; the rest belongs to the event loop.

    `version` rises whenever the file starts over; what was claimed of an earlier version is void.
    """

    def __init__(self, plan: Plan, planned: PlannedFile, source: Source) -> None:
        self.planned = planned
        self.source = source
        self.version = 0
        self.restarts = 0
        self.one_stream = False
        """The server ignored a range: only one connection is worth having."""
        self.trust_etag = False
        """The hub's listing was read again after its ETag disagreed with it; the next ETag is taken as it is."""
        self.state: FileState = "queued"
        self.error: HubError | None = None
        self.moved = Signal()
        """Set when the frontier may have moved, or the file started over."""
        self.changing = asyncio.Lock()
        self.verified = 0
        """Most bytes that ever went into the checksum, in file order."""
        self.peak = planned.size if planned.presence == "there" else 0
        """Most bytes that were ever there in this run."""
        self._floor = max(planned.have, planned.shown)
        """What was reported before this run, some of which may be lost: progress stands still until it is there."""
        self._root = plan.target
        self._writes = threading.Condition()
        """Guards the chunk map, the version and the counts below; never held while the disk is waited for."""
        self._writing = 0
        self._streams = 0
        self._restarting = False
        self._part: PartFile | None = None

    @property
    def path(self) -> str:
        return self.planned.path

    @property
    def size(self) -> int:
        return self.planned.size

    @property
    def is_open(self) -> bool:
        return self._part is not None

    @property
    def settled(self) -> bool:
        return self.state in ("ready", "failed")

    @property
    def fetched(self) -> bool:
        """Whether all bytes are there."""
        return self.is_open and not self._restarting and self._chunks.complete

    @property
    def frontier(self) -> int:
        """Bytes without a gap from the start of the file; none while it starts over."""
        return 0 if self._restarting else self._chunks.frontier

    def progress(self) -> FileProgress:
        verified = self.size if self.state == "ready" else self.verified
        return FileProgress(self.path, self.size, min(max(self.peak, self._floor), self.size), verified, self.state)

    def note_shown(self) -> None:
        """Remembers what progress shows of an unfinished file, for the next run. Blocks. Raises HubError."""
        if self.is_open and (done := self.progress().done) > self._record.shown:
            self._journal.show(self._record, done)

    def open(self, journal: Journal, disk: Disk, chunk: int) -> None:
        """Opens or creates the part file and finds out what it holds. Blocks. Raises HubError."""
        part = PartFile(self._root, self.path, disk)
        try:
            record = journal.state.files.get(self.path)
            if record is None or not record.holds(self.planned.identity, self.size, part.length):
                part.clear()
                record = journal.start_file(self.path, size=self.size, chunk=chunk, identity=self.planned.identity)
            self._chunks = record.chunks()
        except BaseException:
            part.close()
            raise
        self._journal, self._record, self._chunk = journal, record, chunk
        self._part = part
        self.state = "downloading"
        self.peak = max(self.peak, self._chunks.done)

    def restart(self, planned: PlannedFile | None = None) -> None:
        """Forgets all bytes; of another version of the file where `planned` is given. Blocks. Raises HubError."""
        part = self._open_part()
        with self._writes:
            self.version += 1
            self._restarting = True
            self._writes.wait_for(lambda: self._writing == 0)
        try:
            self.planned = planned or self.planned
            part.clear()
            self._record = self._journal.start_file(
                self.path, size=self.size, chunk=self._chunk, identity=self.planned.identity
            )
            self._chunks = self._record.chunks()
            self.source.location = None
            self._streams = 0
            self.state = "downloading"
        finally:
            self._restarting = False

    def claim(self, run: int, window: int) -> Claim | None:
        """The next bytes that a connection may fetch, or None; see `ChunkMap.claim`."""
        with self._writes:
            if self._restarting or not self.is_open:
                return None
            if self.one_stream:
                run = window = -(-self.size // self._chunks.chunk)
                if self._streams:
                    return None
            claim = self._chunks.claim(run, window)
            self._streams += claim is not None
            return claim

    def claim_from_start(self) -> tuple[Claim, int]:
        """The whole file and its version, for a response that ignored the range. Blocks. Raises HubError."""
        self.one_stream = True
        if self._chunks.done or self._streams:
            self.restart()
        with self._writes:
            self._streams = 1
            return self._chunks.claim_all(), self.version

    def release(self, claim: Claim, version: int) -> None:
        with self._writes:
            if version == self.version:
                self._chunks.release(claim)
                self._streams -= 1

    def store(self, data: bytes | bytearray, offset: int, version: int) -> None:
        """Writes bytes, and remembers the chunks that they complete. Void if the file started over. Raises HubError."""
        with self._writes:
            if version != self.version:
                return
            part, record = self._open_part(), self._record
            self._writing += 1
        full: list[int] = []
        written = False
        try:
            part.write(data, offset)
            written = True
        finally:
            with self._writes:
                self._writing -= 1
                if written and version == self.version:
                    full = self._chunks.wrote(offset, len(data))
                    self.peak = max(self.peak, self._chunks.done)
                self._writes.notify_all()
        if full:
            part.sync()
            for chunk in full:
                self._journal.full(record, chunk)

    def pin(self) -> None:
        """Remembers the ETag that came with the file. Blocks. Raises HubError."""
        if self.source.etag and self._record.etag != self.source.etag:
            self._journal.pin(self._record, self.source.etag)

    def is_other_version(self, total: int | None) -> bool:
        """Whether the response just received is about another version than the one that is being fetched."""
        etag = self.source.etag
        if total is not None and total != self.size:
            return True
        if etag is None or self.trust_etag:
            return False
        if self._record.etag is not None:
            return self._record.etag != etag
        announced = self.planned.sha256 or self.planned.git_oid
        return announced is not None and len(etag) == len(announced) and etag != announced

    def new_digest(self) -> Digest:
        return Digest(self.size, git=self.planned.sha256 is None and self.planned.git_oid is not None)

    def digest_to(self, digest: Digest, stop: int) -> None:
        """Reads bytes behind the frontier into the checksum. Blocks. Raises HubError."""
        self._open_part().read_into(digest, stop)

    def mismatch(self, digest: Digest) -> ChecksumError | None:
        """The error if the bytes are not the announced ones."""
        return mismatch(self.planned, digest)

    def publish(self, digest: Digest, *, old: FileEntry | None) -> FileEntry:
        """Gives the verified file its name. Blocks.

        Args:
            old: what the manifest says about a file of this name.

        Raises:
            TargetError: a file of the user's has appeared there meanwhile.
            HubError: the disk fails.
        """
        part = self._open_part()
        if part.final.exists() and (old is None or not old.ours):
            raise in_the_way(part.final)
        self._journal.naming(self._record)
        # What the user made of a file of ours is set aside; a weight file cannot have been edited on purpose.
        edited = old is not None and not old.unchanged(part.final) and not self.path.endswith(WEIGHTS_SUFFIX)
        stat = part.publish(keep_old=edited)
        self._part = None
        entry = FileEntry(self.size, digest.sha256, self.planned.identity, stat.st_mtime_ns)
        self._journal.finish(self.path, entry)
        return entry

    def give_up(self) -> None:
        """Removes the part file: nothing of it is worth keeping. Blocks. Raises HubError."""
        self.note_shown()
        self._open_part().discard()
        self._part = None
        self._journal.start_file(self.path, size=self.size, chunk=self._chunk, identity=self.planned.identity)

    def close(self) -> None:
        """Remembers half-filled chunks and closes the part file. Blocks. Raises HubError."""
        if self._part is None:
            return
        part = self._part
        try:
            self.note_shown()
            if rest := list(self._chunks.partial()):
                part.sync()
                for chunk, count in rest:
                    self._journal.part(self._record, chunk, count)
        finally:
            self._part = None
            part.close()

    def _open_part(self) -> PartFile:
        if self._part is None:
            raise RuntimeError(f"{self.path} is not open")
        return self._part


def mismatch(planned: PlannedFile, digest: Digest) -> ChecksumError | None:
    """The error if a digest over a whole file is not the announced one. A file without any hash has only its size."""
    if planned.sha256 is not None:
        wrong = digest.sha256 != planned.sha256
    else:
        wrong = planned.git_oid is not None and digest.git_oid != planned.git_oid
    if digest.position == planned.size and not wrong:
        return None
    return ChecksumError(
        f"{planned.path} arrived damaged: its checksum is not the one that the hub announces.",
        "Start the same download again; if it happens again, the hub's copy or a proxy is at fault.",
    )

"""From bytes to a verified file: the checksum behind the frontier, and the name."""

from __future__ import annotations

from engine.hub.context import TransferContext
from engine.hub.errors import HubError
from engine.hub.filework import FileWork, mismatch
from engine.hub.manifest import FileEntry
from engine.hub.names import place
from engine.hub.partfile import Digest, disk_error, in_the_way

_STEP = 16 << 20
"""Most bytes hashed in one go: a pause does not wait for a whole file."""
_LEAST_STEP = 4 << 20
"""Fewer wait for more to come, unless they are the last: handing work to a thread costs, too."""


async def follow(context: TransferContext, file: FileWork) -> None:
    """Hashes an open file as it grows, then publishes it, or fetches it again if it is damaged.

    A file that is damaged once more is given up: its `error` is set, and the others go on.

    Raises:
        HubError: the disk fails.
    """
    damaged = 0
    while True:
        version, digest = file.version, file.new_digest()
        if not await _hash(context, file, digest, version):
            continue
        file.state = "verifying"
        error = file.mismatch(digest)
        if error is None:
            entry = await context.in_thread(file.publish, digest, old=context.folder.entry(file.path))
            await context.in_thread(context.folder.put, file.path, entry)
            file.state = "ready"
            break
        damaged += 1
        if damaged > context.settings.max_damaged:
            await context.in_thread(file.give_up)
            file.state, file.error = "failed", error
            break
        await context.in_thread(file.restart)
        context.changed.set()
    context.changed.set()


async def _hash(context: TransferContext, file: FileWork, digest: Digest, version: int) -> bool:
    """Reads the file into `digest` as far as its frontier moves. False when it started over meanwhile."""
    while digest.position < file.size:
        seen = file.moved.count
        if file.version != version:
            return False
        frontier = file.frontier
        if frontier - digest.position < min(_LEAST_STEP, file.size - digest.position):
            await file.moved.changed(seen)
            continue
        try:
            await context.in_thread(file.digest_to, digest, min(frontier, digest.position + _STEP))
        except HubError:
            if file.version == version:
                raise
        file.verified = max(file.verified, digest.position)
    return file.version == version


async def check_existing(context: TransferContext, file: FileWork) -> None:
    """Decides by its checksum about a file of the right size that is not known to be the wanted version.

    A wrong one is fetched again where this program put it there; otherwise it is left alone and `error` is set.

    Raises:
        HubError: the disk fails.
    """
    file.state = "verifying"
    record, old = context.journal.state.files.get(file.path), context.folder.entry(file.path)
    # A crash between the rename and the note of it leaves a file that is ours.
    ours = (record is not None and record.naming) or (old is not None and old.ours)
    entry = await context.in_thread(_check, context, file, ours)
    if entry is not None:
        await context.in_thread(context.folder.put, file.path, entry)
        file.peak = file.size
        file.state = "ready"
    elif ours:
        file.state = "queued"
    else:
        file.state = "failed"
        file.error = in_the_way(context.folder.root / file.path)
    context.changed.set()


def _check(context: TransferContext, file: FileWork, ours: bool) -> FileEntry | None:
    path = place(context.folder.root, file.path)
    digest = file.new_digest()
    try:
        with path.open("rb") as opened:
            stat = path.stat()
            digest.read(opened.fileno(), file.size)
    except OSError as error:
        raise disk_error(error, path) from error
    if mismatch(file.planned, digest) is not None:
        return None
    entry = FileEntry(file.size, digest.sha256, file.planned.identity, stat.st_mtime_ns, ours=ours)
    if ours:
        context.journal.finish(file.path, entry)
    return entry

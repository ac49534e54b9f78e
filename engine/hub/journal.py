"""What a download remembers across a kill -9 or a power cut: one file of JSON lines per target folder.

A line is appended and synced after the bytes that it speaks of are synced, so it never claims what is not there.
Lines are read one by one; a torn one, whatever its place, costs at most the chunk it speaks of. Opening rewrites the
file without what no longer counts.

    {"plan": {...}, "key": str, "device": n}     the selection that is being fetched; the last one counts
    {"state": "running"|"paused"|"failed"|"cancelled"|"ready", "reason", "cure", "code"}
    {"file": path, "k": n, "size", "chunk", "identity"}    fetching starts, or starts over; n stands for it from now on
    {"k": n, "c": chunk} · {"k": n, "c": first, "n": count} · {"k": n, "c": chunk, "b": bytes}     bytes that are there
    {"k": n, "shown": bytes}     the most that progress has ever reported of it, whatever was lost since
    {"k": n, "etag": str} · {"k": n, "naming": true}       the ETag it is pinned to · verified, about to be renamed
    {"done": path, "size", "sha256", "identity", "mtime_ns"}   has its final name; put there by this selection
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from engine.hub.chunks import ChunkMap
from engine.hub.manifest import FileEntry
from engine.hub.partfile import disk_error


@dataclass(slots=True)
class FileRecord:
    """What is remembered of one unfinished file."""

    key: int
    size: int
    chunk: int
    identity: str
    """Hash by which the hub announced this version; a version with another one shares no bytes with it."""
    runs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    partial: dict[int, int] = field(default_factory=dict[int, int])
    etag: str | None = None
    naming: bool = False
    shown: int = 0
    """Most bytes that were ever reported as done."""

    def chunks(self) -> ChunkMap:
        """Which bytes are there."""
        chunks = ChunkMap(self.size, self.chunk)
        for first, count in self.runs:
            for k in range(first, first + min(count, self.size // self.chunk + 1)):
                chunks.restore(k)
        for k, count in self.partial.items():
            chunks.restore(k, count)
        return chunks

    def holds(self, identity: str, size: int, length: int) -> bool:
        """Whether this is about a version of a file whose part file, `length` bytes long, can be continued.

        A part file that is shorter than what was noted has been tampered with.
        """
        ends = [min((first + count) * self.chunk, self.size) for first, count in self.runs]
        ends += [k * self.chunk + count for k, count in self.partial.items()]
        return self.identity == identity and self.size == size and max(ends, default=0) <= length


@dataclass(slots=True)
class JournalState:
    """What the lines add up to."""

    plan: dict[str, Any] | None = None
    key: str | None = None
    """Tells selections apart: the same one continues, another one starts its own list of `done`."""
    device: int | None = None
    """Number of the volume that the target was on."""
    state: dict[str, Any] = field(default_factory=lambda: {"state": "paused"})
    files: dict[str, FileRecord] = field(default_factory=dict[str, FileRecord])
    done: dict[str, FileEntry] = field(default_factory=dict[str, FileEntry])


class Journal:
    """The open journal of a running download; one process at a time, see `manager`. Safe to use from threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = read_journal(path)
        self._lock = threading.Lock()
        self._next_key = 0
        self._fd = -1
        self._rewrite()

    def begin(self, plan: dict[str, Any], key: str, device: int) -> None:
        """From now on `plan` is being fetched, to the volume numbered `device`."""
        if key != self.state.key:
            self.state.done = {}
        self.state.plan, self.state.key, self.state.device = plan, key, device
        self.state.state = {"state": "running"}
        self._rewrite()

    def set_state(self, state: str, **details: str | None) -> None:
        self.state.state = {"state": state, **details}
        self._append(self.state.state)

    def start_file(self, path: str, *, size: int, chunk: int, identity: str) -> FileRecord:
        """Fetching `path` starts from nothing. Progress of the same version does not go back for it."""
        old = self.state.files.get(path)
        shown = old.shown if old is not None and (old.identity, old.size) == (identity, size) else 0
        with self._lock:
            record = FileRecord(self._next_key, size, chunk, identity, shown=shown)
            self._next_key += 1
        self.state.files[path] = record
        line = {"file": path, "k": record.key, "size": size, "chunk": chunk, "identity": identity}
        self._append(line)
        if shown:
            self._append({"k": record.key, "shown": shown})
        return record

    def show(self, record: FileRecord, done: int) -> None:
        """Progress is about to report `done` bytes. A power cut may forget it, a killed process does not."""
        record.shown = done
        self._append({"k": record.key, "shown": done}, sync=False)

    def full(self, record: FileRecord, chunk: int) -> None:
        """A chunk is synced."""
        record.runs.append((chunk, 1))
        self._append({"k": record.key, "c": chunk})

    def part(self, record: FileRecord, chunk: int, count: int) -> None:
        """The first `count` bytes of a chunk are synced."""
        record.partial[chunk] = count
        self._append({"k": record.key, "c": chunk, "b": count})

    def pin(self, record: FileRecord, etag: str) -> None:
        record.etag = etag
        self._append({"k": record.key, "etag": etag})

    def naming(self, record: FileRecord) -> None:
        record.naming = True
        self._append({"k": record.key, "naming": True})

    def finish(self, path: str, entry: FileEntry) -> None:
        """`path` has its final name."""
        self.state.files.pop(path, None)
        self.state.done[path] = entry
        self._append(_done_line(path, entry))

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def remove(self) -> None:
        """Closes and deletes the journal: nothing is left to remember."""
        self.close()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _append(self, value: dict[str, Any], *, sync: bool = True) -> None:
        # The newline comes first, so that a line torn by a full disk does not swallow the next one.
        data = b"\n" + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        with self._lock:
            try:
                os.write(self._fd, data)
                if sync:
                    os.fsync(self._fd)
            except OSError as error:
                raise disk_error(error, self.path) from error

    def _rewrite(self) -> None:
        with self._lock:
            temporary = self.path.with_suffix(".tmp")
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                text = "\n".join(json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in self._lines())
                temporary.write_text(text, encoding="utf-8")
                fd = os.open(temporary, os.O_WRONLY | os.O_APPEND)
                os.fsync(fd)
                temporary.replace(self.path)
            except OSError as error:
                raise disk_error(error, self.path) from error
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = fd

    def _lines(self) -> Iterator[dict[str, Any]]:
        state = self.state
        if state.plan is not None:
            yield {"plan": state.plan, "key": state.key, "device": state.device}
        yield state.state
        for path, record in state.files.items():
            record.key = self._next_key
            self._next_key += 1
            yield {
                "file": path,
                "k": record.key,
                "size": record.size,
                "chunk": record.chunk,
                "identity": record.identity,
            }
            if record.etag:
                yield {"k": record.key, "etag": record.etag}
            for first, count in _merge(record.runs):
                yield {"k": record.key, "c": first, "n": count}
            for chunk, count in record.partial.items():
                yield {"k": record.key, "c": chunk, "b": count}
            if record.shown:
                yield {"k": record.key, "shown": record.shown}
            if record.naming:
                yield {"k": record.key, "naming": True}
        for path, entry in state.done.items():
            yield _done_line(path, entry)


def read_journal(path: Path) -> JournalState:
    """What a journal says; empty where there is none. Never raises for its content, only HubError when unreadable."""
    state = JournalState()
    keys: dict[int, FileRecord] = {}
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return state
    except OSError as error:
        raise disk_error(error, path) from error
    for line in data.splitlines():
        try:
            value = json.loads(line)
            if isinstance(value, dict):
                _apply(state, keys, cast("dict[str, Any]", value))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
    for record in state.files.values():
        record.runs = _merge(record.runs)
    return state


def _apply(state: JournalState, keys: dict[int, FileRecord], line: dict[str, Any]) -> None:
    if "plan" in line:
        plan, key = cast("object", line["plan"]), str(line["key"])
        if not isinstance(plan, dict):
            raise TypeError("no plan")
        if key != state.key:
            state.done.clear()
        state.plan, state.key, state.device = cast("dict[str, Any]", plan), key, line.get("device")
    elif "state" in line:
        state.state = line
    elif "file" in line:
        size, chunk = max(0, int(line["size"])), max(1, int(line["chunk"]))
        record = FileRecord(int(line["k"]), size, chunk, str(line["identity"]))
        keys[record.key] = state.files[str(line["file"])] = record
    elif "done" in line:
        entry = FileEntry(int(line["size"]), str(line["sha256"]), str(line["identity"]), int(line["mtime_ns"]))
        state.done[str(line["done"])] = entry
        state.files.pop(str(line["done"]), None)
    elif "c" in line:
        record = keys[line["k"]]
        if "b" in line:
            record.partial[int(line["c"])] = int(line["b"])
        else:
            record.runs.append((int(line["c"]), int(line.get("n", 1))))
    elif "shown" in line:
        keys[line["k"]].shown = int(line["shown"])
    elif "etag" in line:
        keys[line["k"]].etag = str(line["etag"])
    elif "naming" in line:
        keys[line["k"]].naming = True


def _merge(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, count in sorted(runs):
        if merged and first <= sum(merged[-1]):
            start = merged[-1][0]
            merged[-1] = (start, max(sum(merged[-1]), first + count) - start)
        else:
            merged.append((first, count))
    return merged


def _done_line(path: str, entry: FileEntry) -> dict[str, Any]:
    entry_fields = {"size": entry.size, "sha256": entry.sha256, "identity": entry.identity, "mtime_ns": entry.mtime_ns}
    return {"done": path, **entry_fields}

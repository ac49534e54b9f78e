"""Pause, resume, cancel, relaunch; two processes; files that changed; what progress promises."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from fake_hub import FakeHub, Fault
from hub_desk import CHUNK, REPO, Desk, until

from engine.hub.errors import BusyError, TargetError
from engine.hub.manager import DownloadManager
from engine.hub.manifest import load_manifest
from engine.hub.partfile import Disk
from engine.hub.progress import DownloadProgress

pytestmark = pytest.mark.asyncio
WEIGHTS = random.Random(3).randbytes(12 * CHUNK)
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS}


async def half_way(desk: Desk, manager: DownloadManager) -> str:
    """A slow download that is past its middle."""
    desk.hub.push(REPO, FILES)
    desk.hub.slice = 1 << 12
    desk.hub.fault = lambda request: Fault(rate=5e5)
    job = await manager.start(await desk.plan(manager))
    await until(lambda: manager.downloads()[0].done > len(WEIGHTS) / 2)
    return job


async def test_pause_keeps_every_byte(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager() as manager:
        job = await half_way(desk, manager)
        await manager.pause(job)
        paused = manager.downloads()[0]
        assert paused.state == "paused"
        received = paused.done
        hub.fault = lambda request: None
        since = len(hub.log)
        await manager.resume(job)
        last = await manager.wait(job)
    assert last.state == "ready"
    desk.check(FILES)
    assert hub.sent(since=since) == last.total - received


async def test_relaunch_continues_what_was_running_and_keeps_paused_what_was_paused(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager() as manager:
        job = await half_way(desk, manager)
    # Closed while it was running: the next launch goes on by itself.
    async with desk.manager() as manager:
        assert await manager.restore() == (job,)
        await until(lambda: manager.downloads()[0].state in ("downloading", "stalled"))
        await manager.pause(job)
        done = manager.downloads()[0].done
    # Paused by the user: the next launch shows it, at the same place, and leaves it alone.
    async with desk.manager() as manager:
        assert await manager.restore() == (job,)
        shown = manager.downloads()[0]
        assert (shown.state, shown.done, shown.total) == ("paused", done, len(WEIGHTS) + 2)
        await asyncio.sleep(0.05)
        assert manager.downloads()[0].state == "paused"
        hub.fault = lambda request: None
        await manager.resume(job)
        assert (await manager.wait(job)).state == "ready"
    desk.check(FILES)
    async with desk.manager() as manager:
        assert await manager.restore() == ()


async def test_cancel_and_keep_continues_with_the_same_request(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager() as manager:
        job = await half_way(desk, manager)
        assert await manager.cancel(job, delete=False) == 0
        assert manager.downloads() == ()
    async with desk.manager() as manager:
        assert await manager.restore() == ()
        plan = await desk.plan(manager)
        assert plan.have > len(WEIGHTS) / 2
        assert plan.files[1].presence == "partial"
        hub.fault = lambda request: None
        assert (await manager.wait(await manager.start(plan))).state == "ready"
    desk.check(FILES)


async def test_cancel_and_delete_says_what_it_freed_and_leaves_the_rest(hub: FakeHub, desk: Desk) -> None:
    desk.target.mkdir(parents=True)
    (desk.target / "notes.txt").write_text("mine")
    async with desk.manager() as manager:
        job = await half_way(desk, manager)
        done = manager.downloads()[0].done
        freed = await manager.cancel(job, delete=True)
    # Whole blocks were allocated for the part file.
    assert done <= freed + CHUNK
    assert freed <= len(WEIGHTS) + 2
    assert [p.name for p in desk.target.iterdir()] == ["notes.txt"]
    async with desk.manager() as manager:
        assert (await desk.plan(manager)).have == 0


async def test_cancelling_a_stalled_download_is_quick_and_asks_nothing_more(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.fault = lambda request: Fault(stall_after=10)
    async with desk.manager(stall_after=30) as manager:
        job = await manager.start(await desk.plan(manager))
        await until(lambda: manager.downloads()[0].state == "stalled")
        async with asyncio.timeout(2):
            await manager.cancel(job, delete=True)
        asked = len(hub.log)
        await asyncio.sleep(0.3)
        assert len(hub.log) == asked


async def test_a_second_process_is_kept_out(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager() as manager, desk.manager() as other:
        job = await half_way(desk, manager)
        with pytest.raises(BusyError, match="is being downloaded"):
            await other.start(await desk.plan(other))
        assert await other.restore() == ()
        await manager.pause(job)
        hub.fault = lambda request: None
        assert (await other.wait(await other.start(await desk.plan(other)))).state == "ready"
    desk.check(FILES)


async def test_queued_until_there_is_room(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager(parallel=1) as manager:
        job = await half_way(desk, manager)
        second = await manager.start(await desk.plan(manager, desk.home / "elsewhere"))
        first, waiting = manager.downloads()
        assert first.done > 0
        assert (waiting.state, waiting.done) == ("queued", 0)
        hub.fault = lambda request: None
        assert (await manager.wait(job)).state == (await manager.wait(second)).state == "ready"


async def test_a_new_commit_fetches_only_what_changed(hub: FakeHub, desk: Desk) -> None:
    keep, old, new = WEIGHTS[:CHUNK], WEIGHTS, WEIGHTS[::-1]
    hub.push(REPO, {"a.safetensors": keep, "b.safetensors": old, "gone.safetensors": b"gone"})
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
        since = len(hub.log)
        files = {"a.safetensors": keep, "b.safetensors": new}
        commit = hub.push(REPO, files)
        assert (await desk.fetch(manager)).state == "ready"
    assert hub.sent(since=since) == len(new)
    desk.check(files)
    manifest = load_manifest(desk.target)
    assert manifest is not None
    assert (manifest.commit, manifest.missing(desk.target)) == (commit, [])


async def test_a_file_that_changed_between_two_runs_starts_over(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager() as manager:
        await half_way(desk, manager)
    files = {**FILES, "model.safetensors": WEIGHTS[::-1]}
    hub.push(REPO, files)
    hub.fault = lambda request: None
    async with desk.manager() as manager:
        since = len(hub.log)
        assert (await desk.fetch(manager)).state == "ready"
    assert hub.sent("model.safetensors", since=since) == len(WEIGHTS)
    desk.check(files)


@pytest.mark.parametrize("fresh", [WEIGHTS[::-1], WEIGHTS[: 5 * CHUNK], WEIGHTS + b"more"])
async def test_a_file_that_changes_under_a_pinned_commit_starts_over(hub: FakeHub, desk: Desk, fresh: bytes) -> None:
    async with desk.manager() as manager:
        job = await half_way(desk, manager)
        await manager.pause(job)
        tree = hub.repos[REPO].commits[hub.repos[REPO].head]
        tree["model.safetensors"].data = fresh
        hub.fault = lambda request: None
        await manager.resume(job)
        last = await manager.wait(job)
    assert last.state == "ready", last
    desk.check({**FILES, "model.safetensors": fresh})


async def test_progress_promises(hub: FakeHub, desk: Desk) -> None:
    seen: list[tuple[float, DownloadProgress]] = []
    loop = asyncio.get_running_loop()
    dice = random.Random(1)
    hub.push(REPO, FILES)
    hub.slice = 1 << 12

    def fault(request: object) -> Fault:
        # Every kind of setback at once: breaks, an ignored range, a flipped byte.
        n = dice.random()
        return Fault(
            rate=4e5, close_after=CHUNK if n < 0.4 else None, ignore_range=n > 0.9, flip=9 if n > 0.7 else None
        )

    hub.fault = fault
    async with desk.manager(max_damaged=9) as manager:
        manager.subscribe(lambda p: seen.append((loop.time(), p)))
        last = await desk.fetch(manager)
    assert last.state == "ready", last
    times = [t for t, _ in seen]
    reports = [p for _, p in seen]
    assert max(b - a for a, b in pairwise(times)) < 2
    assert {p.total for p in reports} == {len(WEIGHTS) + 2}
    assert [p.done for p in reports] == sorted(p.done for p in reports)
    assert [p.verified for p in reports] == sorted(p.verified for p in reports)
    assert all(p.done <= p.total for p in reports)
    for name in FILES:
        done = [f.done for p in reports for f in p.files if f.path == name]
        assert done == sorted(done)
    rates = [p.rate for p in reports if p.rate]
    assert rates
    assert all(p.eta is None or p.eta >= 0 for p in reports)


def done_of(reports: list[DownloadProgress]) -> list[int]:
    return [p.done for p in reports]


async def killed_half_way(desk: Desk) -> int:
    """Leaves the data directory as a kill would. Returns what was shown by then."""
    copy = desk.home.with_name(desk.home.name + "-copy")
    async with desk.manager(chunk=4 * CHUNK) as manager:
        await half_way(desk, manager)
        shutil.copytree(desk.home, copy)
        shown = manager.downloads()[0].done
    shutil.rmtree(desk.home)
    copy.rename(desk.home)
    return shown


@pytest.mark.parametrize("part_is_lost", [False, True])
async def test_progress_goes_on_after_a_kill_where_it_stood(hub: FakeHub, desk: Desk, part_is_lost: bool) -> None:
    """A killed process loses its unfinished chunks; progress stands still while they are fetched again."""
    shown = await killed_half_way(desk)
    if part_is_lost:
        (desk.target / "model.safetensors.part").write_bytes(b"")
    seen: list[DownloadProgress] = []
    hub.fault = lambda request: Fault(rate=1e6)
    async with desk.manager(chunk=4 * CHUNK) as manager:
        assert (await desk.plan(manager)).have < shown
        assert (await desk.fetch(manager, seen.append)).state == "ready"
    assert done_of(seen) == sorted(done_of(seen))
    assert seen[0].done >= shown
    desk.check(FILES)


async def test_progress_goes_on_after_a_pause_and_a_failure_where_it_stood(hub: FakeHub, desk: Desk) -> None:
    seen: list[DownloadProgress] = []
    async with desk.manager(max_damaged=0) as manager:
        manager.subscribe(seen.append)
        job = await half_way(desk, manager)
        await manager.pause(job)
        hub.fault = lambda request: Fault(flip=len(WEIGHTS) - 1) if request.file == "model.safetensors" else None
        await manager.resume(job)
        assert (await manager.wait(job)).code == "checksum"
    hub.fault = lambda request: None
    async with desk.manager() as manager:
        assert (await desk.fetch(manager, seen.append)).state == "ready"
    assert done_of(seen) == sorted(done_of(seen))
    desk.check(FILES)


class FullDisk(Disk):
    """Runs full after some bytes, or stands before its reserve."""

    def __init__(self, room: int | None = None, free: int | None = None) -> None:
        self.room = room
        self.left = free

    def write(self, fd: int, data: bytes | bytearray, offset: int) -> None:
        if self.room is not None:
            if self.room < len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= len(data)
        super().write(fd, data, offset)

    def free(self, folder: Path) -> int:
        return super().free(folder) if self.left is None else self.left


async def test_a_full_disk_pauses_with_everything_kept(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    disk = FullDisk(room=5 * CHUNK + 99)
    async with desk.manager(disk=disk) as manager:
        last = await desk.fetch(manager)
        assert (last.state, last.code) == ("paused", "disk-full")
        assert "kept" in (last.cure or "")
        assert last.done > 4 * CHUNK
    # The app starts again, shows it, and continues once there is room.
    async with desk.manager() as manager:
        await manager.restore()
        shown = manager.downloads()[0]
        assert (shown.state, shown.code, shown.done) == ("paused", "disk-full", last.done)
        since = len(hub.log)
        await manager.resume(shown.job)
        assert (await manager.wait(shown.job)).state == "ready"
    desk.check(FILES)
    assert hub.sent(since=since) == len(WEIGHTS) + 2 - last.done


async def test_no_start_into_the_reserve(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    async with desk.manager(disk=FullDisk(free=len(WEIGHTS) + 2), reserve=1) as manager:
        plan = await desk.plan(manager)
        assert not plan.fits
        last = await manager.wait(await manager.start(plan))
    assert (last.state, last.code) == ("paused", "disk-full")
    assert "needs 786 kB and 1 B in reserve" in (last.reason or "")
    assert "has 786 kB free" in (last.reason or "")
    assert hub.sent() == 0


async def test_a_folder_that_the_system_refuses_to_make_is_no_missing_volume(
    hub: FakeHub, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def refuse(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if path == desk.target:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        make(path, mode, parents, exist_ok)

    hub.push(REPO, FILES)
    async with desk.manager(disk=FullDisk(free=0), reserve=1) as manager:
        plan = await desk.plan(manager)
        with monkeypatch.context() as patch:
            patch.setattr("engine.hub.folder.Path.mkdir", refuse)
            last = await manager.wait(await manager.start(plan))
    assert (last.state, last.code) == ("failed", "target")
    assert f"{desk.target} cannot be written" in (last.reason or "")


async def test_pause_before_the_reserve_is_touched(hub: FakeHub, desk: Desk) -> None:
    disk = FullDisk(free=10**9)
    async with desk.manager(disk=disk, reserve=10**6) as manager:
        job = await half_way(desk, manager)
        disk.left = 10**6 - 1
        last = await manager.wait(job)
        assert (last.state, last.code) == ("paused", "disk-full")
        disk.left = 10**9
        hub.fault = lambda request: None
        await manager.resume(job)
        assert (await manager.wait(job)).state == "ready"
    desk.check(FILES)


async def test_a_file_of_the_users_is_never_replaced(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    config = desk.target / "config.json"
    config.parent.mkdir(parents=True)
    config.write_bytes(b"{ }")
    async with desk.manager() as manager:
        with pytest.raises(TargetError, match=r"config\.json"):
            await desk.fetch(manager)
        # Of the right size, its checksum decides.
        config.write_bytes(b"[]")
        last = await desk.fetch(manager)
        assert (last.state, last.code) == ("failed", "target")
        assert config.read_bytes() == b"[]"
        config.write_bytes(b"{}")
        since = len(hub.log)
        assert (await desk.fetch(manager)).state == "ready"
        assert hub.sent(since=since) == 0
    manifest = load_manifest(desk.target)
    assert manifest is not None
    assert (manifest.files["config.json"].ours, manifest.files["model.safetensors"].ours) == (False, True)


async def test_a_file_of_the_users_that_was_used_is_not_replaced_by_a_later_version(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    desk.target.mkdir(parents=True)
    (desk.target / "config.json").write_bytes(FILES["config.json"])
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
        hub.push(REPO, {**FILES, "config.json": b"[]"})
        with pytest.raises(TargetError, match=r"config\.json"):
            await desk.plan(manager)


async def test_a_file_that_the_user_adds_during_the_download_stays(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager() as manager:
        job = await half_way(desk, manager)
        (desk.target / "model.safetensors").write_bytes(b"mine")
        hub.fault = lambda request: None
        last = await manager.wait(job)
    assert (last.state, last.code) == ("failed", "target")
    assert (desk.target / "model.safetensors").read_bytes() == b"mine"


async def test_a_damaged_file_of_ours_is_fetched_again(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
        (desk.target / "model.safetensors").write_bytes(WEIGHTS[:100])
        (desk.target / "config.json").write_bytes(b"{ }")
        assert (await desk.fetch(manager)).state == "ready"
    # What the user may have written is set aside, a truncated shard is not.
    desk.check({**FILES, "config.json.changed": b"{ }"})


async def test_a_touched_or_copied_model_is_not_fetched_again(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
        (desk.target / "model.safetensors").touch()
        since = len(hub.log)
        assert (await desk.fetch(manager)).state == "ready"
        assert hub.sent(since=since) == 0


async def test_another_repository_does_not_move_in(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.push("owner/second", FILES)
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
        second = await manager.plan(type((await desk.plan(manager)).request)("owner/second"), desk.target)
        last = await manager.wait(await manager.start(second))
    assert (last.state, last.code) == ("failed", "target")
    assert "owner/model" in (last.reason or "")


async def test_a_part_file_that_was_tampered_with_is_not_trusted(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager() as manager:
        job = await half_way(desk, manager)
        await manager.pause(job)
        part = desk.target / "model.safetensors.part"
        with part.open("r+b") as file:
            file.write(b"tampered")
        hub.fault = lambda request: None
        await manager.resume(job)
        assert (await manager.wait(job)).state == "ready"
    desk.check(FILES)


async def test_a_damaged_journal_costs_bytes_but_no_download(hub: FakeHub, desk: Desk) -> None:
    async with desk.manager() as manager:
        job = await half_way(desk, manager)
        await manager.pause(job)
    journal = next((desk.home / "downloads").glob("*.jsonl"))
    lines = journal.read_bytes().splitlines()
    journal.write_bytes(b"\n".join([lines[0], b'{"torn', b"[1]", *lines[2:], b'{"k": 99, "c": 1}', b"\xff\xfe"]))
    hub.fault = lambda request: None
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
    desk.check(FILES)

"""Whole downloads, and every way in which a connection breaks on the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from fake_hub import FakeFile, FakeHub, Fault, Request
from hub_desk import CHUNK, REPO, RETRY, Desk

from engine.hub.progress import DownloadProgress

pytestmark = pytest.mark.asyncio
CONFIG = b'{"model_type": "inkling_mm_model"}'
WEIGHTS = random.Random(7).randbytes(11 * CHUNK + 123)
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS}


def first(count: int, fault: Fault, file: str = "model.safetensors") -> Callable[[Request], Fault | None]:
    """The first `count` requests for a file go wrong."""
    left = [count]

    def decide(request: Request) -> Fault | None:
        if request.file != file or left[0] == 0:
            return None
        left[0] -= 1
        return fault

    return decide


async def test_a_repository_arrives_once_and_whole(hub: FakeHub, desk: Desk) -> None:
    files = {**FILES, "a/ünïcode-模型.txt": b"x" * 9, "zero.txt": b"", "zero.safetensors": b""}
    hub.push(REPO, files)
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready", last
    assert last.total == last.done == last.verified == hub.sent() == sum(map(len, files.values()))
    desk.check(files)


async def test_two_hundred_files(hub: FakeHub, desk: Desk) -> None:
    hub.page = 64
    files = {f"part-{k:03}.json": b"%d" % k * (k + 1) for k in range(200)}
    hub.push(REPO, files)
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert (last.state, last.files_ready) == ("ready", 200)
    desk.check(files)


async def test_a_repository_without_files(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, {})
    async with desk.manager() as manager:
        plan = await desk.plan(manager)
        assert "holds no files" in plan.notes[0]
        last = await manager.wait(await manager.start(plan))
    assert (last.state, last.total) == ("ready", 0)


async def test_a_xet_file_comes_over_plain_http(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, {"model.safetensors": FakeFile(WEIGHTS, xet=True)})
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready"
    assert not [r for r in hub.log if "xet" in r.path]
    desk.check({"model.safetensors": WEIGHTS})


@pytest.mark.parametrize("ranges", [True, False])
async def test_a_mirror_that_tells_nothing_but_the_bytes(hub: FakeHub, desk: Desk, ranges: bool) -> None:
    hub.push(REPO, FILES)
    hub.bare = True
    dice = random.Random(5)

    def fault(request: Request) -> Fault:
        return Fault(ignore_range=not ranges, close_after=2 * CHUNK if dice.random() < 0.3 else None)

    hub.fault = fault
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready", last
    desk.check(FILES)


@pytest.mark.parametrize("kind", ["reset_after", "close_after"])
async def test_connections_that_break_at_random_bytes(hub: FakeHub, desk: Desk, kind: str) -> None:
    hub.push(REPO, FILES)
    dice = random.Random(kind)
    hub.fault = lambda request: Fault(**{kind: dice.randrange(CHUNK)}) if dice.random() < 0.6 else None
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready", last
    desk.check(FILES)
    assert len(hub.content_requests()) > 5
    if kind == "close_after":
        # What was sent before a connection ended in order is not fetched again.
        assert hub.sent("model.safetensors") == len(WEIGHTS)


async def test_a_flipped_byte_is_noticed_and_fetched_again(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.fault = first(1, Fault(flip=2 * CHUNK + 5))
    async with desk.manager(run=99) as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready"
    desk.check(FILES)
    assert hub.sent("model.safetensors") == 2 * len(WEIGHTS)


async def test_a_byte_that_is_always_wrong_fails_only_its_file(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, {**FILES, "other.safetensors": WEIGHTS[:CHUNK]})
    hub.fault = lambda request: Fault(flip=5) if request.file == "model.safetensors" else None
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert (last.state, last.code) == ("failed", "checksum")
    assert "model.safetensors" in (last.reason or "")
    assert last.cure
    desk.check({"config.json": CONFIG, "other.safetensors": WEIGHTS[:CHUNK]})
    # Another try fetches the damaged file only.
    since, hub.fault = len(hub.log), lambda request: None
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
    assert hub.sent(since=since) == len(WEIGHTS)


async def test_a_damaged_file_in_git_is_noticed_by_its_blob_id(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.fault = lambda request: Fault(flip=3) if request.file == "config.json" else None
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert (last.state, last.code) == ("failed", "checksum")
    desk.check({"model.safetensors": WEIGHTS})


@pytest.mark.parametrize(
    "fault", [Fault(ignore_range=True), Fault(ignore_range=True, chunked=True), Fault(compress=True)]
)
async def test_a_server_without_ranges(hub: FakeHub, desk: Desk, fault: Fault) -> None:
    hub.push(REPO, FILES)
    hub.fault = lambda request: fault
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready", last
    desk.check(FILES)


async def test_a_server_without_ranges_that_breaks_off_starts_the_file_over(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    breaks = [3 * CHUNK, 5 * CHUNK + 17, CHUNK]

    def fault(request: Request) -> Fault:
        if request.file == "model.safetensors" and breaks:
            return Fault(ignore_range=True, close_after=breaks.pop())
        return Fault(ignore_range=True)

    hub.fault = fault
    seen: list[DownloadProgress] = []
    async with desk.manager(connections=1) as manager:
        last = await desk.fetch(manager, seen.append)
    assert last.state == "ready", last
    desk.check(FILES)
    assert [p.done for p in seen] == sorted(p.done for p in seen)


async def test_one_stray_answer_without_range_does_not_damage_the_others(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    asked = [0]

    def fault(request: Request) -> Fault | None:
        asked[0] += request.file == "model.safetensors"
        return Fault(ignore_range=True) if asked[0] == 3 else Fault(rate=2e6)

    hub.fault = fault
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready", last
    desk.check(FILES)


async def test_an_answer_for_other_bytes_is_not_written(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.fault = first(2, Fault(wrong_start=True))
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
    desk.check(FILES)
    hub.push(REPO, {"model.safetensors": WEIGHTS[::-1]})
    hub.fault = lambda request: Fault(wrong_start=True)
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert (last.state, last.code) == ("failed", "server")


async def test_a_stalled_connection_is_shown_and_replaced(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.fault = first(3, Fault(stall_after=CHUNK))
    seen: list[DownloadProgress] = []
    async with desk.manager(stall_after=0.5) as manager:
        last = await desk.fetch(manager, seen.append)
    assert last.state == "ready"
    desk.check(FILES)
    stalled = [p for p in seen if p.state == "stalled"]
    assert stalled
    assert all(p.rate is None and p.eta is None and p.reason for p in stalled)


async def test_a_dripping_connection_is_replaced(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.slice = 64
    hub.fault = first(3, Fault(rate=640.0))
    async with desk.manager(stall_after=0.5) as manager:
        last = await asyncio.wait_for(desk.fetch(manager), 10)
    assert last.state == "ready"
    desk.check(FILES)
    assert hub.sent("model.safetensors") < len(WEIGHTS) + 3 * CHUNK


async def test_a_storm_of_429_is_waited_out_as_asked(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.fault = first(6, Fault(status=429, headers={"Retry-After": "1"}))
    seen: list[DownloadProgress] = []
    async with desk.manager() as manager:
        last = await desk.fetch(manager, seen.append)
    assert last.state == "ready"
    refused = [r.at for r in hub.log if r.status == 429]
    assert len(refused) == 6
    # A pause holds for all connections, so the refusals come in bursts a second apart.
    assert max(refused) - min(refused) > 0.9
    assert min(r.at for r in hub.content_requests() if r.file == "model.safetensors") > max(refused) + 0.9
    assert any(p.state == "stalled" and "429" in (p.reason or "") for p in seen)


async def test_a_pause_longer_than_patience_is_told(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.fault = lambda request: Fault(status=429, headers={"Retry-After": "7200"})
    async with desk.manager() as manager:
        last = await desk.fetch(manager)
    assert (last.state, last.code) == ("failed", "rate-limited")
    assert "7200 s" in (last.cure or "")


async def test_server_errors_are_retried(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.fault = first(5, Fault(status=503))
    async with desk.manager() as manager:
        assert (await desk.fetch(manager)).state == "ready"
    desk.check(FILES)


async def test_signed_addresses_that_expire_are_resolved_again(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)

    def fault(request: Request) -> Fault | None:
        if request.server == "storage" and len(hub.content_requests()) % 3 == 2:
            hub.expire_signatures()
        return None

    hub.fault = fault
    async with desk.manager(run=1) as manager:
        last = await desk.fetch(manager)
    assert last.state == "ready", last
    desk.check(FILES)
    assert [r for r in hub.log if r.status == 403]
    # A busy machine may break off a request as stalled; what is there already is not fetched over and over.
    assert hub.sent() < 2 * sum(map(len, FILES.values()))


async def test_a_storage_that_refuses_fresh_addresses_is_given_up(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.signed_for = -1
    async with desk.manager() as manager:
        last = await asyncio.wait_for(desk.fetch(manager), 10)
    assert (last.state, last.code) == ("failed", "server")
    assert "403" in (last.reason or "")


async def test_a_dead_line_ends_in_advice_and_continues_later(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    served = [0]

    def fault(request: Request) -> Fault | None:
        served[0] += request.file == "model.safetensors"
        return Fault(reset_after=0) if served[0] > 2 else None

    hub.fault = fault
    quick = type(RETRY)(first=0.02, ceiling=0.05, give_up_after=0.3)
    async with desk.manager(run=2, connections=1, retry=quick) as manager:
        last = await desk.fetch(manager)
        assert (last.state, last.code) == ("failed", "offline")
        assert "continues" in (last.cure or "")
        hub.fault = lambda request: None
        await manager.resume(last.job)
        assert (await manager.wait(last.job)).state == "ready"
    desk.check(FILES)
    assert hub.sent() == sum(map(len, FILES.values()))


async def test_the_cap_holds_over_all_connections(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    async with desk.manager(rate=1.2e6) as manager:
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert (await desk.fetch(manager)).state == "ready"
        took = loop.time() - started
    assert 0.8 < took * 1.2e6 / len(WEIGHTS) < 2.5

"""Refusals: each with advice of its own, and the token stays at home."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fake_hub import TOKEN, FakeHub, Fault, Request
from hub_desk import REPO, Desk
from huggingface_hub import constants

from engine.hub.client import HubClient
from engine.hub.errors import (
    FileMissingError,
    ForbiddenError,
    GatedError,
    HubError,
    OfflineError,
    RateLimitedError,
    RepoNotFoundError,
    RevisionNotFoundError,
    ServerError,
    TokenError,
    UnsafeNameError,
)
from engine.hub.retry import retry_after

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 3000}


async def refusal(desk: Desk, kind: type[HubError], **request: object) -> HubError:
    async with desk.manager() as manager:
        with pytest.raises(HubError) as caught:
            await desk.plan(manager, **request)
    assert type(caught.value) is kind, caught.value
    assert caught.value.hint
    return caught.value


@pytest.mark.asyncio
@pytest.mark.parametrize("stored", ["below a file", "folder", "binary"])
async def test_a_token_file_that_cannot_be_read_is_named(
    stored: str, hub: FakeHub, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.push(REPO, FILES)
    path = tmp_path / "token"
    if stored == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe hf")
    place = path / "token" if stored == "below a file" else path
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(place))
    desk.token = True
    assert str(place) in (await refusal(desk, TokenError)).hint


@pytest.mark.asyncio
async def test_every_refusal_has_its_own_advice(hub: FakeHub, desk: Desk) -> None:
    advice: set[str] = set()
    hub.push(REPO, FILES)
    advice.add(str(await refusal(desk, RevisionNotFoundError, revision="v9")))
    hub.repos[REPO].private = True
    advice.add(str(await refusal(desk, RepoNotFoundError)))
    hub.repos[REPO].private = False
    hub.repos[REPO].gated = True
    advice.add(str(await refusal(desk, GatedError)))
    desk.token = TOKEN
    advice.add(str(await refusal(desk, GatedError)))
    desk.token = "hf_wrong"
    advice.add(str(await refusal(desk, TokenError)))
    desk.token = TOKEN
    del hub.repos[REPO]
    advice.add(str(await refusal(desk, RepoNotFoundError)))
    hub.api_fault = lambda request: Fault(status=403)
    advice.add(str(await refusal(desk, ForbiddenError)))
    hub.api_fault = lambda request: Fault(status=429, headers={"Retry-After": "900"})
    advice.add(str(await refusal(desk, RateLimitedError)))
    hub.api_fault = lambda request: Fault(status=502)
    advice.add(str(await refusal(desk, ServerError)))
    assert len(advice) == 9
    assert not [text for text in advice if TOKEN in text or "hf_wrong" in text]


@pytest.mark.asyncio
async def test_no_connection_and_offline_mode(desk: Desk, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils import _http

    class Nowhere:
        endpoint = "http://127.0.0.1:9"

    desk.hub = Nowhere()  # type: ignore[assignment]
    error = await refusal(desk, OfflineError)
    assert "cannot be reached" in error.title
    # The real client, whose hook refuses every request in offline mode.
    monkeypatch.setattr(_http, "_GLOBAL_ASYNC_CLIENT_FACTORY", _http.default_async_client_factory)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    desk.hub = hub
    error = await refusal(desk, OfflineError)
    assert "HF_HUB_OFFLINE" in error.hint
    assert hub.log == []


@pytest.mark.asyncio
async def test_access_withdrawn_during_a_download(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    async with desk.manager() as manager:
        plan = await desk.plan(manager)
        hub.repos[REPO].gated = True
        last = await manager.wait(await manager.start(plan))
        assert (last.state, last.code) == ("failed", "gated")
        hub.repos[REPO].gated = False
        hub.repos[REPO].commits[plan.commit].pop("model.safetensors")
        last = await manager.wait(await manager.start(plan))
    assert (last.state, last.code) == ("failed", FileMissingError.reason)


@pytest.mark.asyncio
async def test_metadata_requests_are_retried_and_wait_as_asked(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    answers = [Fault(status=503), Fault(status=429, headers={"Retry-After": "1"}), Fault(status=500)]
    hub.api_fault = lambda request: answers.pop() if answers else None
    async with desk.manager() as manager:
        assert len((await desk.plan(manager)).files) == 2


@pytest.mark.asyncio
async def test_the_token_goes_to_the_hub_and_nowhere_else(
    hub: FakeHub, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    hub.push(REPO, FILES)
    hub.repos[REPO].private = True
    desk.token = TOKEN
    seen: list[object] = []
    with caplog.at_level(logging.DEBUG):
        async with desk.manager() as manager:
            manager.subscribe(lambda progress: seen.append(progress.to_json(with_files=True)))
            assert (await desk.fetch(manager)).state == "ready"
    authorized = {r.server for r in hub.log if "authorization" in {name.lower() for name in r.headers}}
    assert authorized == {"hub"}
    assert [r for r in hub.log if r.server == "storage"]
    stored = "".join(p.read_text(errors="replace") for p in desk.home.rglob("*") if p.is_file())
    assert TOKEN not in caplog.text + repr(seen) + stored
    # Nor are signed addresses kept.
    assert "X-Signature" not in stored


@pytest.mark.asyncio
async def test_links_of_the_hub_that_lead_away_get_no_token(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    desk.token = TOKEN

    def page_elsewhere(request: Request) -> Fault | None:
        if "/tree/" not in request.path:
            return None
        return Fault(status=307, headers={"Location": f"{hub.storage}/{REPO}/config.json"})

    hub.api_fault = page_elsewhere
    async with desk.manager() as manager:
        with pytest.raises(HubError):
            await desk.plan(manager)
    away = [r for r in hub.log if r.server == "storage"]
    assert away
    assert not [r for r in away if "authorization" in {name.lower() for name in r.headers}]


@pytest.mark.asyncio
@pytest.mark.parametrize("location", ["ftp://127.0.0.1/x", "file:///etc/passwd", "data:,x"])
async def test_redirects_to_other_schemes_are_refused(hub: FakeHub, desk: Desk, location: str) -> None:
    hub.push(REPO, FILES)
    hub.api_fault = lambda request: Fault(status=302, headers={"Location": location})
    await refusal(desk, ServerError)


@pytest.mark.asyncio
async def test_redirects_in_circles_end(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.api_fault = lambda request: Fault(status=302, headers={"Location": request.path})
    error = await refusal(desk, ServerError)
    assert "circles" in error.title


@pytest.mark.asyncio
async def test_a_token_with_impossible_characters_is_not_sent(hub: FakeHub, desk: Desk) -> None:
    desk.token = "hf_tøken"
    error = await refusal(desk, TokenError)
    assert "tøken" not in str(error)
    assert hub.log == []


@pytest.mark.asyncio
async def test_a_server_that_asks_for_pauses_for_ever_is_given_up(hub: FakeHub, desk: Desk) -> None:
    hub.api_fault = lambda request: Fault(status=429, headers={"Retry-After": "0"})
    await refusal(desk, RateLimitedError)


@pytest.mark.asyncio
async def test_an_endpoint_that_is_no_address() -> None:
    with pytest.raises(UnsafeNameError, match="HF_ENDPOINT"):
        async with HubClient(endpoint="not an address", token=False):
            pass


@pytest.mark.asyncio
async def test_a_login_page_in_place_of_the_hub(hub: FakeHub, desk: Desk) -> None:
    hub.push(REPO, FILES)
    hub.api_fault = lambda request: Fault(status=200)  # its body is JSON, but describes no model
    error = await refusal(desk, ServerError)
    assert "HF_ENDPOINT" in error.hint


@pytest.mark.asyncio
async def test_proxies_of_the_environment_are_used(hub: FakeHub, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.push(REPO, FILES)
    monkeypatch.setenv("HTTP_PROXY", hub.endpoint)
    monkeypatch.setenv("NO_PROXY", "")
    async with HubClient(endpoint="http://hub.invalid", token=False) as client:
        assert (await client.describe(REPO, "main")).commit == commit
    assert hub.log[0].path.startswith("http://hub.invalid/")


def test_retry_after_in_all_its_forms() -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
    assert retry_after({"retry-after": "17"}) == 17
    assert retry_after({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT"}, now) == 30
    assert retry_after({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, now) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"ratelimit": '"api";r=0;t=55'}) == 55
    assert retry_after({"ratelimit": '"api";r=12;t=55'}) is None
    assert retry_after({}) is None

"""HTTP with the hub: metadata, redirects by hand, byte ranges.

Requests go through huggingface_hub's asynchronous client (proxies, offline mode, a client factory set by the host
program), with its endpoint, token and URLs. They do not go through `HfApi`: its calls block, and some have
no timeout, so a paused download could not stop asking.

The token is sent to the origin of the endpoint and nowhere else. Redirects are followed here, one hop at a time,
because a signed address on another host has to be kept for the next range, and because what the hub says about a
file (its ETag, its size) is on the redirect itself. A step from https down to http is refused.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

import httpx2
from huggingface_hub import constants, hf_hub_url
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import fix_hf_endpoint_in_url, get_async_session

from engine.hub.body import Body, OutOfRangeError, natural, read_body
from engine.hub.errors import (
    HubError,
    OfflineError,
    RateLimitedError,
    ServerError,
    TokenError,
    UnsafeNameError,
)
from engine.hub.headers import hub_headers
from engine.hub.responses import Subject, TransientError, rejection, transport_failure
from engine.hub.retry import RETRY_STATUSES, Patience, RetryPolicy, retry_after
from engine.hub.tasks import to_end

_MAX_HOPS = 10
_MAX_PAGES = 1000
_CONNECT_S = 10.0
_SHORT = 1 << 16
_LAST_PORT = 65535
_MAX_ANSWER = 64 << 20
"""Bytes of a JSON answer; a page of a listing has a thousand files and less than 1 MB."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a repository. `sha256` is known for LFS and Xet files, `git_oid` for those in git itself."""

    path: str
    size: int
    sha256: str | None
    git_oid: str | None


@dataclass(frozen=True, slots=True)
class RepoInfo:
    """A repository at a revision."""

    commit: str
    gated: bool
    """Listed for everyone, while the files need the terms accepted."""


@dataclass(slots=True)
class Source:
    """Where the bytes of one file are read. `location` is a signed address, kept until it is refused."""

    subject: Subject
    url: str
    commit: str | None = None
    location: str | None = None
    etag: str | None = None
    """What the hub last called this version of the file."""


class HubClient:
    """One connection pool. Use as an asynchronous context manager, inside one event loop.

    Args:
        endpoint: of the hub; None = HF_ENDPOINT or huggingface.co.
        token: as huggingface_hub takes it; None = HF_TOKEN or its token file, False = none.
        stall_after: seconds without a byte after which a connection is given up.
    """

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        token: str | bool | None = None,
        retry: RetryPolicy | None = None,
        stall_after: float = 30.0,
    ) -> None:
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self.retry = retry or RetryPolicy()
        self._token = token
        self._timeout = httpx2.Timeout(stall_after, connect=min(_CONNECT_S, stall_after), pool=None)
        self._stack = AsyncExitStack()
        self._http: httpx2.AsyncClient | None = None
        self._headers: dict[str, str] = {}
        self._authorization: str | None = None

    async def __aenter__(self) -> Self:
        try:
            self._origin = _origin(self.endpoint)
        except (httpx2.InvalidURL, ValueError) as error:
            raise UnsafeNameError(
                f"{self.endpoint!r} is not the address of a hub.", "Correct or unset HF_ENDPOINT."
            ) from error
        # In threads: an OAuth token may be renewed over the network here, and reading the certificates takes 0.1 s.
        headers = await to_end(hub_headers, self._token)
        self._authorization = headers.pop("authorization", None)
        if self._authorization and not (self._authorization.isascii() and self._authorization.isprintable()):
            raise TokenError("The Hugging Face token holds characters that no token has.", "Copy HF_TOKEN once more.")
        self._headers = {**headers, "accept-encoding": "identity"}
        self._http = await self._stack.enter_async_context(await to_end(get_async_session))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def host(self) -> str:
        return httpx2.URL(self.endpoint).host

    def source(self, repo: str, commit: str, path: str) -> Source:
        """The file `path` of a pinned commit."""
        url = hf_hub_url(repo, path, revision=commit, endpoint=self.endpoint)
        return Source(Subject(repo, commit, path), url, commit=commit)

    async def describe(self, repo: str, revision: str) -> RepoInfo:
        """The commit that a branch, tag or commit stands for. Raises HubError."""
        info = await self.info(repo, revision)
        sha = info.get("sha")
        if not isinstance(sha, str) or not sha.isalnum():
            raise ServerError(
                f"{self.host} names no commit for {repo} at {revision!r}.",
                "Check HF_ENDPOINT: what answers there does not speak the hub's API.",
            )
        return RepoInfo(sha, bool(info.get("gated")))

    async def info(self, repo: str, revision: str, *, blobs: bool = False) -> dict[str, Any]:
        """The model's description. Raises HubError."""
        url = f"{self.endpoint}/api/models/{repo}/revision/{quote(revision, safe='')}"
        value, _ = await self._json(url, Subject(repo, revision), {"blobs": "true"} if blobs else None)
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    async def pages(self, repo: str, commit: str) -> AsyncIterator[list[Any]]:
        """The tree of a commit, a page at a time, as the hub's JSON entries. Raises HubError."""
        subject = Subject(repo, commit)
        url = f"{self.endpoint}/api/models/{repo}/tree/{quote(commit, safe='')}"
        params: dict[str, str] | None = {"recursive": "true", "expand": "false"}
        for _ in range(_MAX_PAGES):
            value, following = await self._json(url, subject, params)
            yield value if isinstance(value, list) else []
            if not following:
                return
            # Mirrors pass on the hub's own links; what leads anywhere else gets no token, see `_follow`.
            url, params = fix_hf_endpoint_in_url(following, self.endpoint), None
        raise ServerError(f"{self.host} lists {repo} without end.", "Report this to the owner of the hub.")

    @asynccontextmanager
    async def read(self, source: Source, start: int, stop: int | None) -> AsyncGenerator[Body]:
        """Opens bytes [start, stop) of a file; the body may hold more or less, see `Body`.

        Raises:
            TransientError: worth trying again.
            HubError: not worth it.
        """
        headers = {"range": f"bytes={start}-{'' if stop is None else stop - 1}"}
        for attempt in (0, 1):
            url = source.location or source.url
            async with self._follow(url, headers, source.subject) as (response, trail):
                signed = _origin(str(response.request.url)) != self._origin
                if signed and source.location and not trail and response.status_code in (400, 401, 403, 404, 410):
                    # The signed address is too old: ask the hub for a new one.
                    source.location = None
                    if attempt == 0:
                        continue
                self._check_status(response, source.subject, signed=signed)
                _remember(source, response, trail, signed=signed)
                yield read_body(response, source.subject, start)
                return

    async def size(self, source: Source) -> int | None:
        """Size of a file according to its first response, None where that does not say. Raises HubError."""
        clock = Patience(self.retry)
        while True:
            try:
                async with self.read(source, 0, 1) as body:
                    return body.total
            except OutOfRangeError as error:
                return error.total or 0
            except TransientError as error:
                await clock.wait(error)

    async def fetch(self, source: Source, start: int, stop: int) -> bytes:
        """Bytes [start, stop) in memory, tried again as the retry policy says. Raises HubError.

        Shorter where the file ends before. Never reads on far beyond `stop`, also where the server ignores the range.
        """
        clock = Patience(self.retry)
        while True:
            try:
                async with self.read(source, start, stop) as body, aclosing(body.pieces()) as pieces:
                    skip, data = start - body.start, bytearray()
                    async for piece in pieces:
                        data += piece
                        # A range is read to its end, so that the connection can be used again.
                        if body.whole and len(data) >= skip + stop - start:
                            break
                    return bytes(data[skip : skip + stop - start])
            except TransientError as error:
                await clock.wait(error)

    async def _json(self, url: str, subject: Subject, params: Mapping[str, str] | None) -> tuple[Any, str | None]:
        """A decoded answer and the address of the next page."""
        if params:
            url = str(httpx2.URL(url, params=dict(params)))
        clock = Patience(self.retry)
        while True:
            try:
                async with self._follow(url, {}, subject) as (response, _):
                    self._check_status(response, subject, signed=False)
                    try:
                        data = await self._whole(response)
                    except httpx2.TransportError as error:
                        raise transport_failure(error, self.host) from error
                    following = response.links.get("next", {}).get("url")
                    return json.loads(data), _target(response, following) if following else None
            except TransientError as error:
                await clock.wait(error)
            except (ValueError, RecursionError, httpx2.DecodingError) as error:
                raise ServerError(
                    f"{self.host} answered with something that is not JSON.",
                    "Check HF_ENDPOINT and the proxy: a login page may answer in place of the hub.",
                ) from error

    async def _whole(self, response: httpx2.Response) -> bytes:
        """The body, as far as it can be an answer."""
        data = bytearray()
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                data += piece
                if len(data) > _MAX_ANSWER:
                    raise ServerError(f"{self.host} answers without end.", "Report this to the owner of the hub.")
        return bytes(data)

    @asynccontextmanager
    async def _follow(
        self, url: str, headers: Mapping[str, str], subject: Subject
    ) -> AsyncGenerator[tuple[httpx2.Response, list[httpx2.Response]]]:
        """A streamed GET. Yields the final response and the redirects that led to it."""
        if self._http is None:
            raise RuntimeError("HubClient is used outside of its context")
        trail: list[httpx2.Response] = []
        while len(trail) < _MAX_HOPS:
            sent = {**self._headers, **headers}
            if self._authorization and _origin(url) == self._origin:
                sent["authorization"] = self._authorization
            request = self._http.build_request("GET", url, headers=sent, timeout=self._timeout)
            try:
                response = await self._http.send(request, stream=True, follow_redirects=False)
            except OfflineModeIsEnabled as error:
                raise OfflineError(
                    "Offline mode is on, so the hub is not asked.", "Unset HF_HUB_OFFLINE and try again."
                ) from error
            except httpx2.TransportError as error:
                raise transport_failure(error, request.url.host) from error
            try:
                if not response.has_redirect_location:
                    yield response, trail
                    return
                url = _target(response, response.headers["location"])
                trail.append(response)
                await _drain(response)
            finally:
                await response.aclose()
        raise ServerError(f"{self.host} redirects in circles for {subject}.", "Report this to the owner of the hub.")

    def _check_status(self, response: httpx2.Response, subject: Subject, *, signed: bool) -> None:
        status = response.status_code
        if status in (200, 206, 416):
            return
        host = response.request.url.host
        if status in RETRY_STATUSES:
            wait = retry_after(response.headers)
            if status == 429:
                later = "later" if wait is None else f"in {wait:.0f} s"
                shown: HubError = RateLimitedError(
                    f"{host} asks for a pause (429, too many requests).", f"Start again {later}."
                )
            else:
                shown = ServerError(f"{host} answered {status}.", "Try again later.")
            raise TransientError(shown, wait=wait)
        if signed:
            # Not the hub's own answer: a fresh signed address was refused, or its storage has lost the file.
            raise TransientError(
                ServerError(f"The storage at {host} refused {subject} ({status}).", "Try again later."), patience=5
            )
        raise rejection(response, subject, endpoint=self.endpoint, with_token=self._authorization is not None)


def _remember(source: Source, response: httpx2.Response, trail: list[httpx2.Response], *, signed: bool) -> None:
    """Takes over what a chain of responses says about the file."""
    if source.location and not trail:
        return
    source.location = str(response.request.url) if signed else None
    etag = None
    for answer in (*trail, response):
        source.commit = answer.headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT) or source.commit
        etag = answer.headers.get(constants.HUGGINGFACE_HEADER_X_LINKED_ETAG) or etag
    # A storage has ETags of its own scheme; they count only where the hub is silent.
    etag = etag or response.headers.get("etag")
    source.etag = etag.removeprefix("W/").strip('"') if etag else None


async def _drain(response: httpx2.Response) -> None:
    """Reads the short page that comes with a redirect, so that its connection can be used again."""
    length = natural(response.headers.get("content-length", ""))
    if length is not None and length <= _SHORT:
        with suppress(httpx2.TransportError, httpx2.DecodingError):
            await response.aread()


def _target(response: httpx2.Response, address: str) -> str:
    """Where a redirect or a link leads. Raises ServerError for what must not be followed."""
    here = response.request.url
    try:
        there = here.join(address)
        if there.scheme in ("http", "https"):
            _origin(str(there))
    except (httpx2.InvalidURL, ValueError) as error:
        raise ServerError(f"{here.host} redirects to an address that is none.", "Try again later.") from error
    if there.scheme not in ("http", "https") or (here.scheme == "https" and there.scheme == "http"):
        raise ServerError(
            f"{here.host} redirects to {there.scheme}://{there.host}, which is not encrypted.",
            "Nothing was fetched from there. Check HF_ENDPOINT, or report this to the owner of the hub.",
        )
    return str(there)


def _origin(url: str) -> tuple[str, str, int]:
    parsed = httpx2.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > _LAST_PORT:
        raise ValueError(url)
    return parsed.scheme, parsed.host, parsed.port or (443 if parsed.scheme == "https" else 80)

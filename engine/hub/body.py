"""The bytes of one response, placed in their file."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx2

from engine.hub.errors import ServerError
from engine.hub.responses import Subject, TransientError, transport_failure

_CONTENT_RANGE = re.compile(r"^\s*bytes\s+(?:(\d+)-(\d+)|\*)/(\d+|\*)\s*$", re.IGNORECASE)

_DIGITS = 18
"""Of the largest number that is believed: an exabyte has 19."""


class OutOfRangeError(TransientError):
    """The server has no such part of the file: it is shorter there. `total` is its size according to the server."""

    def __init__(self, subject: Subject, total: int | None) -> None:
        super().__init__(ServerError(f"The hub's {subject} is shorter than it says.", "Try again later."), patience=3)
        self.total = total


class Body:
    """What a server sends for a range; it need not be what was asked for.

    Attributes:
        start: offset in the file of the first byte.
        total: size of the file according to the server, or None.
        whole: the range was ignored and the file comes from its first byte.
    """

    def __init__(self, response: httpx2.Response, *, start: int, total: int | None, whole: bool) -> None:
        self.start = start
        self.total = total
        self.whole = whole
        self._response = response

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The bytes as they arrive. Raises TransientError when the connection breaks or stalls."""
        # A whole file may come compressed in spite of the request; a range of a compressed stream would be useless.
        stream = self._response.aiter_bytes() if self.whole else self._response.aiter_raw()
        try:
            async with aclosing(stream):
                async for piece in stream:
                    yield piece
        except httpx2.TransportError as error:
            raise transport_failure(error, self._response.request.url.host) from error
        except httpx2.DecodingError as error:
            raise TransientError(
                ServerError(f"{self._response.request.url.host} sent a damaged stream.", "Try again later."), patience=3
            ) from error


def natural(text: str) -> int | None:
    """The whole number in a header, such as a length; None for anything else, and for what no file is long."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def read_body(response: httpx2.Response, subject: Subject, start: int) -> Body:
    """Makes sense of a 200, 206 or 416.

    Raises:
        OutOfRangeError: the file ends before `start`.
        TransientError: the answer does not fit the request.
    """
    encoded = response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
    if response.status_code == 200:
        total = None if encoded else natural(response.headers.get("content-length", ""))
        return Body(response, start=0, total=total, whole=True)
    match = _CONTENT_RANGE.match(response.headers.get("content-range", ""))
    total = natural(match[3]) if match else None
    if response.status_code == 416:
        raise OutOfRangeError(subject, total)
    if match and match[1] and natural(match[1]) == start and not encoded:
        return Body(response, start=start, total=total, whole=False)
    host = response.request.url.host
    raise TransientError(
        ServerError(f"{host} does not answer with the part of {subject} that was asked for.", "Try again later."),
        patience=3,
    )

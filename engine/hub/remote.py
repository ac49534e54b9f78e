"""Tensor names of a safetensors file on the hub, from its header alone.

The format starts with the header's length as 8 bytes, little-endian, then the header as JSON: a few kB to a few
hundred kB in front of gigabytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from engine.hub.client import HubClient, RemoteFile
from engine.hub.errors import ServerError

_FIRST_READ = 1 << 15
"""Enough for the header of an MTP head (160 tensors), so that it takes one request."""
_MAX_HEADER = 25_000_000


@dataclass(frozen=True, slots=True)
class RemoteHeader:
    """What the header of one file says."""

    tensors: dict[str, int]
    """Bytes of each tensor."""
    fetched: int
    """Bytes of the file that were fetched to know it."""


async def read_header(client: HubClient, repo: str, commit: str, file: RemoteFile) -> RemoteHeader:
    """Fetches and parses the header of `file`.

    Raises:
        HubError: it cannot be fetched, or is no safetensors header.
    """
    source = client.source(repo, commit, file.path)
    data = await client.fetch(source, 0, min(_FIRST_READ, file.size)) if file.size else b""
    length = int.from_bytes(data[:8], "little")
    broken = ServerError(
        f"{repo}/{file.path} is not a safetensors file: its header is damaged.",
        "Leave the file out with --exclude, or choose another revision.",
    )
    if len(data) < 8 or not 2 <= length <= min(_MAX_HEADER, file.size - 8):
        raise broken
    if 8 + length > len(data):
        data += await client.fetch(source, len(data), 8 + length)
    try:
        header = json.loads(data[8 : 8 + length])
        tensors = {
            name: int(entry["data_offsets"][1]) - int(entry["data_offsets"][0])
            for name, entry in cast("dict[str, Any]", header).items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise broken from error
    return RemoteHeader(tensors, len(data))

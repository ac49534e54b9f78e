"""The files of a commit, with sizes and hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from engine.hub.client import HubClient, RemoteFile
from engine.hub.errors import FileMissingError, RepoNotFoundError, RevisionNotFoundError, ServerError

_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_OID = re.compile(r"[0-9a-f]{40}")
_LARGEST = 1 << 59
"""Bytes that a file may have; file systems and chunk maps end soon after."""


async def list_files(client: HubClient, repo: str, commit: str) -> list[RemoteFile]:
    """All files, as the hub lists them; sizes and hashes that are missing there are asked for one by one.

    Raises:
        HubError: the hub refuses, or does not say how long a file is.
    """
    try:
        entries: list[Any] = [entry async for page in client.pages(repo, commit) for entry in page]
    except (FileMissingError, RepoNotFoundError, RevisionNotFoundError):
        # The repository was found a moment ago: this hub lists files in the model's description only.
        info = await client.info(repo, commit, blobs=True)
        siblings = info.get("siblings")
        entries = cast("list[Any]", siblings) if isinstance(siblings, list) else []
    files: list[RemoteFile] = []
    for path, size, sha256, oid in _read_entries(entries):
        if size is None:
            files.append(await _measure(client, repo, commit, path))
        else:
            files.append(RemoteFile(path, size, sha256, oid))
    return files


def _read_entries(entries: list[Any]) -> Iterator[tuple[str, int | None, str | None, str | None]]:
    """(path, size, sha256, git blob id) of every file; folders and nonsense are passed over."""
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        item = cast("dict[str, Any]", entry)
        path = item.get("path", item.get("rfilename"))
        if not isinstance(path, str) or item.get("type", "file") != "file":
            continue
        lfs = cast("dict[str, Any]", item["lfs"]) if isinstance(item.get("lfs"), dict) else {}
        size = lfs.get("size", item.get("size"))
        # The tree calls both hashes oid; the description of a model says sha256 and blobId.
        sha256 = _match(_SHA256, lfs.get("oid", lfs.get("sha256")))
        oid = None if lfs else _match(_GIT_OID, item.get("oid", item.get("blobId")))
        yield path, size if type(size) is int and 0 <= size <= _LARGEST else None, sha256, oid


async def _measure(client: HubClient, repo: str, commit: str, path: str) -> RemoteFile:
    source = client.source(repo, commit, path)
    size = await client.size(source)
    if size is None:
        raise ServerError(f"{client.host} does not say how long {repo}/{path} is.", "Use another hub or mirror.")
    etag = source.etag or ""
    return RemoteFile(path, size, _match(_SHA256, etag), _match(_GIT_OID, etag))


def _match(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None

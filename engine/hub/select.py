"""Which files of a repository a kind of plan needs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from engine.hub.client import HubClient, RemoteFile
from engine.hub.errors import NoHeadError, ServerError
from engine.hub.names import WEIGHTS_SUFFIX
from engine.hub.remote import read_header
from engine.hub.tasks import run_all

Kind = Literal["whole", "text", "head"]
"""whole: the checkpoint; text: without separate vision and audio shards; head: what makes a drafter directory."""

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
_HEAD = re.compile(r"(?:model\.|language_model\.)?mtp\.")
_TOWER = re.compile(r"(?:model\.)?(?:visual|vision_tower|audio|audio_tower)\.")
_TOWER_FILES = frozenset({"processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"})
_PARALLEL = 4
_MAX_INDEX = 64 << 20
"""Bytes; that of a thousand shards has a tenth of it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The outcome for one kind of plan."""

    files: tuple[RemoteFile, ...]
    omitted: tuple[tuple[RemoteFile, str], ...] = ()
    """Files left out, with the reason."""
    notes: tuple[str, ...] = ()
    header_bytes: int = 0
    """Bytes fetched to find out: the index and safetensors headers."""


def is_head(tensor: str) -> bool:
    """Whether a tensor belongs to an MTP head, in the published, the transformers or the MLX spelling."""
    return _HEAD.match(tensor) is not None


def is_tower(tensor: str) -> bool:
    """Whether a tensor belongs to the vision or audio encoder."""
    return _TOWER.match(tensor) is not None


async def select_head(client: HubClient, repo: str, commit: str, files: Iterable[RemoteFile]) -> Selection:
    """config.json and the smallest set of weight files that together hold every MTP tensor.

    The index says where tensors are, but side files that it does not list are looked into as well: official
    repositories have kept the head in one.

    Raises:
        NoHeadError: no file holds an MTP tensor.
        HubError: the hub does not answer, or a header is damaged.
    """
    files = list(files)
    layout = await _layout(client, repo, commit, files)
    holders = {path: names for path, tensors in layout.tensors.items() if (names := set(filter(is_head, tensors)))}
    if not holders:
        count = sum(f.path.endswith(WEIGHTS_SUFFIX) for f in files)
        raise NoHeadError(
            f"{repo} has no MTP head: {_of_files(count)} model.mtp.* tensors.",
            "Take the head of the original release, for example "
            "`inkstand download thinkingmachines/Inkling-Small --mtp-head`.",
        )
    by_path = {f.path: f for f in files}
    chosen = _cover(holders, {path: by_path[path].size for path in holders})
    config = by_path.get(CONFIG)
    if config is None:
        raise NoHeadError(
            f"{repo} has MTP tensors but no {CONFIG}, which a drafter needs.", "Choose another repository."
        )
    names = {name for path in chosen for name in holders[path]}
    note = f"{len(names)} MTP tensors in {', '.join(chosen)}."
    return Selection((config, *(by_path[p] for p in chosen)), notes=(note,), header_bytes=layout.fetched)


async def select_text(client: HubClient, repo: str, commit: str, files: Iterable[RemoteFile]) -> Selection:
    """Everything but weight files that hold nothing else than a vision or audio encoder. Raises HubError."""
    files = list(files)
    layout = await _layout(client, repo, commit, files)
    kept: list[RemoteFile] = []
    omitted: list[tuple[RemoteFile, str]] = []
    for file in files:
        tensors = layout.tensors.get(file.path)
        if (tensors and all(map(is_tower, tensors))) or file.path in _TOWER_FILES:
            omitted.append((file, "vision or audio only"))
        else:
            kept.append(file)
    notes: list[str] = []
    if not any(f.path.endswith(WEIGHTS_SUFFIX) for f, _ in omitted):
        notes.append("The vision and audio encoders are not in files of their own, so all weights are fetched.")
    return Selection(tuple(kept), tuple(omitted), tuple(notes), layout.fetched)


@dataclass(slots=True)
class _Layout:
    """Tensor names by file."""

    tensors: dict[str, set[str]]
    fetched: int


async def _layout(client: HubClient, repo: str, commit: str, files: list[RemoteFile]) -> _Layout:
    """Where tensors are: the index for the files it lists, the headers of all others."""
    by_path = {f.path: f for f in files}
    layout = _Layout({}, 0)
    if (index := by_path.get(INDEX)) is not None:
        if index.size > _MAX_INDEX:
            raise ServerError(f"{repo}/{INDEX} is too long for an index.", "Choose another revision.")
        data = await client.fetch(client.source(repo, commit, INDEX), 0, index.size) if index.size else b""
        layout.fetched += len(data)
        for tensor, path in _weight_map(data, f"{repo}/{INDEX}").items():
            if path in by_path:
                layout.tensors.setdefault(path, set()).add(tensor)
    # A loader reads the checkpoint's own folder only.
    weights = [f for f in files if f.path.endswith(WEIGHTS_SUFFIX) and "/" not in f.path]
    gate = asyncio.Semaphore(_PARALLEL)

    async def look(file: RemoteFile) -> None:
        async with gate:
            header = await read_header(client, repo, commit, file)
        layout.tensors[file.path] = set(header.tensors)
        layout.fetched += header.fetched

    await run_all(look(file) for file in weights if file.path not in layout.tensors)
    return layout


def _of_files(count: int) -> str:
    if count > 1:
        return f"none of its {count} safetensors files holds"
    return "its only safetensors file holds no" if count else "it holds no safetensors file with"


def _weight_map(data: bytes, where: str) -> dict[str, str]:
    try:
        value = json.loads(data)["weight_map"]
        return {str(tensor): str(path) for tensor, path in cast("dict[str, Any]", value).items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ServerError(f"{where} is damaged.", "Choose another revision.") from error


def _cover(holders: Mapping[str, set[str]], sizes: Mapping[str, int]) -> list[str]:
    """The files that hold all names in the fewest bytes: chosen by bytes per name, then thinned out."""
    wanted = set[str]().union(*holders.values())
    chosen: list[str] = []
    missing = set(wanted)
    while missing:
        useful = [path for path in sorted(holders) if holders[path] & missing]
        best = min(useful, key=lambda path, missing=missing: sizes[path] / len(holders[path] & missing))
        chosen.append(best)
        missing = missing - holders[best]
    for path in sorted(chosen, key=lambda p: -sizes[p]):
        if set[str]().union(*(holders[p] for p in chosen if p != path)) >= wanted:
            chosen.remove(path)
    # Greed can miss one file that holds everything.
    single = min((p for p in holders if holders[p] >= wanted), key=lambda p: sizes[p], default=None)
    if single is not None and sizes[single] <= sum(sizes[p] for p in chosen):
        return [single]
    return sorted(chosen)

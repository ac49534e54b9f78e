"""Which safetensors files of a checkpoint directory hold which tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from engine.errors import CheckpointError, ConfigError
from engine.fields import read_object
from engine.weights.header import TensorInfo, read_header

INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class Listing:
    """The safetensors files of a directory, before any of them is opened."""

    directory: Path
    index: dict[str, str] | None
    """Tensor name -> file name, from the index; None without an index."""
    loose: tuple[str, ...]
    """Files that the index does not mention; all files when there is no index."""

    def indexed_files(self, wanted: Callable[[str], bool]) -> tuple[str, ...]:
        """Files that the index says hold a tensor whose name is `wanted`, in order."""
        index = self.index or {}
        return tuple(sorted({file for name, file in index.items() if wanted(name)}))


def list_files(directory: Path) -> Listing:
    """Look at a directory and its index.

    Raises:
        CheckpointError: the index is malformed or names something other than files of this directory.
    """
    present = sorted(entry.name for entry in directory.iterdir() if entry.name.endswith(SUFFIX))
    index_path = directory / INDEX
    if not index_path.is_file():
        return Listing(directory, None, tuple(present))
    try:
        index = _weight_map(index_path)
    except ConfigError as error:
        raise CheckpointError(error.title, error.hint) from error
    named = set(index.values())
    return Listing(directory, index, tuple(name for name in present if name not in named))


def read_headers(listing: Listing, names: Iterable[str]) -> dict[str, TensorInfo]:
    """The tensors of the named files.

    Raises:
        CheckpointError: a file is missing, damaged, links out of the checkpoint, repeats a tensor of another one, or
            lacks a tensor that the index puts there.
    """
    tensors: dict[str, TensorInfo] = {}
    for name in names:
        for info in read_header(_open_path(listing.directory, name)).values():
            if info.name in tensors:
                raise CheckpointError(
                    f"{listing.directory}: {info.name} is in {tensors[info.name].file.name} and in {name}.",
                    f"Remove the file that does not belong to the checkpoint, or restore its {INDEX}.",
                )
            tensors[info.name] = info
    chosen = set(names)
    for tensor, file in (listing.index or {}).items():
        if file in chosen and tensor not in tensors:
            raise CheckpointError(
                f"{listing.directory / file} lacks {tensor}, which {INDEX} says it holds.",
                "Download this file and the index again, from the same revision.",
            )
    return tensors


def _weight_map(path: Path) -> dict[str, str]:
    value = read_object(path).get("weight_map")
    if not isinstance(value, dict):
        raise ConfigError(f"{path} has no weight_map.", "Download the file again.")
    for file in set(map(str, cast("dict[str, Any]", value).values())):
        if Path(file).name != file or "\\" in file or not file.endswith(SUFFIX) or file.startswith("."):
            raise ConfigError(
                f"{path} names {file!r}; only safetensors files of its own directory are read.",
                "Do not use this checkpoint unless you trust where it comes from.",
            )
    return cast("dict[str, str]", value)


def _open_path(directory: Path, name: str) -> Path:
    """The path of a listed file, after checking that it exists and stays inside the checkpoint."""
    path = directory / name
    if not path.is_file():
        what = "is a broken link" if path.is_symlink() else "is missing"
        raise CheckpointError(
            f"{path} {what}.", "Download the checkpoint again: a transfer that stopped continues where it was."
        )
    home = directory.resolve()
    # The cache of Hugging Face keeps `snapshots/<commit>/<file>` as links into `blobs` of the same repository.
    allowed = (home, home.parent.parent / "blobs") if home.parent.name == "snapshots" else (home,)
    target = path.resolve()
    if not any(target.is_relative_to(folder) for folder in allowed):
        raise CheckpointError(
            f"{path} is a link to {target}, outside the checkpoint.",
            "Replace the link with the file, or choose the directory that holds the files.",
        )
    return path

"""Writing a quantized copy of a checkpoint.

The copy has mlx-vlm's names for the backbone and the published prefix for the MTP head (in a file of its own), which
this engine reads, and mlx-vlm too as far as it knows the packing. What is packed already stays as it is, so converting
twice gives the same checkpoint as converting once; a recipe that asks for another packing of it is refused, because
packing again what has been rounded once loses more than packing the original.
"""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import mlx.core as mx

from engine.config import ModelConfig
from engine.errors import CheckpointError, UserError
from engine.fields import read_object
from engine.locks import FileLock, HeldError
from engine.model.linear import Dense, Packed, Quantization
from engine.model.params import Parameter
from engine.paths import sync
from engine.weights.assemble import SecondScales, assemble, is_identity_scale
from engine.weights.files import list_files, read_headers
from engine.weights.head import HeadFound, find_head
from engine.weights.load import plan_backbone, plan_head
from engine.weights.packing import describe, matrices
from engine.weights.plan import Module
from engine.weights.read import LoadProgress, Progress, Shards, read_modules
from engine.weights.recipe import Recipe, quantize
from engine.weights.rename import Scope, scope_of
from engine.weights.write import ShardWriter, quantization_block, stored_tensors
from engine.wording import size

HEAD_FILE = "mtp.safetensors"
COPIED = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
"""Data files beside the weights that the copy takes over; nothing executable, and no weights in other formats."""
_RESERVE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What a conversion wrote."""

    directory: Path
    nbytes: int
    """Of all files together."""
    packing: Mapping[str, int]
    """How the matrices are stored -> how many."""
    kept: int
    """Matrices that were packed in the source already, and were taken over as they are."""
    missing_head: str | None
    """Why the copy has no MTP head, or None if it has one."""


def convert(
    source: Path | str,
    destination: Path | str,
    recipe: Recipe,
    *,
    progress: Progress | None = None,
    shard_bytes: int = 4 << 30,
) -> ConvertReport:
    """Write a copy of the checkpoint `source`, packed as `recipe` says, to the new directory `destination`.

    The copy is put together beside the destination and renamed at the end, once it is on the disk; on failure nothing
    stays behind. What a killed run left there is removed by the next one to the same destination. Memory: one shard of
    the copy, or the MTP head, and one module.

    Args:
        shard_bytes: size at which a file of the copy is closed.

    Raises:
        UserError: the destination exists and is not an empty directory, cannot be written, is being written by another
            process, or its volume is too full.
        CheckpointError: matrices of the source are packed already, and `recipe` asks for another packing of them.
        ConfigError, CheckpointError, HeadError: the source cannot be used.
    """
    source, destination = Path(source), Path(destination)
    config = ModelConfig.from_directory(source)
    backbone = plan_backbone(source, config)
    found = find_head(source)
    head = plan_head(config, found)[1] if isinstance(found, HeadFound) else None
    for plan in (backbone, head):
        if plan is not None and plan.problems:
            raise plan.problems.error(source)
    parts = (backbone.modules, head.modules if head else ())
    kept = _check_packed(source, [module for part in parts for module in part], recipe)
    _check_destination(destination, sum(_estimate(module, recipe) for part in parts for module in part))

    with _work_directory(destination) as work:
        packings = _write_copy(source, work, parts, recipe, progress=progress, shard_bytes=shard_bytes)
        for path in (*work.iterdir(), work):
            sync(path)
        if destination.exists():
            destination.rmdir()
        work.rename(destination)
        sync(destination.parent)
    return ConvertReport(
        directory=destination,
        nbytes=sum(file.stat().st_size for file in destination.iterdir()),
        packing=Counter(describe(packing) for packing in packings.values()),
        kept=kept,
        missing_head=None if isinstance(found, HeadFound) else found.reason,
    )


@contextmanager
def _work_directory(destination: Path) -> Generator[Path]:
    """An empty directory beside the destination, for one process at a time; removed when its user fails."""
    work = destination.with_name(f".{destination.name}.converting")
    lock = FileLock(work.with_name(f"{work.name}.lock"))
    try:
        work.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except HeldError as error:
        raise UserError(
            f"{destination} is being written by {error.holder.name}.", "Wait for it, or name another directory."
        ) from error
    except OSError as error:
        raise _unwritable(destination, error) from error
    try:
        work.mkdir(exist_ok=True)
        _empty(work)
        yield work
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritable(destination, error) from error
        raise
    finally:
        lock.release(remove=True)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _write_copy(
    source: Path,
    work: Path,
    parts: tuple[Sequence[Module], Sequence[Module]],
    recipe: Recipe,
    *,
    progress: Progress | None,
    shard_bytes: int,
) -> dict[str, Quantization | None]:
    """Fill the directory `work`; `parts` are the backbone and the head. Returns the packing of every matrix."""
    total, done = sum(module.nbytes for part in parts for module in part), 0

    def report(step: LoadProgress) -> None:
        if progress is not None:
            progress(LoadProgress(done + step.done, total, step.file))

    packings: dict[str, Quantization | None] = {}
    writer = ShardWriter(work, shard_bytes)
    for tensors in _tower_tensors(source):
        writer.add(tensors)
    for part, file in zip(parts, (None, HEAD_FILE), strict=True):
        for name, value in _converted(part, recipe, report):
            if not isinstance(value, mx.array):
                packings[name] = value.quantization if isinstance(value, Packed) else None
            writer.add(stored_tensors(name, value), split=file is None)
        writer.close_shard(file)
        done += sum(module.nbytes for module in part)
    writer.finish()
    _write_config(source, work, packings)
    for name in COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, work / name)
    return packings


def _check_packed(source: Path, modules: Sequence[Module], recipe: Recipe) -> int:
    """The number of matrices that are packed already. Raises `CheckpointError` if other packings of them are wanted."""
    kept = 0
    present, wanted = Counter[str](), Counter[str]()
    for module in modules:
        for target in module.targets if module.quantization is not None else ():
            if target.kind != "matrix":
                continue
            kept += 1
            packing = recipe.of_packed(target.name, target.shape[-1])
            if packing not in (None, module.quantization):
                present[describe(module.quantization)] += 1
                wanted[describe(packing)] += 1
    if present:
        packed = "; ".join(f"{matrices(count)} {how}" for how, count in present.most_common())
        raise CheckpointError(
            f"{source} is packed already ({packed}), and cannot be packed again as {' or '.join(wanted)}.",
            "Convert the original checkpoint; or ask for the packing that these matrices have, or none, to copy them.",
        )
    return kept


def _estimate(module: Module, recipe: Recipe) -> int:
    """Bytes of a module in the copy."""
    nbytes = module.nbytes
    for target in module.targets if module.quantization is None else ():
        packing = recipe.of(target.name, target.shape[-1])
        if packing is not None:
            # Two 32-bit values a group is the most that scales take.
            count = prod(target.shape)
            nbytes += count * packing.bits // 8 + 8 * count // packing.group_size - module.nbytes // len(module.targets)
    return nbytes


def _check_destination(destination: Path, nbytes: int) -> None:
    try:
        if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
            raise UserError(
                f"{destination} exists and is not an empty directory.", "Name a new directory for the copy."
            )
        folder = next(folder for folder in destination.absolute().parents if folder.exists())
        # Permissions do not tell whether root, or anybody on a read-only volume, can write: only trying does.
        tempfile.TemporaryDirectory(dir=folder).cleanup()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise _unwritable(destination, error) from error
    if free < nbytes + _RESERVE_BYTES:
        raise UserError(
            f"{folder} has {size(free)} free; the copy needs about {size(nbytes)}, "
            f"and {size(_RESERVE_BYTES)} to spare.",
            "Free some space, or name a directory on another volume.",
        )


def _unwritable(destination: Path, error: OSError) -> UserError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    cure = "Free some space, or name a directory" if full else "Name a directory that you can write to, perhaps"
    return UserError(f"{destination} cannot be written: {error.strerror or error}.", f"{cure} on another volume.")


def _converted(modules: Sequence[Module], recipe: Recipe, progress: Progress) -> Iterator[tuple[str, Parameter]]:
    """Every parameter by its canonical name, packed where the recipe asks for it."""
    second = SecondScales()
    for module, arrays in read_modules(modules, progress):
        made = assemble(module, arrays, None, True, second)
        for name, value in made.items():
            packing = recipe.of(name, value.shape[-1]) if isinstance(value, Dense) else None
            if isinstance(value, Dense) and packing is not None:
                yield name, quantize(value.weight, packing)
            elif not is_identity_scale(name, value):
                yield name, value
    for name, value in second.parameters().items():
        if not is_identity_scale(name, value):
            yield name, value


def _tower_tensors(source: Path) -> Iterable[dict[str, mx.array]]:
    """The vision and audio tensors as they are; shards of them that were not downloaded are passed over."""
    listing = list_files(source)
    towers = (Scope.VISION, Scope.AUDIO)
    names = listing.indexed_files(lambda name: scope_of(name) in towers) if listing.index else listing.loose
    shards = Shards()
    for file in names:
        if not (source / file).is_file():
            continue
        for info in read_headers(listing, (file,)).values():
            if scope_of(info.name) in towers:
                yield {info.name: shards.take(info)}
        shards.close_all_but(set())


def _write_config(source: Path, work: Path, packings: Mapping[str, Quantization | None]) -> None:
    config = read_object(source / "config.json")
    for key in ("quantization", "quantization_config"):
        config.pop(key, None)
    block = quantization_block(packings)
    if block is not None:
        # mlx-lm and mlx-vlm write both keys, and their readers look at either.
        config |= {"quantization": block, "quantization_config": block}
    (work / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

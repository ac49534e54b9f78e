"""Finding an MTP head by its tensors, and telling whether it belongs to a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engine.config import DRAFTER, ModelConfig, MTPConfig, TextConfig
from engine.errors import CheckpointError, ConfigError, HeadError
from engine.weights.files import list_files, read_headers
from engine.weights.header import TensorInfo
from engine.weights.rename import DRAFTER_NORM, Scope, identify, published_name, scope_of
from engine.wording import counted

_DEPTH = re.compile(r"(?:(?:.*\.)?mtp\.layers|blocks)\.(0|[1-9]\d{0,3})\..+")


@dataclass(frozen=True, slots=True)
class HeadFound:
    """A directory holds tensors of an MTP head."""

    files: tuple[str, ...]
    depths: int
    """Blocks that have tensors."""
    tensors: Mapping[str, TensorInfo]
    """The head's tensors by name."""

    @property
    def nbytes(self) -> int:
        return sum(info.nbytes for info in self.tensors.values())

    def tensor(self, target: str) -> TensorInfo | None:
        """The tensor that holds a parameter, by the parameter's canonical name; None where there is none."""
        sources = ((identify(name), info) for name, info in self.tensors.items())
        return next((info for source, info in sources if source is not None and target in source.targets), None)


@dataclass(frozen=True, slots=True)
class HeadMissing:
    """A directory holds no usable MTP head; `reason` is a sentence for the user."""

    reason: str


def find_head(directory: Path | str) -> HeadFound | HeadMissing:
    """Look for `model.mtp.layers.*`, or a drafter folder's `blocks.*`, whatever config.json promises.

    With an index, the shards that it names for the head are read, and files that it does not list (conversions keep
    the head beside it); without one, all files.
    """
    directory = Path(directory)
    if not directory.is_dir():
        return HeadMissing(f"{directory} is {'a file, not a directory' if directory.exists() else 'not there'}.")
    try:
        listing = list_files(directory)
        files = listing.indexed_files(_is_head)
        tensors = read_headers(listing, files or listing.loose)
    except CheckpointError as error:
        return HeadMissing(f"{error.title} {error.hint}")
    tensors = {name: info for name, info in tensors.items() if _is_head(name)}
    depths = {int(match[1]) for match in map(_DEPTH.fullmatch, tensors) if match}
    if depths:
        return HeadFound(tuple(dict.fromkeys(info.file.name for info in tensors.values())), len(depths), tensors)
    return HeadMissing(_why_missing(directory))


def head_config(own: ModelConfig, found: HeadFound) -> MTPConfig:
    """The head's geometry: as its config.json tells, or, where that is silent, as the tensors show.

    The width of a block's relative bias bank tells a sliding block from a global one. Raises `HeadError` when neither
    does.
    """
    chain_norm = found.tensor("mtp.chain_norm") is not None
    if own.mtp is not None:
        # The config of a drafter folder keeps nothing of the norm between depths.
        return replace(own.mtp, chain_norm=chain_norm) if own.model_type == DRAFTER else own.mtp
    sliding = tuple(_is_sliding(own.text, found, j) for j in range(found.depths))
    return MTPConfig(sliding, chain_norm)


def head_geometry(text: TextConfig) -> dict[str, float]:
    """What a head must have in common with its model, in the spelling of published configs."""
    geometry: dict[str, float] = {
        "hidden_size": text.hidden_size,
        "vocab_size": text.vocab_size,
        "unpadded_vocab_size": text.unpadded_vocab_size,
        "logits_mup_width_multiplier": text.mup_multiplier,
        "dense_intermediate_size": text.dense_width,
        "sconv_kernel_size": text.conv_kernel,
        "d_rel": text.d_rel,
        "rel_extent": text.global_attention.extent,
        "sliding_window_size": text.sliding_attention.extent,
    }
    for prefix, attention in (("", text.global_attention), ("swa_", text.sliding_attention)):
        geometry[f"{prefix}num_attention_heads"] = attention.heads
        geometry[f"{prefix}num_key_value_heads"] = attention.kv_heads
        geometry[f"{prefix}head_dim"] = attention.head_dim
    return geometry


def check_head_matches(target: ModelConfig, own: ModelConfig, found: HeadFound, where: str) -> None:
    """Raise `HeadError`, naming both values, unless a head with config `own` fits the model `target`.

    Compared are what the head shares with its model, the geometry of its blocks, which are built as the model's layers
    are, and the dtype family: a head kept in float16 has lost the range that the model's bfloat16 hidden states need.
    """
    cure = "Use the head of the same model: the original checkpoint's mtp.safetensors fits all its conversions."
    for (name, ours), theirs in zip(head_geometry(own.text).items(), head_geometry(target.text).values(), strict=True):
        if ours != theirs:
            raise HeadError(
                f"The MTP head in {where} belongs to another model: its {name} is {ours}, the model's is {theirs}.",
                cure,
            )
    half = next(
        (info for info in found.tensors.values() if info.dtype == "F16" and info.name.endswith(".weight")), None
    )
    if half is not None and target.dtype != "float16":
        raise HeadError(
            f"The MTP head in {where} is stored in float16 ({half.name}), the model in {target.dtype or 'bfloat16'}.",
            cure,
        )


def _is_head(name: str) -> bool:
    return scope_of(name) is Scope.MTP and name != DRAFTER_NORM


def _why_missing(directory: Path) -> str:
    """Tell a promised head from a checkpoint that never had one."""
    plain = f"{directory} has no MTP head: no safetensors file in it holds model.mtp tensors."
    try:
        promised = ModelConfig.from_directory(directory).mtp
    except ConfigError:
        return plain
    if promised is None:
        return plain
    return (
        f"{directory / 'config.json'} announces {counted(promised.depths, 'MTP depth')}, but no "
        "safetensors file there holds their tensors (the original checkpoint keeps them in mtp.safetensors)."
    )


def _is_sliding(text: TextConfig, found: HeadFound, depth: int) -> bool:
    name = f"mtp.{depth}.block.attn.rel_bias"
    info = found.tensor(name)
    sliding, spanning = text.sliding_attention.extent, text.global_attention.extent
    extent = info.shape[-1] if info is not None and info.shape else None
    if sliding == spanning or extent not in (sliding, spanning):
        raise HeadError(
            f"config.json does not describe the MTP head, and {published_name(name)} does not tell "
            f"whether depth {depth} is sliding.",
            "Add the original config.json with its mtp_config block.",
        )
    return extent == sliding

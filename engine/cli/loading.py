"""Opens the checkpoint that a command line names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from engine.cli.arguments import UsageError, ignored_options
from engine.cli.terminal import Terminal
from engine.paths import demo_checkpoint

if TYPE_CHECKING:
    from engine.config import ModelConfig
    from engine.errors import PromptError
    from engine.loaded import Check
    from engine.session import Engine, Session
    from engine.text.template import ChatTemplate
    from engine.text.tokenizer import Tokenizer

T = TypeVar("T")


def load_engine(args: argparse.Namespace, terminal: Terminal, check: Check | None = None) -> Engine:
    """Loads what `arguments.add_checkpoint_options` collected, with progress on the terminal.

    Args:
        check: looks at config and template before the weights are read.

    Raises:
        UserError: the checkpoint cannot be used, or its head cannot where `--draft-kind mtp` insists on one.
    """
    from engine.session import Engine

    directory, head = checkpoint_directories(args)
    try:
        engine = Engine.load(
            directory,
            draft_directory=head,
            draft_kind=args.draft_kind,
            dtype=args.dtype,
            keep_quantized=args.keep_quantized or None,
            quantize_rest=args.quantize_rest,
            draft_vocabulary=args.draft_vocabulary,
            check=check,
            progress=terminal.progress,
        )
    finally:
        terminal.clear_progress()
    for report in engine.reports:
        if report.skipped:
            kinds = " and ".join(f"{len(names)} {kind}" for kind, names in report.skipped.items())
            tensors = "tensor" if sum(map(len, report.skipped.values())) == 1 else "tensors"
            terminal.note(f"Skipped {kinds} {tensors}, which a text model has no use for.")
        for note in report.notes:
            terminal.note(note)
    return engine


def checkpoint_directories(args: argparse.Namespace) -> tuple[Path, Path | None]:
    """The model's directory and the one of its head, None where that is not named and the model is not paired."""
    directory, paired = (demo_checkpoint(), None) if args.model is None else named_checkpoint(args.model)
    if args.draft_model is not None:
        return directory, _head_folder(args.draft_model)
    return directory, None if args.draft_kind == "none" else paired


def named_checkpoint(model: Path) -> tuple[Path, Path | None]:
    """The directory that a path or the owner/name of a downloaded model means, and the head that it is paired with."""
    if not _is_name(model):
        return model, None
    from engine.installed import find_checkpoint

    found = _in_library(model, find_checkpoint)
    return found.directory, found.head


def model_folder(model: Path) -> Path:
    """The directory that a path or the owner/name of a model means, whatever is wrong with what it holds."""
    if not _is_name(model):
        return model
    from engine.installed import open_library

    return _in_library(model, open_library().find).path


def _head_folder(head: Path) -> Path:
    if not _is_name(head):
        return head
    from engine.installed import find_head_folder

    return _in_library(head, find_head_folder)


def _in_library(model: Path, find: Callable[[str], T]) -> T:
    """What `find` has for owner/name. Raises UsageError for what may have been meant as a folder, too."""
    from engine.hub.errors import UnknownModelError

    try:
        return find(model.as_posix())
    except UnknownModelError as error:
        raise UsageError(
            f"{model} is neither a folder nor the owner/name of a model in the library.", error.hint
        ) from error


def _is_name(model: Path) -> bool:
    return len(model.parts) == 2 and not model.is_absolute() and not model.exists()


def open_session(
    args: argparse.Namespace,
    terminal: Terminal,
    without_template: PromptError | None,
    prompt: Callable[[Tokenizer, ChatTemplate | None], Sequence[int]] | None = None,
) -> Session:
    """A session as `arguments.add_decoding_options` describes it, with a word about options that have no effect.

    Args:
        without_template: raised for a checkpoint that has no chat template; None where that will do.
        prompt: encodes what will be asked, where that is known already.

    Raises:
        UserError: as `load_engine`, or before anything long for a context that the model was not made for, and a
            prompt that it cannot take.
    """
    from engine.session import Session

    def check(config: ModelConfig, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        from engine.loaded import check_context, check_prompt

        check_context(config, args.context)
        if template is None and without_template is not None:
            raise without_template
        if prompt is not None:
            check_prompt(config, args.context, len(prompt(tokenizer, template)))

    for sentence in ignored_options(args):
        terminal.note(sentence)
    return Session(
        load_engine(args, terminal, check),
        block_size=args.draft_block_size,
        schedule=args.draft_schedule,
        rollback=args.rollback,
        drafting=args.draft_kind != "none",
        context=args.context,
    )

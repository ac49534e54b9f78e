"""`inkstand draft-vocabulary`: learns which token ids are frequent, so that drafts score those alone."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli.arguments import Subparsers, UsageError, add_checkpoint_options, integer, refuse_without_effect
from engine.cli.loading import checkpoint_directories, load_engine
from engine.cli.path_types import input_file, output_file
from engine.cli.terminal import Terminal
from engine.errors import PromptError
from engine.wording import counted

if TYPE_CHECKING:
    from engine.loaded import Engine

REQUESTS = (
    "What is {}?",
    "Tell me two facts about {}.",
    "Write a short poem about {}.",
    "Explain {} to a child.",
    "Give me a list of ideas for a story about {}.",
    "Write a Python function that has to do with {}.",
)
SUBJECTS = ("rain", "bread", "the moon", "trains", "a garden", "numbers", "music", "a letter", "bees", "winter")


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser(
        "draft-vocabulary",
        help="learn a tokenizer's frequent tokens, so that drafts score those alone",
        description="Counts token ids in texts like those that the model will write and keeps the most frequent ones "
        "for --draft-vocabulary. What the model writes does not depend on it, only how fast.",
    )
    parser.set_defaults(run=run, draft_kind="auto")
    parser.add_argument(
        "--from", dest="files", type=input_file, nargs="+", default=[], metavar="FILE", help="text files"
    )
    parser.add_argument("--answers", action="store_true", help="count what the model answers to built-in requests, too")
    parser.add_argument(
        "--size",
        type=integer("a whole number of at least 64", lambda value: value >= 64),
        default=32768,
        metavar="N",
        help="token ids to keep (32768, or the whole vocabulary if less)",
    )
    parser.add_argument(
        "--out", type=output_file, metavar="FILE", help="write here instead of the program's data directory"
    )
    add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    """Learns and writes the ranking. Raises UserError for files that cannot be read."""
    from engine.config import ModelConfig
    from engine.decode.draft_vocabulary import fingerprint, kept_at, learn
    from engine.text.tokenizer import Tokenizer

    if not args.files and not args.answers:
        raise UsageError("There is nothing to learn from.", "Name text files with --from, or let the model answer.")
    if not args.answers:
        of_model = {
            "--draft-model": args.draft_model,
            "--dtype": args.dtype != "auto",
            "--keep-quantized": args.keep_quantized,
            "--quantize-rest": args.quantize_rest,
            "--draft-vocabulary": args.draft_vocabulary != "auto",
        }
        refuse_without_effect(of_model, "without --answers, which alone loads the model")
    terminal = Terminal()
    directory, _ = checkpoint_directories(args)
    config = ModelConfig.from_directory(directory)
    tokenizer = Tokenizer.from_directory(directory, config.eos_token_ids)
    texts: list[Sequence[int]] = [tokenizer.encode(_read(file)) for file in args.files]
    if args.answers:
        texts += _answers(load_engine(args, terminal), terminal)
    vocabulary = config.text.unpadded_vocab_size
    name = fingerprint(directory)
    ranking = learn(tokenizer, name, texts, size=min(args.size, vocabulary), vocabulary=vocabulary)
    path = args.out or kept_at(name)
    ranking.write(path)
    seen = len(set(itertools.chain.from_iterable(texts)))
    terminal.note(
        f"{counted(sum(map(len, texts)), 'token')} read, {seen} distinct; {len(ranking.ids)} ids kept in {path}"
    )
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error.strerror}.", "Check the paths given with --from.") from error


def _answers(engine: Engine, terminal: Terminal) -> Iterator[Sequence[int]]:
    """What the model answers to `REQUESTS`, sampled, so that more than its favourite words occur."""
    from engine.decode.options import GenerationOptions
    from engine.events import Failed, Finished
    from engine.messages import Message
    from engine.session import Session

    requests = [request.format(subject) for request in REQUESTS for subject in SUBJECTS]
    session = Session(engine)
    for done, text in enumerate(requests):
        terminal.progress(done / len(requests), "Answering")
        options = GenerationOptions(max_tokens=160, temperature=0.8, seed=done)
        events = (
            session.complete(text, options)
            if engine.template is None
            else session.generate([Message("user", text)], options)
        )
        for event in events:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                yield event.generation.token_ids
    terminal.clear_progress()

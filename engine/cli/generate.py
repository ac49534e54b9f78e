"""`inkstand generate`: one answer to one prompt."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.answer_printer import AnswerPrinter
from engine.cli.arguments import (
    Subparsers,
    UsageError,
    add_checkpoint_options,
    add_decoding_options,
    add_sampling_options,
    generation_options,
)
from engine.cli.interrupt import cancel_on_interrupt
from engine.cli.loading import open_session
from engine.cli.path_types import input_file
from engine.cli.streams import read_input
from engine.cli.terminal import Terminal, answer_notes
from engine.errors import PromptError
from engine.messages import Message

if TYPE_CHECKING:
    from engine.events import CancelFlag, Event, Generation
    from engine.text.template import ChatTemplate
    from engine.text.tokenizer import Tokenizer


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser("generate", help="answer one prompt and exit")
    parser.set_defaults(run=run)
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="what to answer; - reads standard input")
    parser.add_argument("--messages", type=input_file, metavar="FILE", help="a JSON list of chat messages to continue")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of the text")
    add_sampling_options(parser, max_tokens=128)
    add_checkpoint_options(parser)
    add_decoding_options(parser)


def run(args: argparse.Namespace) -> int:
    """Answers. Returns 0, or 130 when interrupted, after what was generated has been printed."""
    from engine.text.chat import encode_chat
    from engine.text.effort import parse_effort

    terminal = Terminal()
    options = generation_options(args)
    effort = parse_effort(args.effort)
    prompt = read_input() if args.prompt == "-" else args.prompt
    if prompt is not None and not prompt.strip():
        raise PromptError("The prompt is empty.", "Give a text with -p; -p - reads one from standard input.")
    messages, text = _messages(args, prompt), prompt or ""
    no_template = PromptError(
        "The checkpoint has no chat template, so it cannot take --messages or --system.",
        "Give the whole text to complete with -p, or add a chat_template.jinja to the checkpoint.",
    )

    def ids(tokenizer: Tokenizer, template: ChatTemplate | None) -> Sequence[int]:
        return tokenizer.encode(text) if template is None else encode_chat(tokenizer, template, messages, effort).ids

    session = open_session(args, terminal, no_template if args.messages or args.system else None, ids)

    def events(cancel: CancelFlag) -> Iterator[Event]:
        if session.engine.template is not None:
            return session.generate(messages, options, effort=effort, cancel=cancel)
        terminal.note("The checkpoint has no chat template: completing the raw text.")
        return session.complete(text, options, cancel=cancel)

    printer = AnswerPrinter(
        terminal, text=None if args.json else terminal.out, reasoning=None if args.json else terminal.err
    )
    with cancel_on_interrupt() as cancel:
        generation, cancelled = printer.follow(events(cancel))
    if args.json:
        terminal.json(as_json(generation))
    else:
        for line in answer_notes(generation):
            terminal.note(line)
    return 130 if cancelled else 0


def as_json(generation: Generation) -> dict[str, Any]:
    """The object that `--json` prints."""
    draft = generation.draft
    return {
        "text": generation.text,
        "reasoning": generation.reasoning,
        "token_ids": list(generation.token_ids),
        "prompt_tokens": generation.stats.prompt_tokens,
        "completion_tokens": generation.stats.completion_tokens,
        "finish_reason": generation.finish_reason,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in generation.tool_calls
        ],
        "stats": generation.stats.to_json(),
        "draft": {
            "requested": draft.requested,
            "effective": draft.effective,
            "reason": draft.reason,
            "schedule": draft.schedule,
            "block_size": draft.block_size,
            "auto": draft.auto,
            "vocabulary": draft.vocabulary,
        },
    }


def _messages(args: argparse.Namespace, prompt: str | None) -> list[Message]:
    """The conversation that the options describe: system message, messages of the file, prompt."""
    if prompt is None and args.messages is None:
        raise UsageError("There is nothing to answer.", "Give a prompt with -p, or a conversation with --messages.")
    messages: list[Message] = []
    if args.messages is not None:
        messages = _read_messages(args.messages)
    if args.system is not None:
        if any(message.role == "system" for message in messages):
            raise UsageError(
                f"{args.messages} holds a system message already.", "Leave out --system, or remove it there."
            )
        messages.insert(0, Message("system", args.system))
    if prompt is not None:
        messages.append(Message("user", prompt))
    return messages


def _read_messages(path: Path) -> list[Message]:
    from engine.text import parse_messages

    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PromptError(
            f"{path} cannot be read: {error.strerror}.", "Check the path given with --messages."
        ) from error
    except RecursionError as error:
        raise PromptError(
            f"{path} is nested too deeply.", "It must hold a list of messages with role and content."
        ) from error
    except ValueError as error:
        raise PromptError(
            f"{path} is not JSON: {error}.", "It must hold a list of messages with role and content."
        ) from error
    try:
        return list(parse_messages(document))
    except PromptError as error:
        raise PromptError(f"{path}: {error.title}", error.hint) from error

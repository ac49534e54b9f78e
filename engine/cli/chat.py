"""`inkstand chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.cli.arguments import (
    Subparsers,
    add_checkpoint_options,
    add_decoding_options,
    add_sampling_options,
    generation_options,
)
from engine.cli.line_reader import LineReader
from engine.cli.loading import open_session
from engine.cli.terminal import Terminal
from engine.errors import PromptError
from engine.messages import Message
from engine.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.session import Engine
    from engine.text.template import ChatTemplate
    from engine.text.tokenizer import Tokenizer


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser("chat", help="chat in the terminal")
    parser.set_defaults(run=run)
    add_sampling_options(parser, max_tokens=None)
    add_checkpoint_options(parser)
    add_decoding_options(parser)


def run(args: argparse.Namespace) -> int:
    """Chats until the user leaves."""
    from engine.cli.conversation import Conversation
    from engine.text.chat import encode_chat
    from engine.text.effort import parse_effort

    terminal = Terminal()
    options = generation_options(args)
    effort = parse_effort(args.effort)
    reader = LineReader(terminal)
    no_template = PromptError(
        "The checkpoint has no chat template, so it cannot hold a conversation.",
        "Complete raw text with inkstand generate -p, or add a chat_template.jinja to the checkpoint.",
    )
    shortest = [*([Message("system", args.system)] if args.system else []), Message("user", "?")]

    def ids(tokenizer: Tokenizer, template: ChatTemplate | None) -> Sequence[int]:
        assert template is not None
        return encode_chat(tokenizer, template, shortest, effort).ids

    session = open_session(args, terminal, no_template, ids)
    terminal.note(_greeting(session.engine, drafting=session.drafting))
    Conversation(session, options, terminal, effort=effort, system=args.system).run(reader)
    return 0


def _greeting(engine: Engine, *, drafting: bool) -> str:
    if not engine.head_depths:
        drafter = f"no MTP head: {engine.head_reason}".rstrip(".")
    else:
        drafter = f"MTP head with {counted(engine.head_depths, 'depth')}, {'on' if drafting else 'off'}"
    return f"{drafter}. /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves."

"""`inkstand bench roofline`, `context`, `sessions` and `rounds`: what decoding speed consists of."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from engine.cli.arguments import Subparsers, add_checkpoint_options, positive
from engine.cli.bench_options import (
    add_json,
    add_prompts,
    dtype_name,
    fitting,
    model_json,
    numbers,
    usable_depths,
    write_json,
)
from engine.cli.loading import load_engine
from engine.cli.terminal import Terminal
from engine.errors import PromptError

if TYPE_CHECKING:
    from engine.bench.contestants import Case
    from engine.config import ModelConfig
    from engine.loaded import Check, Engine

Report = tuple[Mapping[str, Any], str]
"""What goes to the JSON file, and the table."""


def add_reports(commands: Subparsers) -> None:
    """Adds the subcommands."""
    roofline = _add(
        commands,
        "roofline",
        run_roofline,
        "bytes and operations of a plain step and a round against what the machine can do",
        "Reads bytes and operations of a forward off the loaded matrices, measures memory bandwidth and matmul rate, "
        "and times the forward and its pieces, on the text that the model writes to the first prompt.",
    )
    _add_texts(roofline, 120)
    _add_repetitions(roofline)
    context = _add(
        commands,
        "context",
        run_context,
        "time of a forward by context length",
        "Times plain steps and verify blocks after contexts of several lengths, in turns.",
    )
    context.add_argument(
        "--lengths",
        type=numbers("context lengths of at least 1", 1),
        default=(100, 500, 1000, 1500),
        metavar="L,...",
        help="tokens before the forward; ratios are to the first (100,500,1000,1500)",
    )
    _add_repetitions(context)
    sessions = _add(
        commands,
        "sessions",
        run_sessions,
        "time to the first token by turn, with and without the caches of the turns before",
        "Holds a conversation in a session that keeps its caches and, turn by turn, in a fresh one.",
    )
    sessions.add_argument("--turns", type=positive, default=5, metavar="N", help="turns of the conversation (5)")
    sessions.add_argument("-n", "--max-tokens", type=positive, default=80, metavar="N", help="tokens per answer (80)")
    rounds = _add(
        commands,
        "rounds",
        run_rounds,
        "share of a round that goes into cutting back and bookkeeping",
        "Times what a round does besides drafting and verifying, from outside the decode loop.",
    )
    _add_texts(rounds, 120)
    rounds.add_argument(
        "--depths",
        type=numbers("numbers of drafts of at least 1", 1),
        metavar="K,...",
        help="drafts per round (default: 1 to the head's depths)",
    )


def _add(
    commands: Subparsers, name: str, run: Callable[[argparse.Namespace], int], summary: str, description: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=description)
    parser.set_defaults(run=run, draft_kind="auto")
    add_json(parser)
    add_checkpoint_options(parser, positional=True)
    return parser


def _add_repetitions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", "--repetitions", type=positive, default=9, metavar="N", help="timed runs of each (9)")


def _add_texts(parser: argparse.ArgumentParser, tokens: int) -> None:
    parser.add_argument(
        "-n", "--max-tokens", type=positive, default=tokens, metavar="N", help=f"tokens per text ({tokens})"
    )
    add_prompts(parser)


def run_roofline(args: argparse.Namespace) -> int:
    """Prints the comparison with the machine."""

    def report(engine: Engine, terminal: Terminal) -> Report:
        from engine.bench.report_tables import roofline_tables
        from engine.bench.roofline import measure_roofline

        roofline = measure_roofline(
            engine, _cases(engine, args)[0], repeats=args.repetitions, progress=terminal.progress
        )
        return roofline.to_json(), roofline_tables(roofline)

    return _report(args, report, fitting(args.prompts[:1], args.effort))


def run_context(args: argparse.Namespace) -> int:
    """Prints a line per length."""

    def check(config: ModelConfig, *_: object) -> None:
        longest, most = max(args.lengths), config.text.max_positions
        if longest >= most:
            raise PromptError(
                f"A forward after {longest} tokens was asked for; the model takes {most}.",
                f"Name lengths below {most} with --lengths.",
            )

    def report(engine: Engine, terminal: Terminal) -> Report:
        from engine.bench.context import measure_context
        from engine.bench.prompts import KINDS
        from engine.bench.report_tables import context_table

        text = " ".join(prompt.text for prompt in KINDS)
        rows = [1, *([engine.head_depths + 1] if engine.head_depths else [])]
        times = measure_context(
            engine,
            engine.tokenizer.encode(text),
            args.lengths,
            rows=rows,
            repeats=args.repetitions,
            progress=terminal.progress,
        )
        return times.to_json(), context_table(times)

    return _report(args, report, check)


def run_sessions(args: argparse.Namespace) -> int:
    """Prints a line per turn."""

    def report(engine: Engine, terminal: Terminal) -> Report:
        from engine.bench.prompts import SHORT
        from engine.bench.report_tables import turns_table
        from engine.bench.turns import measure_turns

        turns = measure_turns(
            engine, SHORT[0], turns=args.turns, max_tokens=args.max_tokens, progress=terminal.progress
        )
        return {"turns": [turn.to_json() for turn in turns]}, turns_table(turns)

    return _report(args, report)


def run_rounds(args: argparse.Namespace) -> int:
    """Prints a line per number of drafts."""

    def report(engine: Engine, terminal: Terminal) -> Report:
        from engine.bench.report_tables import rounds_table
        from engine.bench.rounds import measure_rounds

        depths = usable_depths(args.depths, engine, terminal)
        found = measure_rounds(engine, _cases(engine, args), depths, terminal.progress)
        return {"rounds": [times.to_json() for times in found]}, rounds_table(found)

    return _report(args, report, fitting(args.prompts, args.effort))


def _report(args: argparse.Namespace, measure: Callable[[Engine, Terminal], Report], check: Check | None = None) -> int:
    from engine.bench.environment import environment

    terminal, about = Terminal(), environment()
    engine = load_engine(args, terminal, check)
    figures, text = measure(engine, terminal)
    terminal.clear_progress()
    for line in about.lines():
        terminal.note(line)
    terminal.note(f"{engine.directory}, {dtype_name(engine)}")
    terminal.write(text)
    write_json(args.json, {"environment": about.to_json(), **model_json(engine), **figures})
    return 0


def _cases(engine: Engine, args: argparse.Namespace) -> list[Case]:
    from engine.bench.contestants import cases

    return cases(engine, args.prompts, args.max_tokens, effort=args.effort)

"""`inkstand bench`: decoding speed against plain decoding and a peer, and what holds it back."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli.arguments import (
    Parser,
    Subparsers,
    add_checkpoint_options,
    integer,
    positive,
    real,
    refuse_without_effect,
)
from engine.cli.bench_options import (
    add_json,
    add_prompts,
    dtype_name,
    fitting,
    model_json,
    numbers,
    spelled,
    usable_depths,
    write_json,
)
from engine.cli.bench_reports import add_reports
from engine.cli.bench_slice import add_slice
from engine.cli.loading import checkpoint_directories, load_engine
from engine.cli.path_types import output_folder, program
from engine.cli.terminal import Terminal
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.bench.contestants import Contestant
    from engine.bench.peer import Peer
    from engine.loaded import Engine
    from engine.session import Schedule

_TOKENS, _REPETITIONS = 120, 3
_QUICK_PROMPTS, _QUICK_TOKENS = 3, 64
_PEER_BLOCKS = (0, 3)


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command, its subcommands and their options."""
    parser: Parser = subparsers.add_parser(
        "bench",
        help="measure decoding speed, and what holds it back",
        description="Measures decoding speed. Without a subcommand: speed.",
    )
    commands = parser.add_subparsers(title="what to measure", metavar="WHAT", dest="what", required=True)
    parser.default_to("speed", commands.choices)
    _add_speed(commands)
    add_reports(commands)
    add_slice(commands)


def _add_speed(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "speed",
        help="plain decoding, fixed numbers of drafts, the automatic choice and a peer on the same prompts",
        description="Runs all ways to decode on the same prompts, interleaved. Ratios are taken within a repetition; "
        "medians over repetitions, means over prompts.",
    )
    parser.set_defaults(run=run_speed, draft_kind="auto")
    parser.add_argument("-n", "--max-tokens", type=positive, metavar="N", help=f"tokens per text ({_TOKENS})")
    parser.add_argument("-r", "--repetitions", type=positive, metavar="N", help=f"timed runs of each ({_REPETITIONS})")
    parser.add_argument(
        "--warm-up",
        type=integer("a whole number of at least 0", lambda value: value >= 0),
        default=1,
        metavar="N",
        help="short untimed runs of each before (1)",
    )
    parser.add_argument(
        "--depths",
        type=numbers("numbers of drafts of at least 1", 1),
        metavar="K,...",
        help="fixed numbers of drafts to compare (default: 1 to the head's depths)",
    )
    parser.add_argument(
        "--schedule",
        choices=["stateful", "chained", "both"],
        default="stateful",
        help="how the fixed numbers are drafted; both puts the published chained schedule beside our own",
    )
    parser.add_argument(
        "--random",
        type=real("above 0 and at most 100", lambda value: 0 < value <= 100),
        metavar="T",
        help="add the worst text: the first prompt sampled at temperature T, such as 1.5",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"the first {_QUICK_PROMPTS} prompts, unless -n and -r say otherwise {_QUICK_TOKENS} tokens and once each",
    )
    add_prompts(parser)
    add_json(parser)
    add_checkpoint_options(parser, positional=True)
    peer = parser.add_argument_group("peer")
    peer.add_argument(
        "--peer",
        type=program,
        metavar="PYTHON",
        help="also run mlx-vlm with this interpreter of an environment that has it",
    )
    peer.add_argument(
        "--peer-blocks",
        type=numbers("block sizes of at least 2, or 0 for the peer's own", 0),
        metavar="B,...",
        help=f"block sizes of its drafter; 0 is its own choice ({','.join(map(str, _PEER_BLOCKS))})",
    )
    peer.add_argument(
        "--peer-threads", type=positive, metavar="N", help="threads of its BLAS (default: as many as ours)"
    )
    peer.add_argument("--peer-reference-blas", action="store_true", help="leave it with the BLAS that mlx links")
    peer.add_argument("--work", type=output_folder, metavar="DIR", help="keep the peer's copy of the checkpoint here")


def run_speed(args: argparse.Namespace) -> int:
    """Measures, prints the tables, writes the JSON."""
    from engine.bench.contestants import cases, own_contestants, peer_contestants
    from engine.bench.environment import environment, load_average
    from engine.bench.speed import measure
    from engine.bench.tables import speed_tables

    terminal = Terminal()
    prompts = args.prompts[:_QUICK_PROMPTS] if args.quick else args.prompts
    tokens = args.max_tokens or (_QUICK_TOKENS if args.quick else _TOKENS)
    repetitions = args.repetitions or (1 if args.quick else _REPETITIONS)
    if args.peer is None:
        of_peer = ("peer_blocks", "peer_threads", "peer_reference_blas", "work")
        refuse_without_effect(
            {f"--{name.replace('_', '-')}": getattr(args, name) for name in of_peer}, "without --peer"
        )
    schedules: list[Schedule] = ["stateful", "chained"] if args.schedule == "both" else [args.schedule]
    about = environment()
    if args.work is not None:
        _make(args.work)
    engine = load_engine(args, terminal, fitting(prompts, args.effort))
    if engine.head is None:
        terminal.note(f"Plain decoding only: {engine.head_reason}")
    depths = usable_depths(args.depths, engine, terminal)
    with _peer(args, engine, about.blas_threads, terminal) as peer:
        contestants: list[Contestant] = [*own_contestants(engine, depths, schedules)]
        if peer is not None:
            contestants += peer_contestants(peer, args.peer_blocks or _PEER_BLOCKS, engine.config.eos_token_ids)
        todo = cases(engine, prompts, tokens, effort=args.effort, random=args.random)
        speed = measure(contestants, todo, repetitions=repetitions, warm_up=args.warm_up, progress=terminal.progress)
        versions = None if peer is None else peer.versions
    terminal.clear_progress()
    for line in [*about.lines(), *([] if versions is None else [f"peer: {spelled(versions)}"])]:
        terminal.note(line)
    terminal.note(f"{engine.directory}, {dtype_name(engine)}, {tokens} tokens at most, medians of {repetitions}")
    terminal.write(speed_tables(speed))
    write_json(
        args.json,
        {
            "environment": {**about.to_json(), "load_after": load_average()},
            "peer": versions,
            **model_json(engine),
            "repetitions": repetitions,
            **speed.to_json(),
        },
    )
    return 0


def _make(work: Path) -> None:
    """The folder of --work. Raises UserError where it cannot be made."""
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(work, error) from error


def _unwritable(work: Path, error: OSError) -> UserError:
    return UserError(
        f"The peer's copy cannot be written to {work}: {error.strerror}.", "Name another directory with --work."
    )


@contextmanager
def _peer(args: argparse.Namespace, engine: Engine, threads: int | None, terminal: Terminal) -> Generator[Peer | None]:
    """The peer with its own copy of the checkpoint, in a directory that is kept only where --work names one."""
    from engine.bench.peer import Peer
    from engine.bench.peer_copy import copy_for_peer

    if args.peer is None:
        yield None
        return
    place = tempfile.TemporaryDirectory(prefix="inkstand-peer-") if args.work is None else nullcontext(str(args.work))
    with place as name:
        work = Path(name)
        _, head = checkpoint_directories(args)
        terminal.progress(0.0, "Copying the checkpoint for the peer")
        try:
            copy_for_peer(engine.directory, head or engine.directory, work / "model", dtype_name(engine))
        except OSError as error:
            raise _unwritable(work, error) from error
        terminal.progress(0.0, "Starting the peer")
        with Peer(
            args.peer,
            model=work / "model",
            work=work,
            threads=args.peer_threads or threads,
            reference_blas=args.peer_reference_blas,
        ) as peer:
            yield peer

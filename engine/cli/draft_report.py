"""`inkstand draft-report`: how well the head guesses, for every way of attaching it to the model."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.cli.arguments import Subparsers, UsageError, add_checkpoint_options, integer, positive
from engine.cli.bench_options import fitting
from engine.cli.loading import load_engine
from engine.cli.path_types import non_empty
from engine.cli.quantize_report import measure, planned_bytes, write
from engine.cli.terminal import Terminal
from engine.errors import HeadError
from engine.wording import counted

if TYPE_CHECKING:
    import mlx.core as mx

    from engine.bench.prompts import Prompt
    from engine.loaded import Engine
    from engine.model.mtp import Wiring
    from engine.stats import GenerationStats


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser(
        "draft-report", help="measure how many drafts are accepted, per depth and for every wiring of the head"
    )
    parser.set_defaults(run=run, draft_kind="mtp")
    parser.add_argument(
        "-p",
        "--prompt",
        type=non_empty,
        action="append",
        metavar="TEXT",
        help="may be repeated (default: the 8 of bench --prompts short)",
    )
    parser.add_argument("-n", "--max-tokens", type=positive, default=120, metavar="N", help="tokens per answer")
    parser.add_argument("--effort", default="high", metavar="LEVEL", help="thinking effort (default: high)")
    parser.add_argument(
        "--draft-block-size",
        type=integer("a whole number of at least 2", lambda value: value >= 2),
        metavar="K",
        help="tokens verified per round, so K - 1 drafts (default: all depths of the head, and one)",
    )
    parser.add_argument("--draft-schedule", choices=["stateful", "chained"], default="stateful")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    """Generates the answers once, replays them for every wiring, and prints a table."""
    from engine.bench.prompts import SHORT, labelled
    from engine.text.effort import parse_effort

    terminal = Terminal()
    effort = parse_effort(args.effort)
    if args.quantize_rest is not None and args.draft_schedule != "stateful":
        raise UsageError(
            f"--quantize-rest is measured with the stateful schedule, not with {args.draft_schedule}.",
            "Leave out one of --quantize-rest and --draft-schedule.",
        )
    prompts = [labelled(text) for text in args.prompt or ()] or SHORT
    # Answers are those of the checkpoint as it is; what packing changes is measured on them.
    as_it_is = argparse.Namespace(**{**vars(args), "quantize_rest": None})
    engine = load_engine(as_it_is, terminal, fitting(prompts, effort))
    if engine.head is None:
        raise HeadError(f"There is no MTP head to measure: {engine.head_reason}", "Name one with --draft-model.")
    answers = list(_answers(engine, prompts, args.max_tokens, effort, terminal))
    drafts = (args.draft_block_size or engine.head.depths + 1) - 1
    if args.draft_schedule == "stateful":
        drafts = min(drafts, engine.head.depths)
    if args.quantize_rest is not None:
        texts = [(ids, start) for ids, start, _ in answers]
        rows_of = [measure(engine, None, planned_bytes(args, None), texts, drafts)]
        del engine, answers  # two models at once may be more than the machine holds
        packed = load_engine(args, terminal)
        rows_of.append(measure(packed, args.quantize_rest, planned_bytes(args, args.quantize_rest), texts, drafts))
        write(rows_of, texts, drafts, terminal, as_json=args.json)
        return 0
    wirings = list(_wirings())
    rows: list[tuple[Wiring, GenerationStats]] = []
    for done, wiring in enumerate(wirings):
        terminal.progress(done / len(wirings), "Replaying")
        rows.append((wiring, _measure(engine, wiring, answers, drafts, args.draft_schedule)))
    terminal.clear_progress()
    if args.json:
        report = {
            "prompts": [prompt.text for prompt in prompts],
            "tokens": sum(len(ids) - start for ids, start, _ in answers),
            "schedule": args.draft_schedule,
            "drafts": drafts,
            "used": _wiring_json(engine.head.wiring),
            "wirings": [{**_wiring_json(wiring), **_stats_json(stats)} for wiring, stats in rows],
        }
        terminal.json(report)
    else:
        asked, made = counted(len(prompts), "prompt"), counted(drafts, "draft")
        terminal.note(f"{asked}, greedy, {made} per round, {args.draft_schedule} schedule")
        terminal.write(_table(rows, engine.head.wiring))
    return 0


Answered = tuple[list[int], int, "mx.array"]
"""Ids of prompt and answer, length of the prompt, hidden rows."""


def _answers(
    engine: Engine, prompts: Sequence[Prompt], max_tokens: int, effort: float, terminal: Terminal
) -> Iterator[Answered]:
    """Greedy answers to the prompts; the drafter speeds them up and changes nothing."""
    from engine.bench.prompts import prompt_ids
    from engine.decode.known_text import hidden_rows
    from engine.decode.options import GenerationOptions
    from engine.events import Failed, Finished
    from engine.session import Session

    options = GenerationOptions(max_tokens=max_tokens)
    for done, prompt in enumerate(prompts):
        terminal.progress(done / len(prompts), "Answering")
        session = Session(engine)
        start = prompt_ids(engine.tokenizer, engine.template, prompt.text, effort)
        if engine.template is None:
            events = session.complete(prompt.text, options)
        else:
            events = session.continue_ids(start, options)
        for event in events:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                ids = [*start, *event.generation.token_ids]
                yield ids, len(start), hidden_rows(engine.backbone, ids)


def _wirings() -> Iterator[Wiring]:
    from engine.model.mtp import Wiring

    for hidden, embedding, readout in itertools.product(
        ("post_norm", "pre_norm"), ("normed", "raw"), ("final_norm", "direct")
    ):
        yield Wiring(hidden=hidden, embedding=embedding, readout=readout)


def _measure(
    engine: Engine, wiring: Wiring, answers: Sequence[Answered], drafts: int, schedule: str
) -> GenerationStats:
    from engine.decode.chained import ChainedDrafter
    from engine.decode.known_text import replay_rounds
    from engine.decode.options import GenerationOptions
    from engine.decode.sampler import Sampler
    from engine.decode.stateful import StatefulDrafter
    from engine.stats import StatsRecorder

    head = engine.rewired(wiring).head
    assert head is not None
    sampler = Sampler(GenerationOptions(), engine.config.text.unpadded_vocab_size, ())
    recorder = StatsRecorder(prompt_tokens=0, cached_tokens=0, started=0.0)
    for ids, start, hidden in answers:
        drafter = StatefulDrafter(head) if schedule == "stateful" else ChainedDrafter(head)
        replay_rounds(drafter, sampler, hidden, ids, start=start, drafts=drafts, recorder=recorder)
    return recorder.snapshot()


def _wiring_json(wiring: Wiring) -> dict[str, str]:
    return {"hidden": wiring.hidden, "embedding": wiring.embedding, "readout": wiring.readout}


def _stats_json(stats: GenerationStats) -> dict[str, Any]:
    names = ("rounds", "drafted", "accepted", "acceptance_length", "acceptance_rate", "per_position")
    return {name: value for name, value in stats.to_json().items() if name in names}


def _table(rows: Sequence[tuple[Wiring, GenerationStats]], used: Wiring) -> str:
    lines = [
        f"  {'hidden':<11}{'embedding':<11}{'readout':<12}{'tokens/round':>12}  share of rounds that accepted 1, 2, ..."
    ]
    for wiring, stats in rows:
        length = "–" if stats.acceptance_length is None else f"{stats.acceptance_length:.2f}"
        shares = "  ".join(f"{share:4.0%}" for share in stats.per_position or ())
        mark = "*" if wiring == used else " "
        lines.append(f"{mark} {wiring.hidden:<11}{wiring.embedding:<11}{wiring.readout:<12}{length:>12}  {shares}")
    lines.append("* the wiring in use")
    return "\n".join(lines) + "\n"

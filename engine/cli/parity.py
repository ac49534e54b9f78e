"""`inkstand parity`: is greedy text with the drafter the text that the model alone would write?"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.cli.arguments import Subparsers, add_checkpoint_options, positive
from engine.cli.bench_options import (
    add_effort,
    add_json,
    fitting,
    model_json,
    numbers,
    prompts,
    usable_depths,
    write_json,
)
from engine.cli.loading import load_engine
from engine.cli.terminal import Terminal
from engine.errors import HeadError
from engine.wording import counted

if TYPE_CHECKING:
    from engine.bench.parity import Difference, Parity, RowParity


_ROW_IDS = 600
"""Ids of the text whose rows are computed one by one and in blocks: more than a window of the demo."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command's options."""
    parser = subparsers.add_parser(
        "parity",
        help="compare greedy text with and without the drafter, token by token",
        description="Generates greedily without and with the drafter and reports the first difference of each prompt, "
        "with the gap of the two best logits in both forwards. Exits with 1 when a difference is no near-tie. Also "
        "computes the rows of a text one by one and in blocks, as drafts are verified, and compares what they give.",
    )
    parser.set_defaults(run=run, draft_kind="mtp")
    parser.add_argument("--tokens", type=positive, default=2000, metavar="N", help="tokens to compare (2000)")
    parser.add_argument("-n", "--max-tokens", type=positive, default=256, metavar="N", help="tokens per answer (256)")
    parser.add_argument(
        "--depths",
        type=numbers("numbers of drafts of at least 1", 1),
        metavar="K,...",
        help="drafts per round (default: 1 to the head's depths); the session's own choice runs always",
    )
    parser.add_argument(
        "--prompts",
        type=prompts,
        metavar="FILE",
        help="one prompt per line or a JSON list (default: some 300 built-in ones)",
    )
    add_effort(parser)
    add_json(parser)
    add_checkpoint_options(parser, positional=True)


def run(args: argparse.Namespace) -> int:
    """Compares and prints; 1 when a difference is not explained."""
    from engine.bench.contestants import cases
    from engine.bench.environment import environment
    from engine.bench.parity import compare, compare_rows
    from engine.bench.prompts import KINDS, SHORT, varied

    terminal = Terminal()
    asked = [*KINDS, *SHORT, *varied()] if args.prompts is None else args.prompts
    about = environment()
    engine = load_engine(args, terminal, fitting(asked, args.effort))
    if engine.head is None:
        raise HeadError(f"There is no MTP head to compare with: {engine.head_reason}", "Name one with --draft-model.")
    depths = usable_depths(args.depths, engine, terminal)
    text = itertools.cycle(token for prompt in asked for token in engine.tokenizer.encode(prompt.text))
    terminal.progress(0.0, "rows in blocks")
    rows = compare_rows(engine.backbone, list(itertools.islice(text, _ROW_IDS)), sorted({2, *(k + 1 for k in depths)}))
    todo = itertools.chain.from_iterable(cases(engine, [p], args.max_tokens, effort=args.effort) for p in asked)
    parity = compare(engine, todo, tokens=args.tokens, depths=depths, progress=terminal.progress)
    parity = replace(parity, rows=rows)
    terminal.clear_progress()
    for line in about.lines():
        terminal.note(line)
    terminal.write(as_text(parity, args.tokens))
    write_json(args.json, {"environment": about.to_json(), **model_json(engine), **parity.to_json()})
    return 1 if parity.unexplained else 0


def as_text(parity: Parity, asked: int) -> str:
    """A line per way to draft, then a line per difference."""
    from engine.bench.tables import table

    rows = [[mode.mode, str(mode.tokens), str(mode.near_ties), str(len(mode.differences))] for mode in parity.modes]
    text = table(["", "tokens compared", "near-ties decided again", "differences"], rows)
    text += "".join(_explanation(difference) + "\n" for difference in parity.differences)
    text += "".join(_row_line(rows) + "\n" for rows in parity.rows)
    fewer = "" if parity.plain_tokens >= asked else f"; the prompts gave no more, of {asked} asked for"
    compared = f"{counted(parity.plain_tokens, 'token')} of {counted(parity.prompts, 'prompt')}"
    return f"{text}{compared}{fewer}: {_verdict(parity)}\n"


def _verdict(parity: Parity) -> str:
    if not parity.differences:
        return "no difference."
    if not parity.unexplained:
        return "every difference is a near-tie."
    return f"{len(parity.unexplained)} unexplained."


def _explanation(d: Difference) -> str:
    kind = "near-tie" if d.explained else "UNEXPLAINED"
    return (
        f"{d.mode}, {d.prompt!r}, token {d.position}: {d.plain_token} plain, {d.token} drafted; "
        f"gap {d.row_gap:.3g} in one row, {d.block_gap:.3g} in the block, margin {d.margin:.3g}: {kind}"
    )


def _row_line(rows: RowParity) -> str:
    differing = f"logits differ by up to {rows.logits:.3g}, what is kept by up to {rows.states:.3g}"
    found = "bitwise equal" if rows.equal else differing
    return f"{counted(rows.compared, 'row')} in blocks of {rows.rows}, against each row alone: {found}"

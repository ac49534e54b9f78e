"""Tables for people, and that of decoding speed."""

from __future__ import annotations

from collections.abc import Sequence

from engine.bench.contestants import PLAIN
from engine.bench.speed import Speed

DASH = "–"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Columns as wide as their longest entry: the first `left` flush left, the others flush right."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]

    def laid_out(line: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(map(laid_out, lines)) + "\n"


def number(value: float | None, form: str = ".1f", unit: str = "") -> str:
    """A figure, or a dash where there is none."""
    return DASH if value is None else format(value, form) + unit


def percent(share: float | None) -> str:
    """A share from 0 to 1."""
    return DASH if share is None else f"{100 * share:.1f} %"


def speed_tables(speed: Speed) -> str:
    """Every text with every contestant, then a line per contestant."""
    rows: list[list[str]] = []
    for case in speed.cases:
        row = [case.name]
        for name in speed.names:
            cell = speed.cell(case, name)
            ratio = "" if name == PLAIN else f" {number(cell.over(speed.cell(case, PLAIN)), '.2f', 'x')}"
            row.append(number(cell.tps) + ratio)
        rows.append(row)
    return f"tok/s and ratio to plain\n{table(['', *speed.names], rows)}\n{_summary_table(speed)}"


def _summary_table(speed: Speed) -> str:
    peer = speed.peer_best
    head = ["", "tok/s", "x plain", "worst", "on", "tokens/round", "near-ties", "equal"]
    head += ["x peer", f"x {peer}"] if peer else []
    rows: list[list[str]] = []
    for summary in speed.summaries():
        worst = summary.worst if summary.name != PLAIN else None
        row = [
            summary.name,
            number(summary.tps),
            number(summary.over_plain, ".2f"),
            number(worst and worst[0], ".2f"),
            worst[1] if worst else DASH,
            number(summary.tokens_per_round, ".2f"),
            str(summary.near_ties),
            {None: DASH, True: "yes", False: "NO"}[summary.equal],
        ]
        if peer:
            row += [number(summary.over_peer, ".2f"), number(summary.over_peer_best, ".2f")]
        rows.append(row)
    return "means over the greedy texts\n" + table(head, rows)

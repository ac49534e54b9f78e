"""Tables of what decoding speed consists of."""

from __future__ import annotations

from collections.abc import Sequence

from engine.bench.context import ContextTimes
from engine.bench.pieces import HOST
from engine.bench.roofline import Line, Roofline, pieces_by_time
from engine.bench.rounds import RoundTimes
from engine.bench.tables import number, percent, table
from engine.bench.turns import Turn

_ABOVE = 1.005
"""Share of the limit that is shown as more than 100 %."""
_BEYOND = "* above 100 %: part of what it reads came from a cache; the limit is that of memory.\n"


def roofline_tables(roofline: Roofline) -> str:
    """The machine, every kind of work beside its limit, and what the plain step and the widest block consist of."""
    machine = roofline.machine
    ways = ", ".join(f"{way} {value / 1e9:.1f}" for way, value in machine.ways.items())
    rates = ", ".join(f"{rows}: {rate / 1e9:.1f}" for rows, rate in machine.rates.items())
    text = f"memory   {machine.bandwidth / 1e9:.1f} GB/s, the fastest of: {ways}\n"
    text += f"matmul   Gop/s by rows, matrix in the cache: {rates}\n"
    if roofline.experts:
        used = ", ".join(f"{rows}: {one:.2f} ({even:.2f})" for rows, (one, even) in roofline.experts.items())
        text += f"experts  in use per layer by rows, measured (even choices): {used}\n"
    text += f"\nafter {roofline.context} tokens, each alone\n{lines_table(roofline.steps)}"
    text += f"\nwithin decoding\n{lines_table(roofline.decoding)}"
    for rows, lines in roofline.breakdown.items():
        title = "a plain step" if rows == 1 else f"a verify of {rows} rows"
        text += f"\n{title} by pieces, the longest first\n{lines_table(pieces_by_time(lines), shares=True)}"
    return text


def lines_table(lines: Sequence[Line], *, shares: bool = False) -> str:
    """Work, limit and time of each line; `shares` adds its part of their sum, the host's time left out.

    A share of the limit above 100 % is marked and explained.
    """
    whole = sum(line.seconds or 0.0 for line in lines if line.name != HOST)
    head = ["", "MB", "Mop", "limit ms", "ms", "of limit"] + (["of step"] if shares else [])
    marked = any(map(_beyond, lines))
    rows: list[list[str]] = []
    for line in lines:
        row = [line.name, f"{line.work.nbytes / 1e6:.1f}", f"{line.work.ops / 1e6:.1f}", f"{1e3 * line.limit:.2f}"]
        mark = "" if not marked else "*" if _beyond(line) else " "
        row += [number(line.seconds and 1e3 * line.seconds, ".2f"), percent(line.share if line.limit else None) + mark]
        share = None if line.name == HOST else (line.seconds or 0.0) / whole
        rows.append(row + ([percent(share)] if shares else []))
    return table(head, rows) + (_BEYOND if marked else "")


def _beyond(line: Line) -> bool:
    return line.share is not None and line.share > _ABOVE


def context_table(times: ContextTimes) -> str:
    """A line per length: the plain step and the verify block, with ratios to the first."""
    head = ["context", *(f"{rows} row{'s' if rows > 1 else ''}, ms" for rows in times.rows)]
    body = [
        [
            str(length),
            *(f"{1e3 * times.seconds[length, rows]:.2f} {times.ratio(length, rows):.2f}x" for rows in times.rows),
        ]
        for length in times.lengths
    ]
    return table(head, body)


def turns_table(turns: Sequence[Turn]) -> str:
    """A line per turn."""
    head = ["turn", "prompt", "cached", "first token, s", "fresh session, s", "saved", "same text"]
    body = [
        [
            str(i + 1),
            str(turn.prompt_tokens),
            str(turn.cached_tokens),
            f"{turn.kept_ttft:.3f}",
            f"{turn.fresh_ttft:.3f}",
            f"{turn.ratio:.1f}x",
            "yes" if turn.same_text else "NO",
        ]
        for i, turn in enumerate(turns)
    ]
    return table(head, body)


def rounds_table(rounds: Sequence[RoundTimes]) -> str:
    """A line per number of drafts."""
    body = [
        [
            str(times.drafts),
            str(times.rounds),
            *(
                number(1e3 * seconds / times.rounds if times.rounds else None, ".3f")
                for seconds in (times.whole, times.rollback, times.session)
            ),
            percent(times.bookkeeping_share),
        ]
        for times in rounds
    ]
    return table(["drafts", "rounds", "ms/round", "rollback ms", "session ms", "both, of a round"], body)

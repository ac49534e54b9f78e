"""Tables of a slice's speed."""

from __future__ import annotations

from collections.abc import Sequence

from engine.bench.report_tables import lines_table
from engine.bench.roofline import pieces_by_time
from engine.bench.slice import Slice, SliceTimes, tokens_per_round
from engine.bench.tables import number, table
from engine.wording import counted, size


def slice_heading(made: Slice) -> str:
    """What was made."""
    text, depths = made.config.text, made.head.depths
    dense, windowed = sum(text.dense), sum(text.sliding)
    kinds = f"{dense} dense, {text.num_layers - dense} with experts; {windowed} sliding, {text.num_layers - windowed}"
    return (
        f"{counted(text.num_layers, 'layer')} ({kinds} global), {counted(depths, 'MTP block')}, random weights: "
        f"{size(made.backbone_bytes)} + {size(made.head_bytes)}, made in {made.seconds:.1f} s"
    )


def slice_tables(times: SliceTimes, acceptances: Sequence[float]) -> str:
    """The device, forwards, drafts and rounds beside their limits; what rounds would give, which is computed."""
    machine = times.machine
    ways = ", ".join(f"{way} {value / 1e9:.1f}" for way, value in machine.ways.items())
    text = f"memory   {machine.bandwidth / 1e9:.1f} GB/s, the fastest of: {ways}\n"
    text += f"matmul   {machine.rates[1] / 1e12:.2f} Top/s, large square matrices\n"
    text += f"prefill  {times.prefill_tps:.1f} tok/s, {times.context} tokens; peak memory {size(times.peak_bytes)}\n"
    text += f"plain    {times.plain_tps:.1f} tok/s\n"
    lines = [times.plain, *times.forwards, *times.drafts, *(line for _, line in times.heads)]
    text += f"\nafter {times.context} tokens, medians\n{lines_table(lines)}"
    text += f"\nrounds whose drafts fall\n{lines_table([rounds.line for rounds in times.rounds])}"
    text += f"\n{_computed_table(times, acceptances)}"
    for rows, pieces in times.breakdown.items():
        title = "a forward of 1 row" if rows == 1 else f"a forward of {rows} rows"
        text += f"\n{title} by pieces, the longest first\n{lines_table(pieces_by_time(pieces), shares=True)}"
    return text


def _computed_table(times: SliceTimes, acceptances: Sequence[float]) -> str:
    head = ["drafts", "rounds", "near-ties left out", "by chance", "pays from, tokens/round"]
    head += [f"at {p:g}: tokens/round, tok/s" for p in acceptances]
    rows: list[list[str]] = []
    for found in times.rounds:
        assert found.line.seconds is not None
        pays = found.line.seconds * times.plain_tps
        row = [str(found.drafts), str(found.counted), str(found.near_ties), str(found.accepted), number(pays, ".2f")]
        row += [f"{tokens_per_round(found.drafts, p):.2f} {times.computed_tps(found, p):.1f}" for p in acceptances]
        rows.append(row)
    title = "computed, not measured: the rounds above if each draft stood with a given probability\n"
    return title + table(head, rows)

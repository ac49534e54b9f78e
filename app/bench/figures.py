"""What the bench measured, beside what was promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `limit` is the most it may be; None where nothing was promised."""

    section: str
    name: str
    value: float
    unit: str
    limit: float | None = None
    note: str = ""

    @property
    def met(self) -> bool:
        return self.limit is None or self.value <= self.limit


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(figures: Sequence[Figure]) -> str:
    """Aligned columns: section, name, figure, target, verdict, note."""
    rows = [("", "what", "figure", "target", "", "")]
    section = ""
    for figure in figures:
        rows.append(
            (
                figure.section if figure.section != section else "",
                figure.name,
                f"{_number(figure.value)} {figure.unit}",
                "" if figure.limit is None else f"{_number(figure.limit)} {figure.unit}",
                "" if figure.limit is None else "pass" if figure.met else "FAIL",
                figure.note,
            )
        )
        section = figure.section
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    right = (2, 3)
    lines = (
        "  ".join(cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(columns))
        for columns in (zip(row, widths, strict=True) for row in rows)
    )
    return "\n".join(line.rstrip() for line in lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"

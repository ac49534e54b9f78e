"""What people see: dimmed text where the terminal can show it, progress, and the figures of an answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from engine.cli.streams import standard_output
from engine.wording import counted, json_line, printable

if TYPE_CHECKING:
    from engine.events import DraftStatus, Generation
    from engine.stats import GenerationStats

DASH = "–"
"""Shown where nothing was measured."""

DIM, UNDIM = "\x1b[2m", "\x1b[22m"
"""Escape sequences around fainter text."""


class Terminal:
    """Standard output and standard error, each with or without colour.

    Reports quote tensors, files and configs of others, so control characters are spelt out in all of them.

    Args:
        out: takes answers and reports.
        err: takes everything about them: progress, notices, statistics, errors.
        environ: NO_COLOR (any value) and TERM=dumb switch escape sequences off.

    Raises:
        StreamError: standard output is closed; said before a command does its work, not after.
    """

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.out = standard_output() if out is None else out
        self.err = sys.stderr if err is None else err
        self._plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        self._progress_shown = False

    def styled(self, stream: TextIO) -> bool:
        """Whether `stream` is shown by something that understands escape sequences."""
        return not self._plain and stream.isatty()

    def dim(self, text: str, stream: TextIO) -> str:
        """`text` in a fainter colour where `stream` can show it."""
        return f"{DIM}{text}{UNDIM}" if text and self.styled(stream) else text

    def write(self, text: str) -> None:
        """Part of a report, shown at once."""
        self.clear_progress()
        self.out.write(printable(text))
        self.out.flush()

    def line(self, text: str) -> None:
        """One or more whole lines of a report."""
        self.write(text + "\n")

    def json(self, value: object) -> None:
        """One line of JSON."""
        self.line(json_line(value))

    def note(self, text: str) -> None:
        """A dimmed line on standard error."""
        self.clear_progress()
        self.err.write(self.dim(printable(text), self.err) + "\n")
        self.err.flush()

    def progress(self, fraction: float, message: str) -> None:
        """Replaces the progress line; nothing where standard error is no terminal. `fraction` is in [0, 1]."""
        if self.styled(self.err):
            line = printable(message).replace("\n", " ")
            self.err.write(f"\r\x1b[K{DIM}{line} {fraction:.0%}{UNDIM}")
            self.err.flush()
            self._progress_shown = True

    def clear_progress(self) -> None:
        """Removes the progress line."""
        if self._progress_shown:
            self.err.write("\r\x1b[K")
            self.err.flush()
            self._progress_shown = False


def answer_notes(generation: Generation, *, stopped: bool = False) -> list[str]:
    """What stands below an answer, line by line: its figures, then what they do not tell."""
    figures = ("stopped · " if stopped else "") + _stats_line(generation.stats, generation.draft)
    return [figures, *(line for line in (_cut_line(generation), _truth_line(generation.draft)) if line)]


def _stats_line(stats: GenerationStats, draft: DraftStatus) -> str:
    """One line about an answer: tokens per round first, a dash where nothing was measured.

    What only a drafter has is left out where none ran.
    """
    drafted = draft.effective != "none" or stats.rounds > 0
    parts = [f"{_figure(stats.acceptance_length, '.2f')} tokens/round"] if drafted else []
    parts.append(f"{_figure(stats.decode_tps, '.1f')} tok/s")
    if drafted:
        parts.append(f"{_percent(stats.acceptance_rate)} accepted")
    parts += [f"TTFT {_figure(stats.ttft_s, '.2f')} s", counted(stats.rounds, "round")]
    if stats.plain_steps:
        parts.append(counted(stats.plain_steps, "plain step"))
    return " · ".join(parts)


def stats_table(stats: GenerationStats) -> str:
    """Everything that was measured about an answer, a line each."""
    positions = DASH if stats.per_position is None else ", ".join(f"{share:.0%}" for share in stats.per_position)
    widths = [f"{counted(rounds, 'round')} of {k}" for k, rounds in enumerate(stats.rounds_by_depth or (), 1) if rounds]
    by_drafts = ", ".join(widths) or DASH
    rows = [
        ("tokens per round", _figure(stats.acceptance_length, ".2f")),
        ("drafts accepted", f"{stats.accepted} of {stats.drafted}, {_percent(stats.acceptance_rate)}"),
        ("by position", positions),
        ("rounds", _timed(stats.rounds, stats.ms_per_round)),
        ("by drafts", by_drafts),
        ("plain steps", _timed(stats.plain_steps, stats.ms_per_plain_step)),
        ("near-ties", str(stats.near_ties)),
        ("tokens", f"{stats.prompt_tokens} in ({stats.cached_tokens} cached), {stats.completion_tokens} out"),
        ("first token", f"{_figure(stats.ttft_s, '.3f')} s"),
        ("prefill", f"{_figure(stats.prefill_tps, '.1f')} tok/s"),
        ("decode", f"{_figure(stats.decode_tps, '.1f')} tok/s"),
    ]
    return "\n".join(f"{name:<18}{value}" for name, value in rows)


def _cut_line(generation: Generation) -> str | None:
    """That an answer was cut by its limit, which reads like an end otherwise; None where it ended by itself."""
    if generation.finish_reason != "length":
        return None
    return f"Cut after {counted(generation.stats.completion_tokens, 'token')}: -n/--max-tokens allows more."


def _truth_line(draft: DraftStatus) -> str | None:
    """What ran where it is not what was asked for; None where there is nothing to say."""
    if draft.requested == draft.effective == "none":
        return None
    if draft.effective in {draft.requested, "mtp"} and draft.reason is None:
        return None
    if draft.effective == draft.requested or (draft.requested, draft.effective) == ("auto", "mtp"):
        return f"drafter: {draft.reason}"
    because = f": {draft.reason}" if draft.reason else ""
    return f"drafter: asked for {draft.requested}, ran {draft.effective}{because}"


def _timed(count: int, each_ms: float | None) -> str:
    return str(count) if each_ms is None else f"{count}, {each_ms:.1f} ms each"


def _figure(value: float | None, form: str) -> str:
    return DASH if value is None else format(value, form)


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.0f} %"

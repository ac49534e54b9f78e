"""How near decoding comes to what the machine's memory and arithmetic allow, for a plain step and for a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.bench.contestants import Case, Own, Run
from engine.bench.cost import PIECES, Work, Works, draft_work, expected_experts, step_work, total
from engine.bench.machine import Machine, measure_machine
from engine.bench.pieces import HOST, Stopwatch, experts_in_use, layer_inputs
from engine.bench.speed import Progress
from engine.session import Engine


@dataclass(frozen=True, slots=True)
class Line:
    """One kind of work: what it needs, the least time for that, and the time it took (seconds; None: not timed)."""

    name: str
    work: Work
    limit: float
    seconds: float | None

    @property
    def share(self) -> float | None:
        """Of the limit that is reached, 0 to 1."""
        return self.limit / self.seconds if self.seconds else None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bytes": round(self.work.nbytes),
            "ops": round(self.work.ops),
            "limit_ms": 1e3 * self.limit,
            "ms": None if self.seconds is None else 1e3 * self.seconds,
            "share_of_limit": self.share,
        }


@dataclass(frozen=True, slots=True)
class Roofline:
    context: int
    machine: Machine
    experts: dict[int, tuple[float, float]]
    """Rows -> distinct experts per layer, measured and as even choices would give; empty without experts."""
    steps: tuple[Line, ...]
    """A plain step, verify blocks, drafts and the round of all drafts, timed alone."""
    decoding: tuple[Line, ...]
    """The same plain step and round within a session's decoding, everything included."""
    breakdown: dict[int, tuple[Line, ...]]
    """Rows -> pieces of the forward."""

    def to_json(self) -> dict[str, Any]:
        return {
            "context": self.context,
            "bandwidth_bytes_per_s": round(self.machine.bandwidth),
            "bandwidth_by_way": {way: round(value) for way, value in self.machine.ways.items()},
            "matmul_ops_per_s": {str(rows): round(rate) for rows, rate in self.machine.rates.items()},
            "experts_in_use": {
                str(rows): {"measured": measured, "even_choices": even}
                for rows, (measured, even) in self.experts.items()
            },
            "steps": [line.to_json() for line in self.steps],
            "decoding": [line.to_json() for line in self.decoding],
            "breakdown": {str(rows): [line.to_json() for line in lines] for rows, lines in self.breakdown.items()},
        }


def measure_roofline(engine: Engine, case: Case, *, repeats: int, progress: Progress) -> Roofline:
    """Measure on the text that the model writes to `case`, in its middle."""
    backbone, head, depths = engine.backbone, engine.head, engine.head_depths
    config = engine.config.text
    progress(0.0, "Writing the text")
    plain = Own("plain", engine, 0)
    ids = [*case.ids, *plain.run(case, 0).token_ids]
    context = max(1, len(ids) - depths - 1)
    inputs = layer_inputs(backbone, ids)
    rows = range(1, depths + 2)
    experts = {
        count: (used, expected_experts(config.num_experts, config.experts_per_token, count))
        for count in rows
        if (used := experts_in_use(inputs, count)) is not None
    }
    works = {count: step_work(backbone, count, context, experts.get(count, (0.0, 0.0))[0]) for count in rows}

    progress(0.1, "Measuring the machine")
    machine = measure_machine(
        total(works[1]).nbytes, config.hidden_size, [*rows, *range(depths + 2, 2 * depths + 2)], backbone.dtype, repeats
    )
    watch = Stopwatch(backbone, ids, inputs, context, repeats)
    steps: list[Line] = []
    breakdown: dict[int, tuple[Line, ...]] = {}
    for count in rows:
        progress(0.2 + 0.4 * count / len(rows), f"Timing {count} rows")
        timed = watch.forward(count)
        name = "plain step" if count == 1 else f"verify of {count} rows"
        steps.append(_line(name, total(works[count]), machine, count, timed.step))
        if count in {1, depths + 1}:
            breakdown[count] = _breakdown(works[count], timed.pieces, machine, count)

    progress(0.7, "Decoding")
    run = plain.run(case, 0)
    decoding = [_line("plain step", total(works[1]), machine, 1, _per_forward(run))]
    if head is not None:
        drafted = Own("mtp", engine, depths).run(case, 0)
        accepted = (drafted.tokens_per_round or 1.0) - 1.0
        for depth in range(depths):
            progress(0.8 + 0.2 * depth / depths, f"Timing draft {depth + 1}")
            # A round commits `accepted` + 1 rows; a depth computes those again that it was fed wrong tokens for.
            width = round(accepted + 1 + max(0.0, depth - accepted))
            work = total(draft_work(head, depth, width, context))
            steps.append(_line(f"draft {depth + 1}", work, machine, width, watch.draft(head, depth, width)))
        parts = steps[depths:]
        whole = Line(
            f"round of {depths} drafts",
            sum((line.work for line in parts), Work()),
            sum(line.limit for line in parts),
            sum(line.seconds or 0.0 for line in parts),
        )
        steps.append(whole)
        decoding.append(Line(whole.name, whole.work, whole.limit, _per_forward(drafted)))
    return Roofline(context, machine, experts, tuple(steps), tuple(decoding), breakdown)


def _line(name: str, work: Work, machine: Machine, rows: int, seconds: float | None) -> Line:
    return Line(name, work, machine.seconds(work, rows), seconds)


def _breakdown(works: Works, pieces: dict[str, float], machine: Machine, rows: int) -> tuple[Line, ...]:
    found = [_line(name, works[name], machine, rows, pieces[name]) for name in PIECES if name in works]
    return (*found, Line(HOST, Work(), 0.0, pieces[HOST]))


def _per_forward(run: Run) -> float | None:
    """Seconds of one forward of the target with everything around it."""
    forwards = run.rounds + run.plain_steps
    if not forwards or run.decode_tps is None:
        return None
    return (len(run.token_ids) - 1) / run.decode_tps / forwards


def pieces_by_time(lines: Sequence[Line]) -> list[Line]:
    """The longest first, the host's time last."""
    return sorted(lines, key=lambda line: (line.name == HOST, -(line.seconds or 0.0)))

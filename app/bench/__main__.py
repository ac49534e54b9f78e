"""Measures the window against its targets:

    python -m app.bench [--quick] [--soak MINUTES] [--only NAME ...] [--json]

Each measurement runs in a process of its own with an empty home, on the offscreen platform unless QT_QPA_PLATFORM
says otherwise. Exit code 1 when a target was missed or something could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from app.bench.figures import Figure, table
from app.bench.machine import Others
from engine.paths import HOME


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often is measured."""

    answers: int = 12
    stream_s: float = 60.0
    messages: int = 1_000
    long_chat: int = 2_000
    opens: int = 9
    starts: int = 7
    pairs: int = 9
    soak_min: float = 3.0


PATIENCE_S = 600.0
"""For one measurement, the length of the soak apart."""
QUICK = Plan(answers=3, stream_s=10.0, opens=5, starts=3, pairs=3, soak_min=0.5)


def _demo(plan: Plan) -> list[Figure]:
    from app.bench.frames import measure_demo  # noqa: PLC0415 (Qt, once the platform is chosen)

    return measure_demo(plan.answers)


def _scripted(plan: Plan) -> list[Figure]:
    from app.bench.frames import measure_scripted  # noqa: PLC0415

    return measure_scripted(plan.stream_s, plan.messages)


def _opening(plan: Plan) -> list[Figure]:
    from app.bench.frames import measure_opening  # noqa: PLC0415

    return measure_opening(plan.long_chat, plan.opens)


def _startup(plan: Plan) -> list[Figure]:
    from app.bench.startup import measure_startup  # noqa: PLC0415

    return measure_startup(plan.starts)


def _overhead(plan: Plan) -> list[Figure]:
    from app.bench.overhead import measure_overhead  # noqa: PLC0415

    return measure_overhead(plan.pairs)


def _store(plan: Plan) -> list[Figure]:
    from app.bench.store import measure_store  # noqa: PLC0415

    timings = measure_store(long_chat=plan.long_chat)
    return [
        Figure("history of 10,000 messages", t.name, t.median_ms, "ms", t.limit_ms, f"worst {t.worst_ms:.1f} ms")
        for t in timings
    ]


def _soak(plan: Plan) -> list[Figure]:
    from app.bench.soak import measure_soak  # noqa: PLC0415

    return measure_soak(plan.soak_min)


MEASUREMENTS: Mapping[str, Callable[[Plan], list[Figure]]] = {
    "startup": _startup,
    "demo": _demo,
    "scripted": _scripted,
    "opening": _opening,
    "overhead": _overhead,
    "store": _store,
    "soak": _soak,
}


def main(argv: Sequence[str]) -> int:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(prog="python -m app.bench", description="Measures the window against its targets.")
    parser.add_argument("--quick", action="store_true", help="shorter and fewer of everything")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="length of the soak (default: 3, quick: 0.5)")
    parser.add_argument("--only", nargs="+", choices=list(MEASUREMENTS), metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--json", action="store_true", help="print a JSON list of the figures instead of the table")
    parser.add_argument("--here", choices=list(MEASUREMENTS), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    plan = QUICK if args.quick else Plan()
    if args.soak is not None:
        plan = Plan(**{**asdict(plan), "soak_min": args.soak})
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    if args.here:
        sys.stdout.write(json.dumps([asdict(figure) for figure in MEASUREMENTS[args.here](plan)]))
        return 0
    figures: list[Figure] = []
    broken: list[str] = []
    disturbed: list[tuple[float, str]] = []
    for name in args.only or MEASUREMENTS:
        sys.stderr.write(f"{name} … ")
        sys.stderr.flush()
        began, others = time.monotonic(), Others()
        try:
            found = _apart(name, argv, PATIENCE_S + 60 * plan.soak_min)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            sys.stderr.write(f"{error}\n")
            broken.append(name)
            continue
        taken = others.percent()
        figures += found
        disturbed += [] if taken is None else [(taken, name)]
        sys.stderr.write(f"{time.monotonic() - began:.0f} s (load of the machine {os.getloadavg()[0]:.1f})\n")
    if disturbed:
        figures.append(_disturbance(disturbed))
    if args.json:
        rows = [{**asdict(figure), "met": figure.met} for figure in figures]
        sys.stdout.write(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    else:
        sys.stdout.write(table(figures) + "\n")
    return 0 if not broken and all(figure.met for figure in figures) else 1


def _disturbance(taken: Sequence[tuple[float, str]]) -> Figure:
    """What other programs had of the processors meanwhile: the more, the less the figures are the window's."""
    worst, name = max(taken)
    note = f"during {name}; median {statistics.median(share for share, _ in taken):.1f} %, {os.cpu_count()} processors"
    return Figure("machine", "busy with other programs, worst", worst, "%", None, note)


def _apart(name: str, argv: Sequence[str], limit: float) -> list[Figure]:
    """One measurement in a process and a home of its own."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "app.bench", *argv, "--here", name]
        done = subprocess.run(
            command, env={**os.environ, HOME: home}, stdout=subprocess.PIPE, check=True, timeout=limit
        )
    return [Figure(**row) for row in json.loads(done.stdout)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""kill -9 at random moments: the loop, and what every place where it happens has to offer."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = ("chat_victim", "convert_victim", "download_victim", "migrate_victim", "move_victim")
_STUCK_S = 60.0
"""A child that has not got anywhere after so long is a failure of its own."""


@dataclass
class Tally:
    """What came of the kills in one place."""

    place: str
    kills: int = 0
    busy: int = 0
    """Kills of a process that was at work; the others were starting or just ending."""
    losses: list[str] = field(default_factory=list)
    """What is gone, half-written or does not start, one sentence each."""
    seconds: float = 0.0
    note: str = ""


class Place(ABC):
    """Something that is killed. `start` and `check` alternate; after `close` everything was seen to its end.

    Attributes:
        span: seconds within which a child that is at work is killed.
    """

    name: str
    span: float

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self.dice = dice
        self.losses: list[str] = []
        folder.mkdir(parents=True)

    @abstractmethod
    def start(self) -> BaseProcess:
        """A child that goes on with what was killed, or begins something new."""

    @abstractmethod
    def is_busy(self) -> bool:
        """Whether the child does what it is to be killed in."""

    @abstractmethod
    def check(self) -> None:
        """Look at what a child left that was killed, or that ended."""

    @abstractmethod
    def close(self) -> None:
        """Let things come to their end and look at them once more."""

    def note(self) -> str:
        """What else is worth a column."""
        return ""


def forked() -> multiprocessing.context.ForkServerContext:
    """Children from a server that has imported everything: starting takes no second, and many kills hit the work."""
    # Python 3.11 does not tell the server the path.
    paths = [ROOT, ROOT / "tests" / "hub", ROOT / "tests" / "faults"]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    sys.path[:0] = [str(path) for path in paths if str(path) not in sys.path]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(VICTIMS))
    return context


def kill(place: Place, kills: int) -> Tally:
    """Kill the children of a place so many times, then let the last one end."""
    tally, began = Tally(place.name), time.monotonic()
    while tally.kills < kills:
        child = place.start()
        # However slow the machine, most kills hit the work.
        if place.dice.random() < 0.9:
            wait(child, place)
        child.join(place.dice.uniform(0, place.span))
        if child.exitcode is None:
            tally.busy += place.is_busy()
            child.kill()
            child.join()
            tally.kills += 1
        elif child.exitcode != 0:
            place.losses.append(f"a child ended with exit code {child.exitcode}")
            break
        place.check()
    place.close()
    tally.losses = place.losses
    tally.note = place.note()
    tally.seconds = time.monotonic() - began
    return tally


def duration(place: Place, afresh: Callable[[], object]) -> float:
    """Seconds that a child is at work until it ends, of one that found its modules and files warm.

    Args:
        afresh: sets up once more what a child works on.
    """
    for run in range(2):
        if run:
            afresh()
        child = place.start()
        wait(child, place)
        began = time.monotonic()
        child.join()
    return time.monotonic() - began


def wait(child: BaseProcess, place: Place) -> None:
    """Return once the child is busy or has ended."""
    end = time.monotonic() + _STUCK_S
    while child.is_alive() and not place.is_busy():
        if time.monotonic() > end:
            place.losses.append(f"a child was not at work after {_STUCK_S:.0f} s")
            return
        time.sleep(0.004)


def table(tallies: Sequence[Tally]) -> str:
    """The tallies as lines of text."""
    lines = [f"{'place':<14}{'kills':>6}{'at work':>9}{'losses':>8}{'time':>9}  note"]
    total = Tally("together")
    for tally in tallies:
        lines.append(_row(tally))
        total.kills += tally.kills
        total.busy += tally.busy
        total.losses += tally.losses
        total.seconds += tally.seconds
    return "\n".join([*lines, _row(total)])


def _row(tally: Tally) -> str:
    return (
        f"{tally.place:<14}{tally.kills:>6}{tally.busy:>9}{len(tally.losses):>8}{tally.seconds:>7.0f} s  {tally.note}"
    ).rstrip()

"""Kills the program at random moments of chatting, downloading, converting, migrating a history and moving models, and
looks what is lost:

    python tests/faults [KILLS] [--seed N] [--only PLACE]

200 kills by default, a fifth in each place; some of those while chatting hit the bundled model, the others a scripted
one that is faster. Prints a table. Exit code 0 when nothing was lost and everything started again, else 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from killing import Place, forked, kill, table

DEMO_SHARE = 10
"""One in so many kills while chatting is of the bundled model, which takes seconds to load."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/faults", description="Kills the program and looks what is lost.")
    parser.add_argument("kills", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument(
        "--only", metavar="PLACE", help="one place: chatting, downloading, converting, migrating or moving"
    )
    args = parser.parse_args()
    context = forked()
    from kill_chat import Chatting
    from kill_convert import Converting
    from kill_download import Downloading
    from kill_migrate import Migrating
    from kill_move import Moving

    makers: dict[str, Callable[[Path, random.Random], Place]] = {
        "chatting": lambda folder, dice: Chatting(folder, dice, context),
        "chatting, demo": lambda folder, dice: Chatting(folder, dice, context, scripted=False),
        "downloading": lambda folder, dice: Downloading(folder, dice, context),
        "converting": lambda folder, dice: Converting(folder, dice, context),
        "migrating": lambda folder, dice: Migrating(folder, dice, context),
        "moving": lambda folder, dice: Moving(folder, dice, context),
    }
    makers = {name: make for name, make in makers.items() if args.only in (None, name.split(",")[0])}
    each = args.kills // len({name.split(",")[0] for name in makers})
    demo = each // DEMO_SHARE
    counts = {"chatting": each - demo, "chatting, demo": demo}
    print(f"seed {args.seed}")
    tallies = []
    with tempfile.TemporaryDirectory(prefix="inkstand-faults-") as home:
        for name, make in makers.items():
            place = make(Path(home) / name.replace(", ", "-"), random.Random(f"{args.seed} {name}"))
            tallies.append(kill(place, counts.get(name, each)))
            print(f"{name}: {tallies[-1].kills} kills, {len(tallies[-1].losses)} losses", file=sys.stderr)
    print(table(tallies))
    for tally in tallies:
        for loss in tally.losses[:20]:
            print(f"{tally.place}: {loss}")
    return 1 if any(tally.losses for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())

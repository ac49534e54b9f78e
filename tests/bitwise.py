"""Run with OpenBLAS off: prints, per case, how far speculated caches lie from plain ones (a JSON object).

The sequence passes the sliding window of 8, the bias extent of 16 and the key alignment of 64 several times.
"""

from __future__ import annotations

import json

from engine import BLAS
from engine.decode.chained import ChainedDrafter
from engine.decode.stateful import StatefulDrafter
from tests.support import cache_distance, run, scripted, tiny_head


def main() -> None:
    assert BLAS.state == "off", BLAS
    plain = run(150)
    distances = {}
    for rollback in ("trim", "replay"):
        for name, share in (("right", 1.0), ("wrong", 0.0), ("mixed", 0.6)):
            for drafts in (1, 4):
                result = run(150, drafter=scripted(plain.ids, share), drafts=lambda _, k=drafts: k, rollback=rollback)
                assert result.ids == plain.ids
                distances[f"{rollback} {name} {drafts}"] = cache_distance(result.target, plain.target)
            widths = [0, 1, 3, 2]
            head = {"right": StatefulDrafter, "wrong": ChainedDrafter}.get(name)
            drafter = head(tiny_head()) if head else scripted(plain.ids, share, seed=1)
            result = run(150, drafter=drafter, drafts=lambda step, w=widths: w[step % 4], rollback=rollback)
            assert result.ids == plain.ids
            distances[f"{rollback} {name} changing"] = cache_distance(result.target, plain.target)
    print(json.dumps(distances))


if __name__ == "__main__":
    main()

"""Checks the engine on the original demo checkpoint against the figures of an independent implementation.

    python packaging/check_reference.py SHARED

SHARED holds demo_checkpoint/ and golden/demo_reference.json: greedy token ids of some prompts, and rounds and accepted
drafts for each number of drafts per round. Prints a line per case and number of drafts and exits with 1 on a
difference: other token ids; other counts in a case without a near-tie; or counts that differ by more than 2 % in sum.
The mean tokens per round of the chained schedule are compared with the published ones as well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.decode.options import GenerationOptions
from engine.events import Failed, Finished, Generation
from engine.loaded import Engine
from engine.model.mtp import Wiring
from engine.session import Session

CHAINED = {3: 2.73, 6: 3.38}
"""Block size -> mean tokens per round, with pre-norm hidden and raw embedding."""


def answer(session: Session, case: dict[str, Any]) -> Generation:
    """The session's greedy continuation of the case's prompt, of the reference's length."""
    options = GenerationOptions(max_tokens=len(case["greedy_ids"]))
    for event in session.continue_ids(case["prompt_ids"], options):
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Finished):
            return event.generation
    raise AssertionError("no terminal event")


def check_stateful(engine: Engine, cases: Sequence[dict[str, Any]]) -> list[str]:
    """What differs in the default schedule, as lines."""
    wrong: list[str] = []
    for drafts in range(engine.head_depths + 1):
        ours, theirs = 0, 0
        for case in cases:
            session = Session(engine, block_size=drafts + 1 if drafts else None, drafting=drafts > 0)
            got = answer(session, case)
            stats, label = got.stats, f"{drafts} drafts: {case['prompt']}"
            if list(got.token_ids) != case["greedy_ids"]:
                wrong.append(f"{label}: other token ids")
            if not drafts:
                continue
            stated = case["fixed_draft_depth"][str(drafts)]
            ours, theirs = ours + stats.accepted, theirs + stated["accepted"]
            counts = (stats.rounds, stats.accepted)
            print(f"{label}: rounds, accepted {counts}, near-ties {stats.near_ties}")
            if counts != (stated["rounds"], stated["accepted"]) and not stats.near_ties:
                wrong.append(f"{label}: {counts}, the reference has {stated['rounds']}, {stated['accepted']}")
        if abs(ours - theirs) > 0.02 * theirs:
            wrong.append(f"{drafts} drafts: {ours} accepted in all, the reference has {theirs}")
    return wrong


def check_chained(engine: Engine, cases: Sequence[dict[str, Any]]) -> list[str]:
    """What differs in the chained schedule, as lines."""
    wrong: list[str] = []
    rewired = engine.rewired(Wiring(hidden="pre_norm", embedding="raw"))
    for block_size, stated in CHAINED.items():
        lengths: list[float] = []
        for case in cases:
            got = answer(Session(rewired, schedule="chained", block_size=block_size), case)
            if list(got.token_ids) != case["greedy_ids"]:
                wrong.append(f"chained, block {block_size}: {case['prompt']}: other token ids")
            lengths.append((len(got.token_ids) - 1) / got.stats.rounds)
        mean = statistics.mean(lengths)
        print(f"chained, block {block_size}: {mean:.3f} tokens per round, published {stated}")
        if abs(mean - stated) > 0.02 * stated:
            wrong.append(f"chained, block {block_size}: {mean:.3f} tokens per round, published {stated}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the engine against the original demo checkpoint.")
    parser.add_argument("shared", type=Path)
    shared: Path = parser.parse_args().shared
    cases = json.loads((shared / "golden" / "demo_reference.json").read_text())["cases"]
    engine = Engine.load(shared / "demo_checkpoint", dtype="f32", draft_kind="mtp", draft_vocabulary="full")
    wrong = check_stateful(engine, cases) + check_chained(engine, cases)
    print("\n".join(wrong) if wrong else "all equal to the reference")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

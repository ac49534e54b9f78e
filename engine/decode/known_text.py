"""How a drafter would do on a text that is known already, without running the target again for every round."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import mlx.core as mx

from engine.decode.drafter import Drafter
from engine.decode.sampler import Sampler
from engine.decode.target import PREFILL_CHUNK, Target
from engine.model.backbone import Backbone
from engine.stats import StatsRecorder
from engine.values import to_ints


def hidden_rows(backbone: Backbone, ids: Sequence[int]) -> mx.array:
    """The pre-norm hidden states [1, len(ids), H] of one pass over `ids`."""
    rows: list[mx.array] = []
    for _ in Target(backbone).prefill(ids, PREFILL_CHUNK, lambda hidden, _ids: rows.append(hidden)):
        pass
    return mx.concatenate(rows, axis=1)


def replay_rounds(
    drafter: Drafter,
    sampler: Sampler,
    hidden: mx.array,
    ids: Sequence[int],
    *,
    start: int,
    drafts: int,
    recorder: StatsRecorder,
) -> None:
    """Lets `drafter` guess its way through a greedy continuation and records its rounds.

    The target would emit `ids[start:]` whatever the drafts, so a round accepts the drafts that agree with it and the
    next one starts after the first that does not: the rounds are those of a real run, up to near-ties.

    Args:
        drafter: fresh, or reset.
        sampler: a greedy one.
        hidden: the target's pre-norm hidden [1, L, H] of at least `ids[:-1]`.
        start: length of the prompt in `ids`, at least 1.
        drafts: drafts per round, at least 1.
    """
    drafter.prepare(drafts)
    for low in range(0, start, PREFILL_CHUNK):
        drafter.extend(hidden[:, low : min(low + PREFILL_CHUNK, start)], ids[:start])
    known = start + 1
    while known < len(ids):
        draft = drafter.propose(ids[:known], drafts, sampler)
        mx.eval(draft.tokens, drafter.arrays)
        truth = ids[known : known + drafts]
        pairs = zip(to_ints(draft.tokens), truth, strict=False)
        accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        drafter.settle(accepted)
        recorder.round(drafts, accepted, 0.0)
        row, known = known - 1, min(known + accepted + 1, len(ids))
        drafter.extend(hidden[:, row : known - 1], ids[:known])

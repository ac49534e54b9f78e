"""Whatever happens to a session, its caches equal those of a fresh prefill."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.decode.options import GenerationOptions
from engine.decode.sampler import Sampler
from engine.decode.stateful import StatefulDrafter
from engine.events import TERMINAL, Finished, RoundDone
from engine.session import Session
from tests.support import PROMPT, TINY_VOCAB, cache_distance, layer_distance, prefilled, tiny, tiny_head

TURN = st.fixed_dictionaries(
    {
        "new": st.lists(st.integers(4, 249), min_size=1, max_size=6),
        "count": st.integers(1, 24),
        "widths": st.lists(st.sampled_from([0, 2, 3, 4]), min_size=1, max_size=5),
        "cancel": st.one_of(st.none(), st.integers(0, 8)),
        "edit": st.sampled_from(["continue", "regenerate", "replace", "cut"]),
        "stop": st.booleans(),
    }
)


def assert_fresh(session: Session) -> None:
    """Trunk and MTP caches equal those of a session that saw the committed ids in one prefill."""
    target, drafter = session.target, session.drafter
    if not target.ids:
        return
    fresh = prefilled(target.ids[: target.position])
    assert cache_distance(target, fresh) < 1e-4
    assert isinstance(drafter, StatefulDrafter)
    reference = StatefulDrafter(tiny_head())
    for _ in prefilled_with(target.ids, target.position, reference):
        pass
    reference.propose(target.ids, reference.max_drafts, Sampler(GenerationOptions(), TINY_VOCAB, []))
    for depth, (mine, other) in enumerate(zip(drafter.caches, reference.caches, strict=True)):
        assert mine.offset <= max(0, len(target.ids) - 1 - depth)
        other.trim(other.offset - mine.offset) if other.offset - mine.offset <= depth else None
        if other.offset == mine.offset and mine.kv.start == 0:
            assert layer_distance(mine, other) < 1e-4


def prefilled_with(ids: Sequence[int], rows: int, drafter: StatefulDrafter) -> list[None]:
    """`drafter` follows a prefill of the first `rows` of `ids`."""
    from engine.decode.target import Target

    target = Target(tiny().backbone)
    drafter.prepare(3)
    hidden_parts = target.prefill(list(ids[:rows]), 512, lambda hidden, _: drafter.extend(hidden, ids))
    return [None for _ in hidden_parts]


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(turns=st.lists(TURN, min_size=1, max_size=4), seed=st.integers(0, 99))
def test_caches_equal_a_fresh_prefill_after_any_history(turns: list[dict[str, object]], seed: int) -> None:
    session, rng = Session(tiny()), random.Random(seed)
    history, before = list(PROMPT), list(PROMPT)
    for turn in turns:
        if turn["edit"] == "continue":
            history = [*history, *turn["new"]]
        elif turn["edit"] == "replace":
            history = [*before, *turn["new"]]
        elif turn["edit"] == "cut":
            history = history[: rng.randint(1, len(history))]
        before = list(history)
        history = play(session, history, turn)
        assert_fresh(session)


def play(session: Session, ids: list[int], turn: dict[str, object]) -> list[int]:
    """One turn with changing widths, switches, a stop or a cancel; the history after it."""
    cancel, widths, index, stops = threading.Event(), turn["widths"], 0, ()
    if turn["stop"]:
        stops = ("e",)
    last = None
    for event in session.continue_ids(ids, GenerationOptions(max_tokens=turn["count"], stop=stops), cancel=cancel):
        last = event
        if not isinstance(event, RoundDone):
            continue
        width = widths[index % len(widths)]
        session.set_drafting(width > 0)
        if width:
            session.set_block_size(width)
        if index == turn["cancel"]:
            cancel.set()
        index += 1
    assert isinstance(last, TERMINAL)
    if isinstance(last, Finished):
        expected = Session(tiny(), drafting=False)
        plain = list(expected.continue_ids(ids, GenerationOptions(max_tokens=turn["count"], stop=stops)))[-1]
        assert plain.generation.token_ids == last.generation.token_ids
        assert cache_distance(session.target, expected.target) < 1e-4
    return [*ids, *last.generation.token_ids]

"""Sessions: turns that reuse what was computed, switches and cancels, exact ends, statistics."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import pytest

from engine.cache import ALIGN
from engine.decode.chained import ChainedDrafter
from engine.decode.depth import LOOKED_AT, DepthPolicy
from engine.decode.options import GenerationOptions
from engine.decode.stateful import StatefulDrafter
from engine.errors import PromptError
from engine.events import (
    TERMINAL,
    Cancelled,
    DraftStatus,
    Event,
    Failed,
    Finished,
    Generation,
    Notice,
    PrefillProgress,
    RoundDone,
)
from engine.session import Session
from tests.support import PROMPT, TINY_VOCAB, ScriptedDrafter, cache_distance, prefilled, run, scripted, tiny

FOLLOW_UP = [7, 99, 31, 180]


def session(**options: object) -> Session:
    """Drafts at every depth each round unless told otherwise: what pays depends on the clock."""
    options.setdefault("block_size", 5 if options.get("schedule") == "chained" else 4)
    return Session(tiny(), **options)


def events_of(made: Session, ids: Sequence[int], count: int | None = 30, **options: object) -> list[Event]:
    return list(made.continue_ids(ids, GenerationOptions(max_tokens=count, **options)))


def answer(made: Session, ids: Sequence[int], count: int | None = 30, **options: object) -> Generation:
    last = events_of(made, ids, count, **options)[-1]
    assert isinstance(last, Finished), last
    return last.generation


def assert_consistent(made: Session) -> None:
    """The caches hold what a prefill of the same ids holds, and so do the drafter's."""
    target = made.target
    assert target.position in (len(target.ids), len(target.ids) - 1)
    assert cache_distance(target, prefilled(target.ids[: target.position])) < 1e-4


@pytest.mark.parametrize("drafting", [True, False])
def test_a_warm_turn_equals_a_cold_one_and_prefills_only_what_is_new(drafting: bool) -> None:
    warm = session(drafting=drafting)
    first = answer(warm, PROMPT)
    ids = [*PROMPT, *first.token_ids, *FOLLOW_UP]
    second = answer(warm, ids)
    assert second.stats.cached_tokens == len(PROMPT) + len(first.token_ids) - 1
    cold = answer(session(drafting=drafting), ids)
    assert second.token_ids == cold.token_ids
    assert cold.stats.cached_tokens == 0
    assert_consistent(warm)


def test_regenerating_prefills_nothing() -> None:
    made = session()
    first = answer(made, PROMPT)
    ids = [*PROMPT, *first.token_ids, *FOLLOW_UP]
    second = answer(made, ids)
    events = events_of(made, ids)
    assert not any(isinstance(event, PrefillProgress) for event in events)
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.generation.token_ids == second.token_ids
    assert last.generation.stats.cached_tokens == len(ids)
    assert last.generation.stats.prefill_tps is None
    assert_consistent(made)


def test_an_edited_turn_prefills_from_the_last_common_turn() -> None:
    made = session()
    first = answer(made, PROMPT)
    history = [*PROMPT, *first.token_ids]
    answer(made, [*history, *FOLLOW_UP], 60)
    edited = [*history, 8, 8, 200]
    result = answer(made, edited)
    assert result.stats.cached_tokens == len(history) - 1
    assert result.token_ids == answer(session(), edited).token_ids
    # And back to the first version: its turn is gone, the one before it is not.
    again = answer(made, [*history, *FOLLOW_UP], 60)
    assert again.stats.cached_tokens == len(history) - 1
    assert_consistent(made)


def test_another_beginning_starts_over() -> None:
    made = session()
    answer(made, PROMPT)
    other = [3, *PROMPT[1:]]
    result = answer(made, other)
    assert result.stats.cached_tokens == 0
    assert result.token_ids == answer(session(), other).token_ids


def test_old_boundaries_are_dropped_and_a_far_edit_starts_over() -> None:
    made, history = session(), list(PROMPT)
    starts = []
    for turn in range(6):
        starts.append(list(history))
        history += [*answer(made, history, 5).token_ids, 20 + turn]
    assert answer(made, [*starts[5]], 5).stats.cached_tokens == len(starts[5])
    assert answer(made, [*starts[1], 9], 5).stats.cached_tokens == 0
    assert_consistent(made)


def test_answers_that_are_given_up_at_once_cost_no_boundary() -> None:
    made = session()
    history = [*PROMPT, *answer(made, PROMPT, 5).token_ids]
    ids = [*history, *FOLLOW_UP]
    answer(made, ids, 5)
    for _ in range(6):
        stream: Iterator[Event] = made.continue_ids([*made.target.ids, 9], GenerationOptions())
        next(stream)
        stream.close()
    assert answer(made, [*history, 8], 5).stats.cached_tokens == len(history) - 1


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("count", range(1, 13))
def test_max_tokens_ends_inside_a_block_where_plain_decoding_ends(count: int, share: float) -> None:
    reference = run(20).ids
    made = session(drafter=scripted(reference, share), block_size=5)
    result = answer(made, PROMPT, count)
    assert [*PROMPT, *result.token_ids] == reference[: len(PROMPT) + count]
    assert (result.finish_reason, result.stats.completion_tokens) == ("length", count)
    assert_consistent(made)
    ids = [*PROMPT, *result.token_ids, *FOLLOW_UP]
    assert answer(made, ids, 8).token_ids == answer(session(drafting=False), ids, 8).token_ids


@pytest.mark.parametrize("at", range(1, 13))
def test_a_stop_id_inside_a_block_ends_there(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = run(20).ids
    stop = reference[len(PROMPT) + at]
    if stop in reference[len(PROMPT) : len(PROMPT) + at]:
        pytest.skip("the token came earlier")
    made = session(drafter=scripted(reference, 1.0), block_size=5)
    monkeypatch.setattr(made.engine, "config", _with_stop(stop))
    result = answer(made, PROMPT, 100)
    assert [*PROMPT, *result.token_ids] == reference[: len(PROMPT) + at + 1]
    assert result.finish_reason == "stop"
    assert result.stats.accepted + result.stats.rounds + 1 >= result.stats.completion_tokens
    assert_consistent(made)


def _with_stop(stop: int) -> object:
    import dataclasses

    return dataclasses.replace(tiny().config, eos_token_ids=(stop,))


@pytest.mark.parametrize("length", range(58, 64))
def test_the_context_limit_ends_an_answer_cleanly(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = (PROMPT * 4)[:length]
    reference = run(64 - length, prompt=prompt).ids
    for drafting in (True, False):
        made = session(context=64, drafting=drafting, block_size=4)
        read = positions_read(made, monkeypatch)
        events = events_of(made, prompt, None)
        last = events[-1]
        assert isinstance(last, Finished)
        assert last.generation.finish_reason == "context"
        assert [*prompt, *last.generation.token_ids] == reference
        assert max(read) < 64
        assert any(isinstance(event, Notice) and "64 tokens is full" in event.message for event in events)


def positions_read(made: Session, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the last position of every forward, of drafts that fall as well."""
    read, forward = [], made.target.forward

    def watched(tokens: mx.array) -> mx.array:
        read.append(made.target.position + tokens.shape[0] - 1)
        return forward(tokens)

    monkeypatch.setattr(made.target, "forward", watched)
    return read


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers() -> None:
    made = session(context=20)
    last = events_of(made, PROMPT)[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, PromptError)
    assert "21 tokens" in str(last.error)
    assert "20" in str(last.error)
    assert f"a longer context (`--context`): it takes {made.engine.context}." in last.error.hint
    assert answer(made, PROMPT[:10], 5).stats.completion_tokens == 5


def test_a_prompt_beyond_what_the_model_takes_is_not_sent_for_a_longer_context() -> None:
    made = session(context=20)
    (last,) = events_of(made, PROMPT * (1 + made.engine.context // len(PROMPT)))
    assert isinstance(last, Failed)
    assert isinstance(last.error, PromptError)
    assert last.error.hint == "Shorten the prompt or start a new conversation."


@pytest.mark.parametrize("schedule", ["stateful", "chained"])
def test_switching_in_the_middle_of_an_answer_does_not_change_it(schedule: str) -> None:
    reference = answer(session(drafting=False), PROMPT, 120)
    made, seen = session(schedule=schedule), []
    for index, event in enumerate(made.continue_ids(PROMPT, GenerationOptions(max_tokens=120))):
        seen.append(event)
        if index % 7 == 3:
            made.set_drafting(not made.drafting)
        if index % 11 == 5:
            made.set_block_size(2 + index % 3)
    last = seen[-1]
    assert isinstance(last, Finished)
    assert last.generation.token_ids == reference.token_ids
    stats = last.generation.stats
    assert stats.rounds > 5
    assert stats.plain_steps > 5
    assert sum(isinstance(event, DraftStatus) for event in seen) > 4
    assert_consistent(made)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5])  # 3: the whole prompt is read, and nothing is known of what follows
def test_cancel_takes_effect_at_once_and_leaves_the_session_usable(after: int) -> None:
    made, cancel = session(prefill_chunk=8), threading.Event()
    stream, events = made.continue_ids(PROMPT, GenerationOptions(max_tokens=100), cancel=cancel), []
    for event in stream:
        events.append(event)
        if len(events) == after + 1:
            cancel.set()
    last = events[-1]
    assert isinstance(last, Cancelled)
    assert last.generation.finish_reason == "cancelled"
    rounds_after = [event for event in events[after + 1 :] if isinstance(event, RoundDone)]
    assert len(rounds_after) <= 1
    assert_consistent(made)
    reference = answer(session(), PROMPT)
    assert answer(made, PROMPT).token_ids == reference.token_ids


def test_a_consumer_that_walks_away_leaves_the_session_usable() -> None:
    made = session()
    stream: Iterator[Event] = made.continue_ids(PROMPT, GenerationOptions(max_tokens=100))
    for event in stream:
        if isinstance(event, RoundDone) and event.drafted:
            break
    stream.close()
    assert_consistent(made)
    assert answer(made, PROMPT).token_ids == answer(session(), PROMPT).token_ids


def test_metal_keeps_the_model_resident_while_an_answer_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [0]

    def set_limit(limit: int) -> int:
        limits.append(limit)
        return limits[-2]

    monkeypatch.setattr(mx, "set_wired_limit", set_limit)
    made = session()
    answer(made, PROMPT, 3)
    assert limits == [0]
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda device: {"max_recommended_working_set_size": 1000})
    stream: Iterator[Event] = made.continue_ids(PROMPT, GenerationOptions(max_tokens=3))
    next(stream)
    assert limits == [0, 1000]
    stream.close()
    assert limits == [0, 1000, 0]


def test_a_failure_inside_ends_with_an_event_and_a_fresh_session(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session()
    drafter = made.drafter
    assert isinstance(drafter, StatefulDrafter)
    with monkeypatch.context() as patch:
        patch.setattr(drafter, "settle", lambda accepted: 1 / 0)
        events = events_of(made, PROMPT)
    assert [type(event) for event in events if isinstance(event, TERMINAL)] == [Failed]
    assert answer(made, PROMPT).token_ids == answer(session(), PROMPT).token_ids


def test_block_sizes_are_clamped_to_the_head_and_told() -> None:
    made = session(block_size=9)
    status = answer(made, PROMPT, 5).draft
    assert (status.effective, status.block_size) == ("mtp", 4)
    assert status.reason is not None
    assert "9" in status.reason
    assert "3 depths" in status.reason
    assert session(schedule="chained").block_size == 5
    with pytest.raises(PromptError, match="block size of 1"):
        session(block_size=1)


def test_statistics_count_rounds_drafts_and_what_was_emitted() -> None:
    reference = run(60).ids
    made = session(drafter=scripted(reference, 0.6, seed=4), block_size=4)
    events = events_of(made, PROMPT, 50)
    rounds = [event for event in events if isinstance(event, RoundDone)]
    last = events[-1]
    assert isinstance(last, Finished)
    stats = last.generation.stats
    verified = [event for event in rounds if event.drafted]
    assert stats.rounds == len(verified)
    assert stats.drafted == 3 * stats.rounds
    assert stats.accepted == sum(event.accepted for event in verified)
    assert stats.completion_tokens == sum(len(event.token_ids) for event in rounds) == 50
    assert stats.acceptance_length == pytest.approx(1 + stats.accepted / stats.rounds)
    assert stats.acceptance_rate == pytest.approx(stats.accepted / stats.drafted)
    assert stats.per_position == tuple(sum(event.accepted > i for event in verified) / len(verified) for i in range(3))
    assert stats.ttft_s is not None
    assert stats.decode_tps is not None
    assert stats.ms_per_round is not None
    snapshots = [event.stats.completion_tokens for event in rounds]
    assert snapshots == sorted(snapshots)


def test_nothing_measured_is_none_and_not_zero() -> None:
    stats = answer(session(drafting=False), PROMPT, 5).stats
    assert (stats.rounds, stats.plain_steps) == (0, 4)
    assert stats.acceptance_length is stats.acceptance_rate is stats.per_position is stats.ms_per_round is None


def test_one_seed_gives_one_text_per_drafter_setting() -> None:
    options = {"temperature": 0.9, "top_p": 0.95, "seed": 11}
    for made in ({"drafting": False}, {"block_size": 3}, {"schedule": "chained"}):
        first, second = (answer(session(**made), PROMPT, 25, **options) for _ in range(2))
        assert first.token_ids == second.token_ids
    other = answer(session(drafting=False), PROMPT, 25, temperature=0.9, top_p=0.95, seed=12)
    assert other.token_ids != answer(session(drafting=False), PROMPT, 25, **options).token_ids


@pytest.mark.parametrize("schedule", ["stateful", "chained"])
def test_auto_takes_what_pays_and_changes_no_token(schedule: str) -> None:
    made = session(schedule=schedule, block_size=None)
    reference = answer(session(drafting=False), PROMPT, 120)
    for _ in range(2):
        events = events_of(made, PROMPT, 120)
        last = events[-1]
        assert isinstance(last, Finished)
        assert last.generation.token_ids == reference.token_ids
        status, stats = last.generation.draft, last.generation.stats
        assert (status.auto, status.effective, status.reason) == (True, "mtp", None)
        assert status.block_size == made.block_size == (5 if schedule == "chained" else 4)
        widths = [event.drafted for event in events if isinstance(event, RoundDone)][1:]
        # How many of which is up to the clock.
        assert stats.plain_steps == widths.count(0)
        assert stats.rounds + stats.plain_steps == len(widths)
        by_depth = stats.rounds_by_depth or ()
        assert by_depth == tuple(widths.count(k + 1) for k in range(len(by_depth)))
        assert sum(by_depth) == stats.rounds
        assert sum(k * rounds for k, rounds in enumerate(by_depth, 1)) == stats.drafted
        assert_consistent(made)
    made.set_block_size(3)
    fixed = answer(made, PROMPT, 40)
    assert not fixed.draft.auto
    assert fixed.stats.rounds_by_depth == (0, fixed.stats.rounds)


def test_the_policy_hears_of_every_answer_and_of_every_step_that_measures_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temperatures: list[float] = []
    steps: list[tuple[int, int, bool]] = []

    class Recorded(DepthPolicy):
        def begin(self, temperature: float = 0.0) -> None:
            temperatures.append(temperature)
            super().begin(temperature)

        def learn(self, drafted: int, accepted: int, seconds: float, *, whole: bool = True) -> None:
            steps.append((drafted, accepted, whole))
            super().learn(drafted, accepted, seconds, whole=whole)

    monkeypatch.setattr("engine.session.DepthPolicy", Recorded)
    made = session(block_size=None)
    for temperature in (0.7, 0.0):
        steps.clear()
        events = events_of(made, PROMPT, 30, temperature=temperature)
        # Not of the prefill's token, and not of a step that an end cut short.
        decoded = [event for event in events if isinstance(event, RoundDone)][1:-1]
        assert [step[:2] for step in steps] == [(event.drafted, event.accepted) for event in decoded]
        assert all(whole for drafted, _, whole in steps if drafted)
        if temperature:  # the session's first step is plain, and starts the second one's forward as well
            assert steps[0] == (0, 0, False)
    assert temperatures == [0.7, 0.0]


def test_auto_drafts_where_drafts_stand() -> None:
    made = session(drafter=scripted(run(200).ids, 1.0), block_size=None)
    result = answer(made, PROMPT, 150)
    assert result.stats.rounds > result.stats.plain_steps
    assert (result.stats.acceptance_length or 0) > 3


@dataclass
class TellingDrafter(ScriptedDrafter):
    """Tells in hindsight what it would have guessed."""

    asked: list[int] = field(default_factory=list)

    def hindsight(self, ids: Sequence[int], count: int) -> mx.array:
        self.asked.append(count)
        return mx.eye(TINY_VOCAB)[mx.array([self.guess(at) for at in range(len(ids) - count, len(ids))])]


def test_auto_gets_drafts_back_by_what_the_drafter_tells_in_hindsight() -> None:
    reference, turn = run(360).ids, len(PROMPT) + 90
    drafter = TellingDrafter(lambda at: reference[at] if at >= turn else (reference[at] + 1) % TINY_VOCAB)
    made = session(drafter=drafter, block_size=None)
    at, drafted = len(PROMPT), list[int]()
    for event in events_of(made, PROMPT, 320):
        if isinstance(event, RoundDone):
            drafted += [at] * (event.drafted > 0)
            at += len(event.token_ids)
    assert made.target.ids == reference[: len(made.target.ids)]
    assert sum(turn - 50 <= at < turn for at in drafted) <= 2
    assert sum(at >= turn for at in drafted) > 5
    assert 0 < max(drafter.asked) <= LOOKED_AT
    drafter.asked.clear()
    made.set_drafting(False)
    events_of(made, (*made.target.ids, 5), 60)
    made.set_drafting(True)
    made.set_block_size(3)
    events_of(made, (*made.target.ids, 5), 20)
    assert not drafter.asked


@pytest.mark.parametrize("count", range(31, 37))
def test_auto_drafts_no_more_than_the_answer_may_still_take(count: int) -> None:
    made = session(drafter=scripted(run(200).ids, 1.0), block_size=None)
    events = events_of(made, PROMPT, count)
    left = count
    for event in events:
        if isinstance(event, RoundDone):
            assert event.drafted < left
            left -= len(event.token_ids)
    assert left == 0


def test_no_forward_is_begun_beyond_the_last_token(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(drafting=False)
    forwards = 0
    forward = made.target.forward

    def counted(tokens: mx.array) -> mx.array:
        nonlocal forwards
        forwards += 1
        return forward(tokens)

    monkeypatch.setattr(made.target, "forward", counted)
    events_of(made, PROMPT, 12)
    assert forwards == 1 + 11  # the prompt's gives the first token


@pytest.mark.slow
def test_long_prompts_keep_the_history_of_every_depth() -> None:
    """A prompt far beyond the log of hidden rows is primed while it is read, whatever the chunk."""
    prompt = (PROMPT * 80)[:1500]
    lengths = {}
    for chunk in (512, 100):
        made = session(prefill_chunk=chunk)
        lengths[chunk] = answer(made, prompt, 20).token_ids
        drafter = made.drafter
        assert isinstance(drafter, StatefulDrafter)
        assert all(cache.kv.start == 0 for cache in drafter.caches)
    assert lengths[512] == lengths[100]


@pytest.mark.slow
def test_a_drafter_that_was_off_for_long_is_primed_over_the_last_rows() -> None:
    prompt = (PROMPT * 80)[:1600]
    made = session(drafting=False, prefill_chunk=128)
    first = answer(made, prompt, 5)
    made.set_drafting(True)
    ids = [*prompt, *first.token_ids, 4]
    second = answer(made, ids, 30)
    drafter = made.drafter
    assert isinstance(drafter, StatefulDrafter)
    assert all(1024 - 64 <= len(ids) - cache.kv.start <= 1024 + 64 + 128 for cache in drafter.caches)
    assert second.stats.rounds > 0
    assert second.token_ids == answer(session(drafting=False), ids, 30).token_ids


def test_a_chained_drafter_that_was_off_for_long_follows_from_the_last_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.decode.chained.PRIME_ROWS", 64)
    prompt = (PROMPT * 20)[:300]
    made = session(schedule="chained", drafting=False, prefill_chunk=16)
    ids = [*prompt, *answer(made, prompt, 5).token_ids, 4]
    made.set_drafting(True)
    result = answer(made, ids, 20)
    drafter = made.drafter
    assert isinstance(drafter, ChainedDrafter)
    assert 64 <= len(ids) - drafter.caches[0].kv.start <= 64 + ALIGN + 16
    assert result.stats.rounds > 0
    assert result.token_ids == answer(session(drafting=False), ids, 20).token_ids


@pytest.mark.parametrize("schedule", ["stateful", "chained"])
@pytest.mark.parametrize("drafting", [True, False])
def test_the_head_reads_a_prompt_before_the_first_token(schedule: str, drafting: bool) -> None:
    """Or else the first round would pay for it. Row p of depth d needs the token after it, p + 1 + d."""
    made = session(schedule=schedule, drafting=drafting)
    events = made.continue_ids(PROMPT, GenerationOptions(max_tokens=5))
    next(event for event in events if isinstance(event, RoundDone))
    assert made.drafter is not None
    read = [cache.offset for cache in made.drafter.caches]
    if drafting:
        assert read == [len(PROMPT) - 1 - d if schedule == "stateful" or d == 0 else 0 for d in range(3)]
    else:
        assert read == [0, 0, 0]
    list(events)


def test_the_chained_schedule_restores_the_deeper_blocks_each_round() -> None:
    made = session(schedule="chained")
    answer(made, PROMPT, 40)
    drafter = made.drafter
    assert isinstance(drafter, ChainedDrafter)
    assert [cache.offset for cache in drafter.caches[1:]] == [0, 0]
    assert drafter.caches[0].offset >= len(made.target.ids) - 6


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["stateful", "chained"])
@pytest.mark.parametrize(("length", "chunk"), [(21, 512), (350, 512), (700, 128)])
def test_regenerating_after_a_long_answer_goes_back_over_a_moved_window(schedule: str, length: int, chunk: int) -> None:
    """At the boundary the drafter, off until then, had not read the prompt; by the end its windows have moved on."""
    prompt = (PROMPT * 40)[:length]
    made = session(schedule=schedule, prefill_chunk=chunk, drafting=False)
    events = made.continue_ids(prompt, GenerationOptions(max_tokens=500))
    next(event for event in events if isinstance(event, RoundDone))
    made.set_drafting(True)
    last = list(events)[-1]
    assert isinstance(last, Finished)
    first = last.generation
    again = answer(made, prompt, 40)
    assert again.token_ids == first.token_ids[:40]
    assert again.stats.cached_tokens == length
    fresh = answer(session(schedule=schedule), prompt, 40)
    assert (again.stats.rounds, again.stats.accepted) == (fresh.stats.rounds, fresh.stats.accepted)
    assert_consistent(made)


@pytest.mark.slow
def test_a_rewind_behind_a_new_priming_drafts_as_a_fresh_session() -> None:
    """A global depth that lost its old keys is primed again from the log, and so is what reads its rows."""
    prompt = (PROMPT * 40)[:700]
    made = session(prefill_chunk=128)
    made.set_drafting(True)
    steps = 0
    for event in made.continue_ids(prompt, GenerationOptions(max_tokens=1300)):
        steps += isinstance(event, RoundDone)
        made.set_drafting(steps < 8 or steps > 1200)
    drafter = made.drafter
    assert isinstance(drafter, StatefulDrafter)
    assert drafter.caches[1].kv.start > 0
    again = answer(made, prompt, 60)
    fresh = answer(session(prefill_chunk=128), prompt, 60)
    assert again.token_ids == fresh.token_ids
    assert (again.stats.rounds, again.stats.per_position) == (fresh.stats.rounds, fresh.stats.per_position)


def test_a_chained_block_is_as_long_as_a_window_can_forget() -> None:
    made = session(schedule="chained", block_size=1000)
    result = answer(made, (PROMPT * 3)[:60], 60)
    assert result.draft.block_size == 33
    assert result.draft.reason is not None
    assert "1000" in result.draft.reason
    assert result.token_ids == answer(session(drafting=False), (PROMPT * 3)[:60], 60).token_ids

from __future__ import annotations

from dataclasses import replace

import pytest

from app.controllers.stats import VERDICT_S, PanelState, PlainClock, StatsController
from app.store.figures import to_json
from app.store.records import Message, Round
from app.wording import DASH, DEFINITIONS, footer, number, truth
from engine.events import DraftStatus, Finished, Generation, PrefillProgress, RoundDone
from engine.messages import Message as Turn
from engine.stats import GenerationStats, StatsRecorder

MTP = DraftStatus("auto", "mtp", None, "stateful", 5)
AUTO = DraftStatus("auto", "mtp", None, "stateful", 5, auto=True)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A controller fed by hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.controller = StatsController(lambda: 500_000_000, now=self.clock)
        self.recorder = StatsRecorder(40, 0, self.clock.now)
        self.states: list[PanelState] = []
        self.controller.changed.connect(self.states.append)

    def round(self, accepted: int, seconds: float, drafted: int = 4) -> None:
        self.clock.now += seconds
        if drafted:
            self.recorder.round(drafted, accepted, seconds)
        else:
            self.recorder.plain(seconds)
        self.recorder.token_times(accepted + 1, self.clock.now)
        event = RoundDone(tuple(range(accepted + 1)), drafted, accepted, seconds, self.recorder.snapshot())
        self.controller.take([(self.clock.now, event)])

    def refresh(self) -> PanelState:
        self.controller._refresh()
        return self.states[-1]


@pytest.fixture
def bench(qapp) -> Bench:
    made = Bench()
    made.controller.begin("Demo", 2048)
    made.controller.take([(made.clock.now, MTP), (made.clock.now, PrefillProgress(20, 40))])
    return made


def test_figures_follow_the_rounds(bench: Bench) -> None:
    assert bench.controller.state.prefill == (20, 40)
    for accepted in (4, 2, 3, 1) * 10:
        bench.round(accepted, 0.05)
    state = bench.refresh()
    assert state.stats is not None
    assert state.stats.acceptance_length == pytest.approx(3.5)
    assert state.round_tokens[:4] == (5, 3, 4, 2)
    assert state.rate == pytest.approx(140 / 2.0, rel=0.1)
    assert state.rate == state.rates[-1][1]
    assert (state.memory, state.context_used, state.context) == (500_000_000, 180, 2048)
    assert state.truth == "MTP with 4 drafts a round, as asked"
    assert (state.verdict, state.break_even) == ("", None), "no plain step was measured"
    bench.controller.end()


def test_the_live_rate_looks_back_two_and_a_half_seconds(bench: Bench) -> None:
    for _ in range(100):
        bench.round(4, 0.1)
    for _ in range(30):
        bench.round(0, 0.1)
    assert bench.refresh().rate == pytest.approx(10, rel=0.1)
    generation = Generation("", "", (), (), "stop", bench.recorder.snapshot(), MTP, Turn("assistant", ""))
    bench.controller.take([(bench.clock.now, Finished(generation))])
    bench.controller.end()
    assert bench.states[-1].rate == generation.stats.decode_tps != pytest.approx(10, rel=0.1)


def test_the_verdict_comes_from_measured_plain_steps_and_changes_rarely(bench: Bench) -> None:
    for _ in range(4):
        bench.round(0, 0.02, drafted=0)
    for _ in range(20):
        bench.round(3, 0.05)
    state = bench.refresh()
    assert state.break_even == pytest.approx(2.5)
    assert state.verdict == "4.0 tokens/round, break-even 2.5: MTP is 1.60x faster"
    bench.round(3, 0.09)
    assert bench.refresh().verdict == state.verdict
    bench.clock.now += VERDICT_S
    assert bench.refresh().verdict != state.verdict
    bench.controller.end()


def test_the_verdict_never_contradicts_the_headline(bench: Bench) -> None:
    for _ in range(4):
        bench.round(0, 0.02, drafted=0)
    for accepted in (4, 0, 3, 1, 1, 4, 2):
        bench.round(accepted, 0.05)
        state = bench.refresh()
        assert state.stats is not None
        assert state.verdict.startswith(f"{number(state.stats.acceptance_length, 1)} tokens/round, ")
    bench.controller.end()


def test_auto_says_what_it_does_where_drafts_do_not_pay(bench: Bench) -> None:
    bench.controller.take([(bench.clock.now, AUTO)])
    for _ in range(8):
        bench.round(0, 0.02, drafted=0)
    bench.round(0, 0.04, drafted=2)
    state = bench.refresh()
    assert state.verdict.endswith("MTP is slower, 0.50x of plain, so plain steps run")
    assert state.depth == 2
    bench.round(0, 0.02, drafted=0)
    assert bench.refresh().depth == 0
    bench.controller.end()
    assert bench.states[-1].depth is None


def test_figures_hold_between_turns_and_the_next_answer_uses_the_plain_steps_of_the_last(bench: Bench) -> None:
    for _ in range(4):
        bench.round(0, 0.02, drafted=0)
    bench.round(4, 0.06)
    bench.controller.end()
    held = bench.states[-1]
    assert not held.running
    bench.controller.begin("Demo", 2048)
    assert bench.states[-1].stats == held.stats
    # An answer that fails before its first round has no figures, and takes none away.
    bench.controller.end()
    assert bench.states[-1] == held
    # In another chat, there are none to begin with.
    bench.controller.show([], lambda _: [], 2048)
    bench.controller.begin("Demo", 2048)
    bench.controller.end()
    assert (bench.states[-1].round_tokens, bench.states[-1].rates, bench.states[-1].truth) == ((), (), "")
    bench.controller.begin("Demo", 2048)
    bench.recorder = StatsRecorder(60, 0, bench.clock.now)
    bench.round(4, 0.06)
    assert bench.refresh().ms_per_plain_step == pytest.approx(20)
    bench.controller.end()
    bench.controller.begin("Another model", 2048)
    bench.recorder = StatsRecorder(60, 0, bench.clock.now)
    bench.round(4, 0.06)
    assert bench.refresh().ms_per_plain_step is None
    bench.controller.end()


def stats(**changes: object) -> GenerationStats:
    base = GenerationStats(100, 0, 50, 0.2, 500.0, 80.0, 12, 48, 36, 4.0, 0.75, (1.0, 0.8, 0.7, 0.5), 6, 0, 40.0, 20.0)
    return replace(base, **changes)  # pyright: ignore[reportArgumentType]


def test_plain_steps_count_only_for_contexts_of_like_length() -> None:
    clock = PlainClock()
    clock.learn("Demo", stats(prompt_tokens=1000, completion_tokens=0))
    assert clock.cost("Demo", stats(prompt_tokens=600, ms_per_plain_step=None)) == 20.0
    assert clock.cost("Demo", stats(prompt_tokens=100, ms_per_plain_step=None)) is None
    assert clock.cost("Demo", stats(prompt_tokens=100, plain_steps=1, ms_per_plain_step=99.0)) is None, "one is chance"
    assert clock.cost("Demo", stats(prompt_tokens=100, ms_per_plain_step=30.0)) == 30.0


def stored(figures: GenerationStats | None) -> Message:
    values = None if figures is None else to_json(figures)
    return Message(
        2,
        1,
        1,
        "assistant",
        "done",
        "text",
        "",
        None,
        (),
        None,
        values,
        to_json(MTP),
        "stop",
        None,
        0.0,
        "Demo",
        {},
        None,
        None,
        (2,),
    )


def test_a_stored_answer_brings_its_figures_and_curves_back(bench: Bench) -> None:
    bench.controller.end()
    rounds = [Round(1, 0, 0, 20.0), *[Round(4, 4, 3, 50.0)] * 30]
    bench.controller.show([stored(stats())], lambda _id: rounds, 2048)
    state = bench.states[-1]
    assert state.stats == stats()
    assert state.round_tokens == (4,) * 30
    assert state.rates[-1][1] == pytest.approx(80, rel=0.05)
    assert state.verdict.endswith("MTP is 2.00x faster")
    bench.controller.show([stored(None)], lambda _id: [], 2048)
    assert bench.states[-1] == PanelState(memory=500_000_000, context=2048)


@pytest.mark.parametrize(
    ("draft", "figures", "text", "differs"),
    [
        (MTP, stats(plain_steps=0), "MTP with 4 drafts a round, as asked", False),
        (MTP, stats(rounds=0, plain_steps=0), "MTP was on, but the answer ended before its first round", False),
        (MTP, stats(plain_steps=6), "MTP with 4 drafts a round, as asked; 6 plain steps", False),
        (AUTO, stats(plain_steps=0), "MTP with as many drafts as pay, 4.0 a round", False),
        (AUTO, stats(drafted=30), "MTP with as many drafts as pay, 2.5 a round; 6 plain steps", False),
        (AUTO, stats(rounds=0, drafted=0), "MTP with as many drafts as pay; 6 plain steps", False),
        (
            replace(AUTO, vocabulary=2048),
            stats(plain_steps=0),
            "MTP with as many drafts as pay, 4.0 a round, scored for 2\u2009048 frequent tokens",
            False,
        ),
        (
            DraftStatus("none", "none", "The drafter is switched off.", None, None),
            None,
            "Plain decoding, as asked",
            False,
        ),
        (
            DraftStatus("auto", "none", "The checkpoint has no MTP head.", None, None),
            None,
            "MTP was asked, plain decoding ran: The checkpoint has no MTP head.",
            True,
        ),
        (
            DraftStatus("mtp", "mtp", "8 were asked for; the head has 4.", "stateful", 5),
            None,
            "MTP with 4 drafts a round: 8 were asked for; the head has 4.",
            True,
        ),
        (
            DraftStatus("auto", "mtp", "A block size of 9 was asked for; the head has 4 depths.", "stateful", 5, 9),
            None,
            "MTP with 4 drafts a round: 8 were asked, the head makes no more",
            True,
        ),
        (
            DraftStatus("auto", "none", "It has no head. `inkstand download x --mtp-head` fetches it.", None, None),
            None,
            "MTP was asked, plain decoding ran: It has no head.",
            True,
        ),
    ],
)
def test_the_truth_line(draft: DraftStatus, figures: GenerationStats | None, text: str, differs: bool) -> None:
    assert truth(draft, figures) == (text, differs)


def test_the_footer_leaves_out_what_was_not_measured() -> None:
    assert footer(stats()) == "80.0 tok/s  ·  4.00 tok/round  ·  50 tokens  ·  TTFT 0.20 s"
    plain = stats(acceptance_length=None, decode_tps=None, completion_tokens=1)
    assert footer(plain) == "1 token  ·  TTFT 0.20 s"
    assert footer(None) == ""
    assert DASH not in footer(plain)


def test_definitions_say_what_the_letters_mean() -> None:
    for key, formula in (
        ("acceptance_length", "1 + A/R"),
        ("acceptance_rate", "A/D"),
        ("decode_tps", "(N-1)/(t_last - t_first)"),
    ):
        assert formula in DEFINITIONS[key]
    assert "verify rounds that carried a draft" in DEFINITIONS["acceptance_rate"]

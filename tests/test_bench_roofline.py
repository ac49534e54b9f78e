"""Bytes and operations against hand-made sums for the tiny checkpoint; the shape of what the reports measure."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from engine.bench.contestants import Case, cases
from engine.bench.context import measure_context
from engine.bench.cost import (
    ATTENTION,
    DENSE,
    HEAD,
    PROJECTIONS,
    ROUTED,
    ROUTER,
    SHARED,
    Work,
    draft_work,
    expected_experts,
    step_work,
    total,
)
from engine.bench.machine import Machine
from engine.bench.pieces import HOST, LayerInputs, experts_in_use, layer_inputs
from engine.bench.prompts import Prompt
from engine.bench.report_tables import context_table, lines_table, roofline_tables, rounds_table, turns_table
from engine.bench.roofline import Line, measure_roofline, pieces_by_time
from engine.bench.rounds import Clock, RoundTimes, measure_rounds
from engine.bench.turns import Turn
from engine.cli.main import main
from tests.support import PROMPT, TINY, tiny, tiny_head

# The tiny checkpoint: hidden 64, layers 0 1 3 4 sliding (8 heads of 8, 4 of them for keys, window 8), 2 and 5 global
# (4 heads of 16, 2 for keys, extent 16), d_rel 4; layer 0 dense with width 96, then 8 experts of width 32, 2 per token,
# and 2 shared ones; vocabulary 256. Everything float32.
H, F32 = 64, 4
SLIDING, GLOBAL = 4, 2


def test_bytes_and_operations_of_a_step() -> None:
    rows, context = 3, 100
    works = step_work(tiny().backbone, rows, context, 2.5)
    # q, o: 64 wide; k, v: 32; r: heads * d_rel.
    sliding, wide = H * (64 + 32 + 32 + 8 * 4) + 64 * H, H * (64 + 32 + 32 + 4 * 4) + 64 * H
    projections = SLIDING * sliding + GLOBAL * wide
    assert works[PROJECTIONS] == Work(F32 * projections, 2 * rows * projections)
    # Sliding queries see 8 keys each, so a block of 3 sees 10; global ones see everything.
    near, far = 8 + rows - 1, context + rows
    read = F32 * (SLIDING * (2 * near * 32 + 4 * 8) + GLOBAL * (2 * far * 32 + 4 * 16))
    ops = SLIDING * rows * (4 * 64 * near + 2 * 8 * 4 * 8) + GLOBAL * rows * (4 * 64 * far + 2 * 4 * 4 * 16)
    assert works[ATTENTION] == Work(read, ops)
    assert works[DENSE] == Work(F32 * 3 * H * 96, 2 * rows * 3 * H * 96)
    expert = 3 * H * 32
    assert works[ROUTED] == Work(5 * 2.5 * expert * F32, 5 * 2 * rows * 2 * expert)
    assert works[SHARED] == Work(5 * 2 * expert * F32, 5 * 2 * rows * 2 * expert)
    assert works[ROUTER] == Work(5 * F32 * (10 * H + 8), 5 * 2 * rows * 10 * H)
    assert works[HEAD] == Work(F32 * 256 * H, 2 * rows * 256 * H)
    assert total(works).nbytes == sum(work.nbytes for work in works.values())


def test_bytes_and_operations_of_a_draft() -> None:
    # Block 0 is sliding: 8 heads. Its two rows are taken in, one is read out. Of the input projection's 2 x 64 columns
    # the token's half is looked up, a row of 64 each.
    works = draft_work(tiny_head(), 0, 2, 100)
    projections = H * (64 + 32 + 32 + 8 * 4) + 64 * H + H * H
    assert works[PROJECTIONS] == Work(F32 * (projections + 2 * H), 2 * 2 * projections)
    assert works[HEAD] == Work(F32 * 256 * H, 2 * 256 * H)
    assert ROUTED not in works


def test_distinct_experts() -> None:
    assert expected_experts(8, 2, 1) == pytest.approx(2)
    assert expected_experts(8, 2, 2) == pytest.approx(3.5)
    inputs = [
        LayerInputs(mx.zeros(1), mx.zeros(1), None),
        LayerInputs(mx.zeros(1), mx.zeros(1), [[0, 1], [1, 2], [5, 6]]),
    ]
    assert experts_in_use(inputs, 1) == 2
    assert experts_in_use(inputs, 2) == (3 + 4) / 2
    assert experts_in_use(inputs, 3) == 5
    assert experts_in_use(inputs[:1], 1) is None


def test_inputs_of_layers_are_those_of_the_forward() -> None:
    backbone = tiny().backbone
    inputs = layer_inputs(backbone, PROMPT)
    assert [layer.experts is None for layer in inputs] == list(tiny().config.text.dense)
    cache = backbone.make_cache()
    x = backbone.embed(mx.array([PROMPT], mx.int32))
    layer = backbone.layers[0].plain
    normed = mx.fast.rms_norm(x, layer.attn_norm, layer.eps)
    assert mx.allclose(inputs[0].attention, normed).item()
    hidden = backbone.layers[0](x, cache.layers[0])
    following = backbone.layers[1].plain
    assert mx.allclose(
        inputs[1].attention, mx.fast.rms_norm(hidden, following.attn_norm, following.eps), atol=1e-4
    ).item()
    assert all(len(set(chosen)) == 2 for layer in inputs if layer.experts for chosen in layer.experts)


def test_the_limit_is_what_takes_longer() -> None:
    machine = Machine(bandwidth=1e9, ways={}, rates={1: 1e9, 4: 4e9})
    assert machine.seconds(Work(2e6, 1e6), 1) == pytest.approx(2e-3)
    assert machine.seconds(Work(2e6, 16e6), 4) == pytest.approx(4e-3)
    assert Line("x", Work(), 1e-3, 4e-3).share == pytest.approx(0.25)
    assert Line("x", Work(), 1e-3, None).share is None


def test_a_roofline_has_every_step_and_its_pieces_add_up() -> None:
    engine = tiny()
    (case,) = cases(engine, [Prompt("x", "hello there")], 24, effort=0.9)
    roofline = measure_roofline(engine, case, repeats=1, progress=lambda share, message: None)
    names = ["plain step", "verify of 2 rows", "verify of 3 rows", "verify of 4 rows"]
    names += ["draft 1", "draft 2", "draft 3", "round of 3 drafts"]
    assert [line.name for line in roofline.steps] == names
    whole = roofline.steps[-1]
    assert whole.work.nbytes == sum(line.work.nbytes for line in roofline.steps[3:-1])
    assert whole.limit == pytest.approx(sum(line.limit for line in roofline.steps[3:-1]))
    assert list(roofline.breakdown) == [1, 4]
    assert roofline.experts[1] == (2.0, 2.0)
    pieces = [line for line in roofline.breakdown[4] if line.name != HOST]
    step = next(line.seconds for line in roofline.steps if line.name == "verify of 4 rows")
    assert step is not None
    assert sum(line.seconds or 0.0 for line in pieces) >= 0.999 * step
    (host,) = [line.seconds for line in roofline.breakdown[4] if line.name == HOST]
    assert host is not None
    assert 0.0 < host < step
    assert pieces_by_time(roofline.breakdown[4])[-1].name == HOST
    text = roofline_tables(roofline)
    for expected in ("GB/s", "round of 3 drafts", "a verify of 4 rows by pieces", "LM head"):
        assert expected in text
    json.dumps(roofline.to_json())


def test_contexts_leave_the_targets_alone() -> None:
    times = measure_context(tiny(), PROMPT, [5, 70], rows=[1, 4], repeats=2, progress=lambda share, message: None)
    assert set(times.seconds) == {(5, 1), (5, 4), (70, 1), (70, 4)}
    assert times.ratio(5, 4) == 1.0
    assert context_table(times).splitlines()[1].split()[0] == "5"


def test_rollback_and_session_are_shares_of_a_round() -> None:
    clock = Clock()
    with clock:
        once = clock.seconds
    with clock:
        pass
    assert 0 == once < clock.seconds
    times = RoundTimes(drafts=4, rounds=10, whole=1.0, rollback=0.03, session=0.01)
    assert times.bookkeeping_share == pytest.approx(0.04)
    assert rounds_table([times]).splitlines()[1].split() == ["4", "10", "100.000", "3.000", "1.000", "4.0", "%"]
    assert RoundTimes(drafts=1).bookkeeping_share is None
    assert "–" in rounds_table([RoundTimes(drafts=1)])


def test_timing_a_round_changes_nothing_of_it() -> None:
    engine = tiny()
    todo = [Case("x", "hello there", tuple(engine.tokenizer.encode("hello there")), 16)]
    (times,) = measure_rounds(engine, todo, [2], lambda share, message: None)
    assert times.rounds > 0
    assert 0 < times.rollback < times.whole


def test_turns() -> None:
    turn = Turn(100, 80, kept_ttft=0.1, fresh_ttft=0.4, same_text=True)
    assert turn.to_json()["fresh_over_kept"] == pytest.approx(4.0)
    assert turns_table([turn]).splitlines()[1].split() == ["1", "100", "80", "0.100", "0.400", "4.0x", "yes"]


@pytest.mark.parametrize("what", ["roofline", "context", "rounds"])
def test_the_commands_print_a_table_and_write_json(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "roofline": ["-n", "12", "-r", "1"],
        "context": ["--lengths", "4,9", "-r", "1"],
        "rounds": ["-n", "8", "--depths", "1"],
    }
    report = tmp_path / "report.json"
    assert main(["bench", what, str(TINY), *options[what], "--json", str(report)]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 1
    found = json.loads(report.read_text())
    assert {"environment", "model", "dtype"} <= found.keys()


def test_sessions_need_a_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sessions", str(TINY)]) == 2
    assert "chat template" in capsys.readouterr().err


def test_more_than_the_limit_is_marked_and_explained() -> None:
    within, beyond = Line("read", Work(1e6, 1.0), 1e-3, 2e-3), Line("cached", Work(1e6, 1.0), 3e-3, 2e-3)
    exact = Line("exact", Work(1e6, 1.0), 1.001e-3, 1e-3)
    text = lines_table([within, beyond, exact], shares=True)
    assert "150.0 %*" in text
    assert text.count("*") == 2, "the mark, and what it means"
    assert "came from a cache" in text
    assert "*" not in lines_table([within, exact])

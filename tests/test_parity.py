"""Parity: equal texts pass, a different one is found with its margins, and a near-tie is told from a bug."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from engine.bench.contestants import Case
from engine.bench.parity import (
    LED_IN,
    Difference,
    ModeParity,
    Parity,
    RowParity,
    Trace,
    TracedStep,
    compare,
    compare_rows,
    deciding_row,
    first_difference,
    trace,
)
from engine.cli.main import main
from engine.cli.parity import as_text
from engine.session import Session
from tests.support import PROMPT, TINY, tiny

CASE = Case("x", "hello there", tuple(PROMPT), 24)


@pytest.fixture
def traced() -> dict[int, Trace]:
    """By drafts per round."""
    engine, text = tiny(), CASE
    ids = tuple(engine.tokenizer.encode(text.text))
    case = Case("x", text.text, ids, 24)
    return {
        0: trace(Session(engine, drafting=False), case),
        2: trace(Session(engine, block_size=3), case),
    }


def prompt_ids() -> list[int]:
    return tiny().tokenizer.encode(CASE.text)


@pytest.mark.parametrize("drafts", [0, 2])
def test_every_deciding_row_chooses_its_token(drafts: int, traced: dict[int, Trace]) -> None:
    found = traced[drafts]
    for position, token in enumerate(found.token_ids):
        assert int(mx.argmax(deciding_row(tiny().backbone, prompt_ids(), found, position)).item()) == token


def changed(found: Trace, step: int) -> Trace:
    """The trace with another last token in one step, and nothing after it."""
    *before, last = found.steps[: step + 1]
    wrong = TracedStep((*last.tokens[:-1], (last.tokens[-1] + 1) % 250), last.drafted)
    return Trace((*before, wrong), found.near_ties)


def test_a_wrong_token_is_found_and_not_explained(traced: dict[int, Trace]) -> None:
    case = Case("x", CASE.text, tuple(prompt_ids()), 24)
    assert first_difference(tiny().backbone, case, traced[0], traced[2], "mtp 2") is None
    step = 3
    wrong = changed(traced[2], step)
    difference = first_difference(tiny().backbone, case, traced[0], wrong, "mtp 2")
    assert difference is not None
    assert difference.position == len(wrong.token_ids) - 1
    assert (difference.plain_token, difference.token) == (traced[0].token_ids[difference.position], wrong.token_ids[-1])
    assert difference.row_gap == pytest.approx(difference.block_gap, rel=1e-2)
    assert not difference.explained


def test_a_text_that_ends_early_differs_there(traced: dict[int, Trace]) -> None:
    case = Case("x", CASE.text, tuple(prompt_ids()), 24)
    short = Trace(traced[0].steps[:5], 0)
    difference = first_difference(tiny().backbone, case, traced[0], short, "mtp 2")
    assert difference is not None
    assert (difference.position, difference.token) == (5, None)


def difference(row_gap: float, block_gap: float) -> Difference:
    return Difference("mtp 2", "x", 7, 1, 2, row_gap, block_gap, margin=1e-4)


@pytest.mark.parametrize(
    ("row_gap", "block_gap", "explained"), [(1e-5, 0.3, True), (0.3, 1e-5, True), (0.3, 0.3, False)]
)
def test_either_gap_below_the_margin_explains(row_gap: float, block_gap: float, explained: bool) -> None:
    found = difference(row_gap, block_gap)
    assert found.explained is explained
    parity = Parity(1, 24, (ModeParity("mtp 2", 8, 1, [found]),))
    assert len(parity.unexplained) == (not explained)
    text = as_text(parity, 24)
    assert ("near-tie" if explained else "UNEXPLAINED") in text.splitlines()[2]


def test_rows_in_blocks_are_compared_with_rows_alone() -> None:
    ids = [(7 * i) % 250 for i in range(LED_IN + 31)]
    backbone = tiny().backbone
    for found, rows in zip(compare_rows(backbone, ids, [1, 2, 5]), (1, 2, 5), strict=True):
        assert (found.rows, found.compared) == (rows, 31)
        assert found.logits < 1e-4
        assert found.states < 1e-4
    alone, *_ = compare_rows(backbone, ids, [1])
    assert alone.equal


def test_a_row_that_depends_on_its_block_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = tiny().backbone
    logits = backbone.logits

    def disturbed(hidden: mx.array) -> mx.array:
        return logits(hidden) + (0.25 if hidden.shape[1] == 3 else 0.0)

    monkeypatch.setattr(backbone, "logits", disturbed)
    found = compare_rows(backbone, [5] * (LED_IN + 7), [3])[0]  # the last block is of one row
    assert found.logits == pytest.approx(0.25, abs=1e-3)
    assert not found.equal
    lines = as_text(Parity(1, 24, (), (found, RowParity(2, 9, 0.0, 0.0))), 24).splitlines()
    assert any("blocks of 3" in line and "differ by up to 0.25" in line for line in lines)
    assert any("blocks of 2" in line and "bitwise equal" in line for line in lines)


def test_prompts_are_taken_until_there_are_enough_tokens() -> None:
    case = Case("x", CASE.text, tuple(prompt_ids()), 10)
    parity = compare(tiny(), [case] * 5, tokens=15, depths=[1, 3], progress=lambda share, message: None)
    assert (parity.prompts, parity.plain_tokens) == (2, 20)
    assert [(mode.mode, mode.tokens, mode.differences) for mode in parity.modes] == [
        ("mtp 1", 20, []),
        ("mtp 3", 20, []),
        ("auto", 20, []),
    ]
    assert "no more" in as_text(parity, 30)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_command(dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "parity.json"
    line = ["parity", str(TINY), "--tokens", "20", "-n", "12", "--depths", "2,7", "--dtype", dtype]
    assert main([*line, "--json", str(report)]) == 0
    out, err = capsys.readouterr()
    assert "no difference" in out
    assert "--depths 7 is left out" in err
    found = json.loads(report.read_text())
    assert (found["dtype"], found["unexplained"], found["plain_tokens"] >= 20) == (dtype, 0, True)
    assert [mode["mode"] for mode in found["modes"]] == ["mtp 2", "auto"]
    assert [rows["rows"] for rows in found["rows_in_blocks"]] == [2, 3]


def test_an_unexplained_difference_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Parity(1, 24, (ModeParity("mtp 2", 8, 0, [difference(0.3, 0.3)]),))
    monkeypatch.setattr("engine.bench.parity.compare", lambda *args, **kwargs: bad)
    assert main(["parity", str(TINY), "--tokens", "8"]) == 1


def test_parity_needs_a_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in TINY.iterdir():
        if file.name not in {"mtp.safetensors", "model.safetensors.index.json"}:
            (copy / file.name).write_bytes(file.read_bytes())
    assert main(["parity", str(copy), "--tokens", "8"]) == 2
    assert "MTP" in capsys.readouterr().err

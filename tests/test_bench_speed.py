"""Comparing decoding speed: prompts, arithmetic of medians and ratios, tables, our own contestants, the command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.bench.contestants import Case, Run, cases, own_contestants
from engine.bench.environment import commit
from engine.bench.prompts import KINDS, SHORT, Prompt, read_prompts, varied
from engine.bench.speed import measure
from engine.bench.tables import speed_tables, table
from engine.cli.main import main
from engine.errors import PromptError
from tests.support import TINY, tiny


class Scripted:
    """A contestant with given speeds by case and repetition, and given ids."""

    def __init__(self, name: str, speeds: dict[str, Sequence[float | None]], ids: tuple[int, ...] = (1, 2, 3)) -> None:
        self.name, self.speeds, self.ids = name, speeds, ids
        self.log: list[tuple[str, int]] = []

    def run(self, case: Case, repetition: int) -> Run | None:
        self.log.append((case.name, repetition))
        if case.name not in self.speeds:
            return None
        return Run(self.ids, self.speeds[case.name][repetition], rounds=2, tokens_per_round=2.5, near_ties=1)


def quiet(share: float, message: str) -> None: ...


A, B = Case("a", "A", (1,), 8), Case("b", "B", (1,), 8)
HOT = Case("hot", "A", (1,), 8, temperature=1.5)


def test_ratios_are_medians_of_pairs_and_means_of_texts() -> None:
    plain = Scripted("plain", {"a": [10, 20, 40], "b": [10, 10, 10]})
    fast = Scripted("auto", {"a": [20, 30, 40], "b": [30, 30, 30]})
    speed = measure([plain, fast], [A, B], repetitions=3, warm_up=0, progress=quiet)
    # Pairs of a: 2.0, 1.5, 1.0.
    assert speed.cell(A, "auto").over(speed.cell(A, "plain")) == pytest.approx(1.5)
    assert speed.cell(A, "auto").tps == 30
    own, other = speed.summaries()
    assert (own.tps, own.over_plain) == (15, 1.0)
    assert other.over_plain == pytest.approx((1.5 + 3.0) / 2)
    assert other.worst == (pytest.approx(1.5), "a")
    assert (other.near_ties, other.tokens_per_round, other.over_peer) == (2, 2.5, None)


def test_contestants_take_turns_in_both_directions() -> None:
    order: list[str] = []

    class Noting(Scripted):
        def run(self, case: Case, repetition: int) -> Run | None:
            order.append(self.name)
            return super().run(case, repetition)

    contestants = [Noting(name, {"a": [1, 1]}) for name in ("plain", "x", "y")]
    measure(contestants, [A], repetitions=2, warm_up=1, progress=quiet)
    assert order == ["plain", "x", "y", "plain", "x", "y", "y", "x", "plain"]


def test_the_peer_is_compared_with_its_best_block() -> None:
    plain, auto = Scripted("plain", {"a": [10.0]}), Scripted("auto", {"a": [24.0]})
    peers = [
        Scripted("peer", {"a": [8.0]}),
        Scripted("peer block 6", {"a": [6.0]}),
        Scripted("peer block 3", {"a": [12.0]}),
    ]
    speed = measure([plain, auto, *peers], [A], repetitions=1, warm_up=0, progress=quiet)
    assert speed.peer_best == "peer block 3"
    summary = {found.name: found for found in speed.summaries()}
    assert summary["plain"].over_peer == pytest.approx(1.25)
    assert summary["auto"].over_peer_best == pytest.approx(2.0)


def test_sampled_texts_count_for_the_worst_and_not_for_means_or_equality() -> None:
    plain = Scripted("plain", {"a": [10.0], "hot": [10.0]})
    auto = Scripted("auto", {"a": [20.0], "hot": [9.0]})
    speed = measure([plain, auto], [A, HOT], repetitions=1, warm_up=0, progress=quiet)
    summary = speed.summaries()[1]
    assert summary.over_plain == pytest.approx(2.0)
    assert summary.worst == (pytest.approx(0.9), "hot")
    assert speed.to_json()["cases"][1]["contestants"]["auto"]["equal"] is None


def test_another_text_and_a_text_too_short_to_time_are_said() -> None:
    plain, other = Scripted("plain", {"a": [10.0]}), Scripted("mtp 1", {"a": [None]}, ids=(1, 2, 4))
    speed = measure([plain, other], [A], repetitions=1, warm_up=0, progress=quiet)
    summary = speed.summaries()[1]
    assert (summary.equal, summary.over_plain, summary.tps) == (False, None, None)
    lines = speed_tables(speed).splitlines()
    assert next(line for line in lines if line.startswith("mtp 1")).split()[-1] == "NO"
    assert "– –" in next(line for line in lines if line.startswith("a "))


def test_columns_line_up() -> None:
    assert table(["", "ms"], [["a", "1.0"], ["long", "10.0"]]) == "        ms\na      1.0\nlong  10.0\n"


def test_our_own_contestants_write_the_same_text() -> None:
    engine = tiny()
    contestants = own_contestants(engine, None, ["stateful", "chained"])
    names = ["plain", "mtp 1", "mtp 2", "mtp 3", "chained 1", "chained 2", "chained 3", "auto"]
    assert [contestant.name for contestant in contestants] == names
    todo = cases(engine, [Prompt("x", "hello there")], 12, effort=0.9, random=1.5)
    assert [case.temperature for case in todo] == [0.0, 1.5]
    speed = measure(contestants, todo, repetitions=1, warm_up=0, progress=quiet)
    assert all(summary.equal for summary in speed.summaries())
    assert speed.cell(todo[0], "plain").runs[0].rounds == 0
    assert speed.cell(todo[0], "mtp 2").runs[0].rounds > 0
    assert [c.name for c in own_contestants(engine, [2, 9], ["stateful"])] == ["plain", "mtp 2", "auto"]


def test_the_command_prints_tables_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts, report = tmp_path / "prompts.txt", tmp_path / "bench.json"
    prompts.write_text("hello there\n\nwhat is this\n")
    line = ["bench", str(TINY), "-n", "6", "-r", "2", "--depths", "2,9", "--prompts", str(prompts), "--warm-up", "0"]
    assert main([*line, "--random", "1.5", "--json", str(report)]) == 0
    out, err = capsys.readouterr()
    assert "random, T 1.5" in out
    assert "inkstand" in err
    assert "--depths 9 is left out: the MTP head has 3 depths." in err
    found = json.loads(report.read_text())
    assert [case["name"] for case in found["cases"]] == ["hello there", "what is this", "random, T 1.5"]
    first = found["cases"][0]["contestants"]
    assert list(first) == ["plain", "mtp 2", "auto"]
    assert len(first["plain"]["runs"]) == 2
    assert [entry["equal"] for entry in found["summary"]] == [True, True, True]
    assert found["environment"]["mlx"]
    assert found["weight_bytes"] > 0


def test_every_bench_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("speed", "roofline", "context", "sessions", "rounds"):
        assert main(["bench", name, "--help"]) == 0
        assert f"usage: inkstand bench {name}" in capsys.readouterr().out
    assert main(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert "roofline" in out
    assert "Without a subcommand: speed" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--depths", "0"], "--depths"),
        (["--depths", "a,b"], "a,b"),
        (["--prompts", "/nowhere/prompts.txt"], "/nowhere/prompts.txt"),
        (["--peer", "/nowhere/python"], "/nowhere/python"),
        (["context", "--lengths", "9,5000"], "5000"),
    ],
)
def test_a_wrong_line_is_named_with_its_cure(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = 1 if arguments[0] == "context" else 0
    line = [*arguments[:place], str(TINY), *arguments[place:]]
    assert main(["bench", *line]) == 2
    message = capsys.readouterr().err
    assert named in message
    assert len(message[message.index("error: ") :].strip().splitlines()) == 2


def test_built_in_prompts() -> None:
    assert read_prompts("kinds") == KINDS
    assert read_prompts("short") == SHORT
    assert read_prompts("all") == (*KINDS, *SHORT)
    texts = [prompt.text for prompt in varied()]
    assert len(set(texts)) == len(texts) == 288


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("p.txt", "one\n \ntwo\n", [("one", "one"), ("two", "two")]),
        ("p.json", '["one", {"name": "second", "text": "two"}]', [("one", "one"), ("second", "two")]),
    ],
)
def test_prompts_of_a_file(name: str, content: str, expected: list[tuple[str, str]], tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert [(p.name, p.text) for p in read_prompts(str(tmp_path / name))] == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", b""),
        ("p.txt", b"\n \n"),
        ("p.txt", b"\xff\xfe"),
        ("p.json", b"[]"),
        ("p.json", b"{}"),
        ("p.json", b"["),
        ("p.json", b"[1]"),
        ("p.json", b'[{"name": 1, "text": "x"}]'),
        ("p.json", b'[" "]'),
    ],
)
def test_prompts_that_cannot_be_used(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PromptError, match=name) as caught:
        read_prompts(str(tmp_path / name))
    assert "kinds" in caught.value.hint


def test_the_commit_of_a_checkout_says_whether_files_differ(tmp_path: Path) -> None:
    assert commit(tmp_path) is None

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    git("init")
    assert commit(tmp_path) is None
    (tmp_path / "file").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    clean = commit(tmp_path)
    assert clean is not None
    assert not clean.endswith("+")
    (tmp_path / "file").write_text("2")
    assert commit(tmp_path) == clean + "+"

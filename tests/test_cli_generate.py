"""`inkstand generate` over a scripted session: what is asked, what is printed, which exit code."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_fakes import (
    Cancelled,
    DraftStatus,
    Failed,
    Fakes,
    answer,
    fakes,
    generation,
    plain_stats,
)

from engine.cli.main import main
from engine.errors import CheckpointError, PromptError
from engine.events import CancelFlag, Event, Notice, TextDelta
from engine.messages import Message, ToolCall

__all__ = ["fakes"]

JSON_FIELDS = [
    "text",
    "reasoning",
    "token_ids",
    "prompt_tokens",
    "completion_tokens",
    "finish_reason",
    "tool_calls",
    "stats",
    "draft",
]
STATS_FIELDS = [
    "ttft_s",
    "prefill_tps",
    "decode_tps",
    "rounds",
    "drafted",
    "accepted",
    "acceptance_length",
    "acceptance_rate",
    "per_position",
    "plain_steps",
    "near_ties",
    "ms_per_round",
    "rounds_by_depth",
]


@pytest.fixture(autouse=True)
def demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("engine.cli.loading.demo_checkpoint", lambda: tmp_path / "demo")
    return tmp_path / "demo"


def test_text_goes_to_stdout_and_everything_else_to_stderr(
    fakes: Fakes, demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.session.scripts = [answer("Foam writes\non the sand.", reasoning="Five, seven, five.")]
    assert main(["generate", "-p", "haiku"]) == 0
    out, err = capsys.readouterr()
    assert out == "Foam writes\non the sand.\n"
    assert "Five, seven, five." in err
    assert "3.50 tokens/round" in err
    assert "62 % accepted" in err
    assert "drafter:" not in err
    assert "\x1b" not in out + err
    assert fakes.engine.loads[0][0] == demo
    assert fakes.session.requests[0]["messages"] == [Message("user", "haiku")]


def test_every_option_arrives(fakes: Fakes, tmp_path: Path) -> None:
    fakes.session.scripts = [answer()]
    line = (
        f"generate -m {tmp_path} --draft-model {tmp_path / 'head'} --draft-kind mtp --draft-block-size 4 "
        "--draft-schedule chained --rollback replay --dtype f32 --keep-quantized --quantize-rest 8 "
        "--draft-vocabulary 2048 --context 512 -p hello -n 9 "
        "--system short --effort low --temperature 0.7 --top-p 0.9 --top-k 40 --min-p 0.05 --repetition-penalty 1.1 "
        "--presence-penalty 0.2 --frequency-penalty -0.3 --stop END --stop ### --seed 5"
    )
    assert main(line.split()) == 0
    directory, load = fakes.engine.loads[0]
    assert directory == tmp_path
    del load["progress"]
    assert load == {
        "draft_directory": tmp_path / "head",
        "draft_kind": "mtp",
        "dtype": "f32",
        "keep_quantized": True,
        "quantize_rest": 8,
        "draft_vocabulary": 2048,
    }
    assert fakes.session.opened == {
        "block_size": 4,
        "schedule": "chained",
        "rollback": "replay",
        "drafting": True,
        "context": 512,
    }
    request = fakes.session.requests[0]
    assert request["messages"] == [Message("system", "short"), Message("user", "hello")]
    assert request["effort"] == 0.2
    options = request["options"]
    assert (options.max_tokens, options.temperature, options.top_p, options.top_k) == (9, 0.7, 0.9, 40)
    assert (options.min_p, options.repetition_penalty, options.presence_penalty) == (0.05, 1.1, 0.2)
    assert (options.frequency_penalty, options.stop, options.seed) == (-0.3, ("END", "###"), 5)


def test_defaults(fakes: Fakes) -> None:
    fakes.session.scripts = [answer()]
    main(["generate", "-p", "x"])
    request = fakes.session.requests[0]
    assert request["options"].max_tokens == 128
    assert request["options"].greedy
    assert request["effort"] == 0.9
    assert fakes.session.opened["block_size"] is None
    assert fakes.engine.loads[0][1]["keep_quantized"] is None


def test_auto_is_a_block_size(fakes: Fakes) -> None:
    fakes.session.scripts = [answer()]
    assert main(["generate", "-p", "x", "--draft-block-size", "auto"]) == 0
    assert fakes.session.opened["block_size"] is None


def test_without_a_drafter_the_session_starts_with_drafting_off(fakes: Fakes) -> None:
    fakes.session.scripts = [answer()]
    main(["generate", "-p", "x", "--draft-kind", "none"])
    assert fakes.session.opened["drafting"] is False


def test_json_is_one_line_with_exactly_the_promised_fields(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    call = ToolCall("weather", {"place": "Malmö"}, "c1")
    fakes.session.scripts = [[Notice("a notice"), *answer("one\ntwo", reasoning="hm", tool_calls=(call,))]]
    assert main(["generate", "-p", "x", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.endswith("\n")
    result = json.loads(out)
    assert list(result) == JSON_FIELDS
    assert list(result["stats"]) == STATS_FIELDS
    assert result["text"] == "one\ntwo"
    assert result["token_ids"] == [7, 8, 9]
    assert result["prompt_tokens"] == 28
    assert result["completion_tokens"] == 8
    assert result["tool_calls"] == [{"id": "c1", "name": "weather", "arguments": {"place": "Malmö"}}]
    assert result["stats"]["per_position"] == [1.0, 0.5, 0.5, 0.5]
    assert result["stats"]["rounds_by_depth"] == [0, 0, 0, 2]
    assert result["draft"] == {
        "requested": "auto",
        "effective": "mtp",
        "reason": None,
        "schedule": "stateful",
        "block_size": 5,
        "auto": True,
        "vocabulary": None,
    }


def test_json_has_null_where_there_were_no_rounds(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.session.scripts = [answer(stats=plain_stats())]
    main(["generate", "-p", "x", "--json"])
    stats = json.loads(capsys.readouterr().out)["stats"]
    assert stats["rounds"] == 0
    assert [stats[name] for name in ("acceptance_length", "acceptance_rate", "per_position", "ms_per_round")] == [
        None
    ] * 4


def test_figures_show_a_dash_where_nothing_was_measured(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.session.scripts = [answer(stats=plain_stats())]
    main(["generate", "-p", "x"])
    err = capsys.readouterr().err
    assert "– tokens/round" in err
    assert "– accepted" in err
    assert err.endswith(" · 1 plain step\n")


def test_figures_of_a_drafter_are_left_out_where_none_ran(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.session.scripts = [answer(stats=plain_stats(), draft=DraftStatus("none", "none", "off", None, None))]
    main(["generate", "-p", "x"])
    err = capsys.readouterr().err
    assert "2.0 tok/s · TTFT 0.50 s" in err
    assert "tokens/round" not in err
    assert "accepted" not in err
    assert "drafter:" not in err


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (DraftStatus("auto", "none", "no model.mtp tensors", None, None), "ran none: no model.mtp tensors"),
        (DraftStatus("mtp", "mtp", "clamped to 5", "stateful", 5), "drafter: clamped to 5\n"),
        (DraftStatus("auto", "mtp", "clamped to 5", "stateful", 5), "drafter: clamped to 5\n"),
        (DraftStatus("mtp", "none", None, None, None), "asked for mtp, ran none"),
    ],
)
def test_the_truth_is_told_where_another_drafter_ran(
    fakes: Fakes, capsys: pytest.CaptureFixture[str], status: DraftStatus, expected: str
) -> None:
    fakes.session.scripts = [answer(draft=status)]
    main(["generate", "-p", "x"])
    assert expected in capsys.readouterr().err


def interrupted(cancel: CancelFlag | None) -> Iterator[Event]:
    assert cancel is not None
    yield TextDelta("text", "Half an")
    signal.raise_signal(signal.SIGINT)
    assert cancel.is_set()
    yield Cancelled(generation("Half an", reason="cancelled", token_ids=(7,)))


def test_an_interrupt_prints_what_there_is(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.session.scripts = [interrupted]
    assert main(["generate", "-p", "x"]) == 130
    assert capsys.readouterr().out == "Half an\n"
    fakes.session.scripts = [interrupted]
    assert main(["generate", "-p", "x", "--json"]) == 130
    result = json.loads(capsys.readouterr().out)
    assert (result["text"], result["finish_reason"], result["token_ids"]) == ("Half an", "cancelled", [7])


def test_a_second_interrupt_ends_at_once_and_the_handler_is_put_back(fakes: Fakes) -> None:
    def twice(_cancel: CancelFlag | None) -> Iterator[Event]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        yield TextDelta("text", "never")

    before = signal.getsignal(signal.SIGINT)
    fakes.session.scripts = [twice]
    assert main(["generate", "-p", "x"]) == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_without_a_template_raw_text_is_completed_and_said_so(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.engine.template = None
    fakes.session.scripts = [answer()]
    assert main(["generate", "-p", "Once upon"]) == 0
    assert fakes.session.requests[0]["text"] == "Once upon"
    assert "no chat template" in capsys.readouterr().err
    assert main(["generate", "-p", "Once upon", "--system", "s"]) == 2


@pytest.mark.parametrize(("reason", "cut"), [("length", True), ("stop", False)])
def test_an_answer_that_was_cut_says_so(
    reason: str, cut: bool, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (["generate", "-p", "x"], ["chat"]):
        fakes.session.scripts = [answer(reason=reason)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO("hello\n"))
            assert main(line) == 0
        assert ("-n/--max-tokens allows more" in capsys.readouterr().err) == cut


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--draft-kind none --draft-block-size 4", "--draft-block-size has no effect with --draft-kind none."),
        ("--draft-kind none --draft-model x --rollback replay", "--draft-model and --rollback have no effect with"),
        ("--top-k 5 --min-p 0.1", "--top-k and --min-p have no effect at --temperature 0"),
        ("--top-k 5 --temperature 1 --draft-block-size 4", ""),
        ("--draft-kind none", ""),
    ],
)
def test_options_that_are_ignored_are_named(
    line: str, said: str, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.session.scripts = [answer()]
    assert main(["generate", "-p", "x", *line.split()]) == 0
    err = capsys.readouterr().err
    assert said in err
    assert ("no effect" in err) == bool(said)


def test_messages_from_a_file(fakes: Fakes, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]))
    fakes.session.scripts = [answer()]
    assert main(["generate", "--messages", str(file), "-p", "and now?", "--system", "short"]) == 0
    sent = fakes.session.requests[0]["messages"]
    assert [(message.role, message.content) for message in sent] == [
        ("system", "short"),
        ("user", "hi"),
        ("assistant", "ho"),
        ("user", "and now?"),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "there is no file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ('[{"role": "wizard", "content": "x"}]', "Message 1: role is 'wizard'"),
        ("{}", "does not hold a list"),
        ('[{"role": "system", "content": "x"}]', "holds a system message already"),
    ],
)
def test_a_bad_messages_file_is_named(
    fakes: Fakes, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, expected: str
) -> None:
    file = tmp_path / "chat.json"
    if content is not None:
        file.write_text(content)
    assert main(["generate", "--messages", str(file), "--system", "s"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert expected in err
    assert str(file) in err
    assert not fakes.engine.loads


def test_a_messages_file_may_start_with_a_byte_order_mark(fakes: Fakes, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": "hi"}]), encoding="utf-8-sig")
    fakes.session.scripts = [answer()]
    assert main(["generate", "--messages", str(file)]) == 0
    assert fakes.session.requests[0]["messages"] == [Message("user", "hi")]


@pytest.mark.parametrize("prompt", ["", "  ", "\n\n"])
def test_an_empty_prompt_is_refused(fakes: Fakes, capsys: pytest.CaptureFixture[str], prompt: str) -> None:
    assert main(["generate", "-p", prompt]) == 2
    assert "The prompt is empty" in capsys.readouterr().err
    assert not fakes.engine.loads


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--temperature -0.1", "--temperature"),
        ("--temperature nan", "--temperature"),
        ("--temperature warm", "--temperature"),
        ("--top-p 0", "--top-p"),
        ("--top-p 1.01", "--top-p"),
        ("--top-k -1", "--top-k"),
        ("--top-k 1.5", "--top-k"),
        ("--min-p 1.5", "--min-p"),
        ("--repetition-penalty 0", "--repetition-penalty"),
        ("--presence-penalty inf", "--presence-penalty"),
        ("--frequency-penalty nan", "--frequency-penalty"),
        ("-n 0", "-n/--max-tokens"),
        ("--seed -1", "--seed"),
        ("--draft-block-size 1", "--draft-block-size"),
        ("--draft-kind magic", "--draft-kind"),
        ("--draft-schedule other", "--draft-schedule"),
        ("--rollback undo", "--rollback"),
        ("--dtype f16", "--dtype"),
        ("--context 0", "--context"),
        ("--effort huge", "huge"),
        ("--effort 1.0", "1.0"),
        ("--unknown", "--unknown"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_loaded(
    fakes: Fakes, capsys: pytest.CaptureFixture[str], arguments: str, named: str
) -> None:
    assert main(["generate", "-p", "x", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert named in err
    assert "Traceback" not in err
    assert not fakes.engine.loads


def test_an_empty_stop_string_and_a_missing_prompt(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "-p", "x", "--stop", ""]) == 2
    assert "--stop" in capsys.readouterr().err
    assert main(["generate"]) == 2
    assert "-p" in capsys.readouterr().err
    assert not fakes.engine.loads


def test_what_the_checkpoint_lacks_is_the_users_to_mend(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.engine.error = CheckpointError("model.safetensors is truncated.", "Download it again.")
    assert main(["generate", "-p", "x"]) == 2
    assert capsys.readouterr().err.endswith("error: model.safetensors is truncated.\nDownload it again.\n")


def test_a_failure_in_the_middle_comes_after_what_was_generated(
    fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.session.scripts = [[TextDelta("text", "Half"), Failed(PromptError("The context is full.", "Shorten it."))]]
    assert main(["generate", "-p", "x"]) == 2
    out, err = capsys.readouterr()
    assert out == "Half\n"
    assert "error: The context is full." in err


def test_a_bug_leaves_a_report_and_no_traceback_on_the_screen(
    fakes: Fakes, inkstand_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.session.scripts = [[Failed(ZeroDivisionError("division by zero"))]]
    assert main(["generate", "-p", "secret plan"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "ZeroDivisionError: division by zero" in err
    (report,) = (inkstand_home / "logs").glob("crash-*.txt")
    assert str(report) in err
    assert "Traceback" in report.read_text()
    assert "secret plan" not in report.read_text()


def test_a_report_finds_another_place_when_the_logs_cannot_be_written(
    fakes: Fakes, inkstand_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inkstand_home / "logs").write_text("a file in the way")
    fakes.session.scripts = [[Failed(KeyError("x"))]]
    assert main(["generate", "-p", "x"]) == 1
    report = Path(capsys.readouterr().err.split("with ")[-1].strip())
    assert "KeyError" in report.read_text()


def test_a_byte_order_mark_is_no_part_of_a_piped_prompt(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeffhello\n"))
    fakes.session.scripts = [answer()]
    assert main(["generate", "-p", "-"]) == 0
    assert fakes.session.requests[0]["messages"] == [Message("user", "hello\n")]

"""Names of tensors, files and config values are printed by every command, and obeyed by no terminal."""

from __future__ import annotations

import ast
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from support import TINY

from engine.cli.main import main
from engine.cli.terminal import Terminal
from engine.wording import json_line, printable

ROOT = Path(__file__).resolve().parents[1]
EVIL = "\x1b]0;pwned\x07\x9b2J\x7f\r\ud800"
"""Sets a window's title, clears the screen the way 8-bit terminals take it, and goes back to the line's start."""
OBEYED = {chr(code) for code in (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0xD800)}


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """The tiny checkpoint with escape sequences in what commands quote, in a folder whose name has some, too."""
    copy = Path(shutil.copytree(TINY, tmp_path / "in\x1b[31mk"))
    add_tensors(copy / "model-00001-of-00001.safetensors", ["model.layers.0." + EVIL, "model.visual." + EVIL])
    (copy / ("\x1b[2Jmore.safetensors")).write_bytes(struct.pack("<Q", 2) + b"{}")
    return copy


def add_tensors(file: Path, names: list[str]) -> None:
    """Add an empty tensor of each name."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    end = len(data) - 8 - length
    header |= {name: {"dtype": "F32", "shape": [0], "data_offsets": [end, end]} for name in names}
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def configure(directory: Path, **values: Any) -> None:
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    (directory / "config.json").write_text(json.dumps(config | values), encoding="utf-8")


def check(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert not OBEYED & set(text), text
    return shown.out + shown.err


@pytest.mark.parametrize(
    "command",
    ["inspect {0}", "inspect --json {0}", "convert {0} {1}", "generate -p x -m {0}", "draft-report -p x -m {0}",
     "parity {0}", "bench {0}", "generate -p x --messages {0}"],
)  # fmt: skip
def test_no_name_of_a_checkpoint_reaches_the_terminal_as_it_is(
    command: str, hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o\x9but"
    assert main([word.format(hostile, out) for word in command.split()]) == 2
    text = check(capsys)
    assert "\\x1b" in text or "\\u001b" in text


def test_what_was_written_is_named_without_being_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ([], ["--json"]):
        out = tmp_path / f"\x1b[2Jo\x9but{len(options)}"
        assert main(["convert", *options, str(TINY), str(out)]) == 0
        assert out.is_dir()
        assert "[2Jo" in check(capsys)
    assert main(["plan-memory", str(out)]) == 0
    check(capsys)


def test_an_unknown_family_is_named_in_every_report(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(hostile, model_type=EVIL)
    assert main(["inspect", str(hostile)]) == 2
    assert "family" in check(capsys)
    assert main(["inspect", "--json", str(hostile)]) == 2
    assert json.loads(check(capsys))["family"] == EVIL
    assert main(["plan-memory", "--config", str(hostile / "config.json")]) == 2
    check(capsys)


def test_one_line_of_json_reads_back_as_it_was() -> None:
    value = {EVIL: [EVIL, "Zwölf\n\t\u2028"], "n": 1.5}
    line = json_line(value)
    assert json.loads(line) == value
    assert "\n" not in line
    assert printable(line) == line
    assert "Zwölf" in line


def test_every_way_to_the_terminal_spells_out(capsys: pytest.CaptureFixture[str]) -> None:
    class Screen:
        """A terminal that keeps what it is sent."""

        def __init__(self) -> None:
            self.text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            pass

    screen: Any = Screen()
    terminal = Terminal(screen, screen, {})
    terminal.write(EVIL)
    terminal.line(EVIL)
    terminal.json({EVIL: EVIL})
    terminal.note(EVIL)
    terminal.progress(0.5, EVIL)
    assert "pwned" in screen.text
    own = screen.text.replace("\x1b[2m", "").replace("\x1b[22m", "").replace("\r\x1b[K", "")
    assert not OBEYED & set(own)


def test_commands_have_no_other_way_to_print() -> None:
    """Standard output and standard error are written to by the terminal, by streamed answers, and at the very end."""
    allowed = {"terminal.py", "answer_printer.py", "streams.py"}
    for file in sorted((ROOT / "engine" / "cli").glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        called = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        printed = [call for call in called if call.startswith("print(")]
        assert all(call == "print(printable(line), file=sys.stderr)" for call in printed), file
        written = [call for call in called if ".out.write(" in call or ".err.write(" in call or "stdout.write(" in call]
        assert not written or file.name in allowed, file


@pytest.mark.parametrize("line", ["bench", "bench roofline", "bench rounds", "parity", "draft-report"])
def test_a_prompt_beyond_the_context_is_refused_before_weights_are_read(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loaded(*_: object, **__: object) -> None:
        pytest.fail("weights were read first")

    monkeypatch.setattr("engine.loaded.load_model", loaded)
    text = "read all of this " * 1000
    file = tmp_path / "prompts.txt"
    file.write_text(text)
    asked = ["-p", text] if line == "draft-report" else ["--prompts", str(file)]
    assert main([*line.split(), *asked]) == 2
    assert "read all of this read …: The prompt has 4" in capsys.readouterr().err

"""Standard streams that are closed or full, as a shell hands them to the real process."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TINY = Path(__file__).parent / "data" / "inkling-tiny"


def inkstand(arguments: str, redirection: str, *, unbuffered: bool = False) -> subprocess.CompletedProcess[str]:
    line = f"exec {shlex.quote(sys.executable)} -m app {arguments} {redirection}"
    return subprocess.run(
        ["bash", "-c", line],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""},
    )


@pytest.mark.parametrize("arguments", ["generate -p -", "chat"])
def test_a_closed_standard_input_is_the_users_to_mend(arguments: str) -> None:
    done = inkstand(f"{arguments} -m {TINY}", "<&-")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: Standard input is closed")


@pytest.mark.parametrize("arguments", [f"generate -p - -m {TINY}", "chat -n 2"])
def test_bytes_that_are_no_text_are_the_users_to_mend(arguments: str) -> None:
    done = inkstand(arguments, r"< <(printf 'a\xff\xfe\n')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: Standard input is not utf-8 text" in done.stderr


def test_a_closed_standard_error_loses_no_more_than_what_stands_there(inkstand_home: Path) -> None:
    assert inkstand("generate", "2>&-").returncode == 2
    answered = inkstand(f"generate -p hello -n 2 --json -m {TINY}", "2>&-")
    assert (answered.returncode, json.loads(answered.stdout)["completion_tokens"]) == (0, 2)
    assert not (inkstand_home / "logs").exists()


@pytest.mark.parametrize(
    "arguments",
    [f"generate -p hello -n 2 -m {TINY}", f"chat -m {TINY}", f"inspect {TINY} --json", "info", "--help", "--version"],
)
def test_nothing_is_done_for_a_closed_standard_output(arguments: str, inkstand_home: Path) -> None:
    done = inkstand(arguments, ">&- < /dev/null")
    assert done.returncode == 2
    assert done.stderr.startswith("error: Standard output is closed"), done.stderr
    assert inkstand(arguments, "2>&- >&- < /dev/null").returncode == 2
    assert not (inkstand_home / "logs").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "arguments", [f"inspect {TINY} --json", f"generate -p hello -n 2 -m {TINY}", "--version", "bench --help"]
)
def test_a_full_device_is_named(arguments: str, unbuffered: bool, inkstand_home: Path) -> None:
    done = inkstand(arguments, "> /dev/full", unbuffered=unbuffered)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("error: Cannot write the output: no space left on device.\n")
    assert not (inkstand_home / "logs").exists()
    assert inkstand(arguments, "> /dev/full 2>&1", unbuffered=unbuffered).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_the_self_test_fails_on_a_full_device_and_needs_no_open_one() -> None:
    done = inkstand("--self-test", "> /dev/full")
    assert done.returncode == 1
    assert done.stderr.endswith("error: Cannot write the output: no space left on device.\n")
    assert inkstand("--self-test", ">&-").returncode == 0

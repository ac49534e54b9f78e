"""Standard streams that are closed or full, as a shell hands them to the real process."""

from __future__ import annotations

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


def test_bytes_that_are_no_text_are_the_users_to_mend() -> None:
    done = inkstand(f"generate -p - -m {TINY}", r"< <(printf '\xff\xfe')")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: Standard input is not utf-8 text")


def test_closed_output_streams_go_nowhere(inkstand_home: Path) -> None:
    assert inkstand("generate", "2>&-").returncode == 2
    answered = inkstand(f"generate -p hello -n 2 -m {TINY}", "2>&- >&-")
    assert (answered.returncode, answered.stdout) == (0, "")
    assert not (inkstand_home / "logs").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("arguments", [f"inspect {TINY} --json", f"generate -p hello -n 2 -m {TINY}"])
def test_a_full_device_is_named(arguments: str, unbuffered: bool, inkstand_home: Path) -> None:
    done = inkstand(arguments, "> /dev/full", unbuffered=unbuffered)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("error: Cannot write the output: no space left on device.\n")
    assert not (inkstand_home / "logs").exists()
    assert inkstand(arguments, "> /dev/full 2>&1", unbuffered=unbuffered).returncode == 2

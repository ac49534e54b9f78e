"""Moving the models folder in a process of its own, by the command."""

from __future__ import annotations

import os
from pathlib import Path

from engine.cli.main import main
from engine.hub import move  # noqa: F401 (imported when the command runs otherwise: in every child)
from engine.paths import HOME


def run(home: str, folder: str, marker: str) -> None:
    """`inkstand models move`; exits with its exit code."""
    os.environ[HOME], os.environ["HF_HOME"] = home, f"{home}/hf"
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    Path(marker).touch()
    raise SystemExit(main(["models", "move", folder]))

"""Entry point of the `inkstand` command and of `python -m app`."""

from __future__ import annotations

import sys

from engine.cli.main import main as run_cli


def main() -> int:
    """Runs the command line and returns the exit code."""
    return run_cli(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

"""The parts of the suite, which are run one at a time with `make test-hub` and the like."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
PROJECT = {
    "test_dependencies.py",
    "test_documents.py",
    "test_packaging.py",
    "test_packaging_licences.py",
    "test_packaging_linux.py",
    "test_workflows.py",
}


def part_of(path: Path) -> str:
    """The part of the suite that the tests of a file belong to: the name of their marker."""
    folder = path.relative_to(TESTS).parts[0]
    if path.name.startswith("test_fuzz_"):
        return "fuzz"
    if path.name in PROJECT:
        return "project"
    return "engine" if folder == path.name else folder

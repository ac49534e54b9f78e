"""What the documents say exists does exist: command lines, files, tests, links."""

from __future__ import annotations

import argparse
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from engine.cli.main import build_parser

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", "engine/README.md", "app/README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"]


@cache
def sources() -> list[str]:
    """Files of the project, not of environments and builds beside it."""
    folders = ("app", "engine", "packaging", "resources", "tests")
    return [path.as_posix() for folder in folders for path in (ROOT / folder).rglob("*")]


def commands() -> dict[str, argparse.ArgumentParser]:
    return next(dict(a.choices) for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))


def lines(text: str) -> list[str]:
    """Command lines in indented and fenced blocks, without what is said about them."""
    found = re.findall(r"^(?: {4})?(?:\$ )?(?:\.venv/bin/)?(inkstand [^`\n]*)$", text, re.MULTILINE)
    return [re.split(r" {2,}|\s#", line, maxsplit=1)[0] for line in found]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_command_lines_are_understood(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert document != "README.md" or len(lines(text)) > 15
    for line in lines(text):
        words = [word for word in shlex.split(line)[1:] if word != "WHAT"]
        if len(words) < 2 or any(word.endswith(",") for word in words):
            assert {word.rstrip(",") for word in words} <= commands().keys(), line  # commands by their names alone
        else:
            build_parser().parse_args(words)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_targets_of_make_and_links_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^PARTS := (.*)$", makefile, re.MULTILINE)
    targets = {*re.findall(r"^([a-z-]+):", makefile, re.MULTILINE), *(f"test-{part}" for part in parts.split())}
    assert set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in link or ((ROOT / document).parent / link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_named_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    package = (ROOT / document).parent if document.count("/") == 1 and not document.startswith(".") else ROOT
    for span in re.findall(r"`([\w./-]+\.(?:py|md|toml))`", text):
        found = any((base / span).exists() for base in (ROOT, package))
        assert found or any(path.endswith(f"/{span}") for path in sources()), span


@pytest.mark.parametrize("package", ["app", "engine"])
def test_every_module_is_on_the_map_of_its_package(package: str) -> None:
    """By its path, or by its name in a section whose heading names the folder."""
    named: set[str] = set()
    for section in (ROOT / package / "README.md").read_text(encoding="utf-8").split("\n## "):
        folders = re.findall(r"`([\w/]+/)`", section.partition("\n")[0])
        for span in re.findall(r"`([\w/]+\.py)`", section):
            named |= {span, *(folder + span for folder in folders)}
    modules = {path.relative_to(ROOT / package).as_posix() for path in (ROOT / package).rglob("[!_]*.py")}
    assert len(modules) > 80
    assert sorted(modules - named) == []


def test_every_promise_names_its_tests() -> None:
    text = (ROOT / ".github/SECURITY.md").read_text(encoding="utf-8")
    rows = [line for line in text.split("\n") if line.startswith("| ") and "Tested in" not in line]
    assert len(rows) >= 10
    for row in rows:
        files = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert files, row
        assert all((ROOT / file).is_file() for file in files), row


def test_the_demo_carries_its_licence_and_where_it_comes_from() -> None:
    provenance = (ROOT / "resources/demo_checkpoint/PROVENANCE.md").read_text(encoding="utf-8")
    notice = (ROOT / "resources" / "NOTICE").read_text(encoding="utf-8")
    for text in (provenance, notice):
        assert "SmolLM2-135M-Instruct" in text
        assert "Apache" in text
    for script in re.findall(r"`(\w+\.py)`", provenance):
        assert (ROOT / "packaging/demo" / script).is_file(), script
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert 'license-files = ["LICENSE", "resources/NOTICE"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")

"""Lints of the workflows, which run on other machines only, and of the parts of the suite that they name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from parts import part_of

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = sorted((ROOT / "packaging").rglob("*.sh"))


def loaded(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def variable(name: str) -> list[str]:
    """Words of a variable of the Makefile."""
    (value,) = re.findall(rf"^{name} := ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    return value.replace("\\\n", " ").split()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_what_exists_with_least_rights(path: Path) -> None:
    workflow = loaded(path)
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    commands = "\n".join(step.get("run", "") for step in steps(workflow))
    called = set(re.findall(r"\bmake ([a-z-]+)", commands))
    assert called
    assert called <= targets
    for script in re.findall(r"packaging/\S+\.sh", commands):
        assert (ROOT / script) in SCRIPTS
    # Values that outsiders choose (titles, branches) would be run as commands if they were pasted into one.
    assert "${{" not in commands
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job.get("permissions", {}) == ({"contents": "write"} if name == "release" else {})
        assert job.get("timeout-minutes", 0) <= 90
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_github_s_own_and_pinned_to_a_commit(path: Path) -> None:
    used = re.findall(r"\buses: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_an_action_has_one_version() -> None:
    used = {action for path in WORKFLOWS for action in re.findall(r"\buses: (.*)$", path.read_text(), re.MULTILINE)}
    assert len(used) == len({action.split("@")[0] for action in used})


def test_both_systems_are_checked_and_bundled() -> None:
    assert [path.name for path in WORKFLOWS] == ["bundle.yml", "ci.yml"]
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        assert "macos-" in text
        assert "ubuntu-" in text
    bundle = loaded(WORKFLOWS[0])["jobs"]["macos"]["steps"]
    signing = next(step for step in bundle if "sign.sh" in step.get("run", ""))
    assert signing["if"] == "env.SIGNED == 'true'"
    order = [signing["run"].index(name) for name in ("sign.sh", "self_test.sh", "notarize.sh")]
    assert order == sorted(order)


def test_every_check_of_the_makefile_is_run() -> None:
    commands = "\n".join(step.get("run", "") for step in steps(loaded(ROOT / ".github" / "workflows" / "ci.yml")))
    for target in ("check", "lock-check", "audit", "coverage", "coverage-floor", "fuzz"):
        assert f"make {target}" in commands
    assert 'make "test-$PART"' in commands


def test_every_part_of_the_suite_is_run_and_has_its_marker() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    markers = [line.split(":")[0] for line in project["tool"]["pytest"]["ini_options"]["markers"]]
    parts = variable("PARTS")
    assert markers == [*parts, "slow"]
    assert loaded(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["tests"]["strategy"]["matrix"]["part"] == parts
    assert {part_of(path) for path in (ROOT / "tests").rglob("test_*.py")} == set(parts)


def test_what_must_be_covered_wholly_exists() -> None:
    """coverage is silent about a file that is not there."""
    for name in [*variable("COVERED")[0].split(","), *variable("COVERING")]:
        assert (ROOT / name).is_file(), name

"""Lock files: hashes for everything, in agreement with pyproject.toml, and only licences that may be shipped."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))
_ENTRY = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>.+?))?"
    r"(?P<hashes>(?: \\\n    --hash=\S+)*)$",
    re.MULTILINE,
)
GROUPS = PROJECT["dependency-groups"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
RUN = PROJECT["project"]["dependencies"]
WANTED = {
    "requirements.lock": [*RUN, *GROUPS["build"]],
    "requirements-cuda.lock": [*RUN, *EXTRAS["cuda"], *GROUPS["build"]],
    "requirements-dev.lock": [*RUN, *EXTRAS["dev"], *GROUPS["build"]],
    "requirements-bundle.lock": [*RUN, *GROUPS["bundle"], *GROUPS["build"]],
    "requirements-tools.lock": [*GROUPS["tools"], *GROUPS["build"]],
    "requirements-fuzz.lock": GROUPS["fuzz"],
}
PLATFORMS = [
    {
        "sys_platform": system,
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.1",
    }
    for system, machine in (("linux", "x86_64"), ("darwin", "arm64"))
    for python in ("3.11", "3.12", "3.13")
]
PERMISSIVE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "PSF-2.0", "Zlib",
}  # fmt: skip
"""May be passed on inside the app, with their texts."""
ONLY_LINKED = {"LGPL-3.0-only OR GPL-2.0-only OR GPL-3.0-only"}
"""Qt for Python, under the LGPL: its libraries stay files of their own, which a user can replace."""
CLASSIFIED = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def entries(lock: str) -> list[re.Match[str]]:
    return list(_ENTRY.finditer((ROOT / lock).read_text(encoding="utf-8")))


def installed(entry: re.Match[str], platform: dict[str, str]) -> bool:
    return entry["marker"] is None or Marker(entry["marker"]).evaluate(platform)


def licence(found: Distribution) -> str:
    """SPDX expression: as declared, or from the classifiers of older packages."""
    metadata = found.metadata
    declared = metadata.get("License-Expression") or metadata.get("License") or ""
    if declared and "\n" not in declared:
        return declared
    classified = [CLASSIFIED[name] for name in metadata.get_all("Classifier") or () if name in CLASSIFIED]
    return " AND ".join(classified)


def test_every_lock_file_is_known() -> None:
    assert sorted(WANTED) == LOCKS


@pytest.mark.parametrize("lock", LOCKS)
def test_nothing_is_installed_without_a_hash(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    found = entries(lock)
    # Whatever is no comment, hash or entry (an address, a path, an option) would go past pip's check of hashes.
    lines = [line for line in text.splitlines() if not line.startswith(("#", "    --hash=sha256:"))]
    assert len(lines) == len(found) > 0
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry["hashes"]) for entry in found)


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda p: f"{p['sys_platform']}-{p['python_version']}")
def test_a_lock_file_holds_what_pyproject_asks_for(lock: str, platform: dict[str, str]) -> None:
    pinned: dict[str, Version] = {}
    for entry in entries(lock):
        if installed(entry, platform):
            name = canonicalize_name(entry["name"])
            assert name not in pinned, f"{name} twice"
            pinned[name] = Version(entry["version"])
    for text in WANTED[lock]:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate(platform):
            continue
        name = canonicalize_name(wanted.name)
        assert name in pinned, text
        assert wanted.specifier.contains(pinned[name]), f"{text}, but {pinned[name]} is locked"


@pytest.mark.parametrize("lock", ["requirements-cuda.lock", "requirements-dev.lock", "requirements-bundle.lock"])
def test_what_is_tested_is_what_is_run(lock: str) -> None:
    """All environments have the same versions of what the program needs."""
    run, here = ({(entry["name"], entry["version"]) for entry in entries(name)} for name in ("requirements.lock", lock))
    replaced = {"mlx-cpu"} if lock == "requirements-cuda.lock" else set()
    assert {name for name, _ in run - here} == replaced


def test_licences_of_what_is_shipped_may_be_shipped() -> None:
    checked = 0
    for entry in entries("requirements.lock"):
        try:
            found = distribution(entry["name"])
        except PackageNotFoundError:
            continue  # of another system
        named = licence(found)
        assert named, f"{entry['name']} does not say under which licence it is"
        if named in ONLY_LINKED:
            assert entry["name"] in {"pyside6-essentials", "shiboken6"}
        else:
            parts = set(re.split(r" (?:AND|OR) ", named.replace("(", "").replace(")", "")))
            assert parts <= PERMISSIVE, f"{entry['name']} is under {named}"
        checked += 1
    assert checked > 25

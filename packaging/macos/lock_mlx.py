"""Pins the MLX wheels that Inkstand.app is built from, at the version of requirements.lock, to standard output.

    python packaging/macos/lock_mlx.py MACOS > packaging/macos/mlx.lock

MLX has a wheel per macOS, and pip takes the newest one that the building machine can run: the app would then need that
machine's macOS. MACOS, as 14.0, is the oldest one that the app is for. Each line has one hash, that of the wheel in its
comment; tests/test_packaging.py compares the comments' tags with Info.plist and the hashes with requirements.lock.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

PACKAGES = ("mlx", "mlx-metal")
PYTHON = "3.13"
"""The interpreter that the app brings along; .github/workflows/bundle.yml builds with it."""
LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"


def wheel(package: str, version: str, macos: str) -> tuple[str, str]:
    """File name and SHA-256 of the wheel that pip would install on Apple silicon with that macOS."""
    with tempfile.TemporaryDirectory() as target:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
        command += ["--ignore-installed", "--no-deps", "--only-binary", ":all:", "--target", target, "--report", "-"]
        command += ["--platform", f"macosx_{macos.replace('.', '_')}_arm64", "--python-version", PYTHON]
        done = subprocess.run([*command, f"{package}=={version}"], check=True, stdout=subprocess.PIPE)
    (found,) = json.loads(done.stdout)["install"]
    info = found["download_info"]
    return unquote(info["url"].rsplit("/", 1)[1]), info["archive_info"]["hashes"]["sha256"]


def main(argv: list[str]) -> int:
    if len(argv) != 1 or not re.fullmatch(r"\d+\.\d+", argv[0]):
        sys.stderr.write("usage: python packaging/macos/lock_mlx.py MACOS\n")
        return 2
    lock = LOCK.read_text(encoding="utf-8")
    print('# This file was written by "make lock".')
    for package in PACKAGES:
        pinned = re.search(rf"^{package}==(\S+)", lock, re.MULTILINE)
        assert pinned is not None
        name, digest = wheel(package, pinned.group(1), argv[0])
        print(f"{package}=={pinned.group(1)} --hash=sha256:{digest}  # {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

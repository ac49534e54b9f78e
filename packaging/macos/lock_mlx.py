"""Pins the MLX wheels that Inkstand.app is built from, at the version of requirements.lock, to standard output.

    python packaging/macos/lock_mlx.py MACOS > packaging/macos/mlx.lock

MLX has a wheel per macOS, and pip takes the newest one that the building machine can run: the app would then need that
machine's macOS. MACOS, as 14.0, is the oldest one that the app is for. Each line has one hash, that of the wheel in its
comment, and below it stand the libraries in that wheel. tests/test_packaging.py compares the tags with Info.plist, the
hashes with requirements.lock, and the libraries with what inkstand.spec takes along.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGES = ("mlx", "mlx-metal")
PYTHON = "3.13"
"""The interpreter that the app brings along; .github/workflows/bundle.yml builds with it."""
LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"


def download(package: str, version: str, macos: str, target: str) -> Path:
    """The wheel that pip would install on Apple silicon with that macOS."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--platform", f"macosx_{macos.replace('.', '_')}_arm64"]
    command += ["--python-version", PYTHON, "--dest", target, f"{package}=={version}"]
    subprocess.run(command, check=True)
    (found,) = Path(target).glob(f"{package.replace('-', '_')}-*.whl")
    return found


def libraries(wheel: Path) -> list[str]:
    """What the wheel holds for the machine, by its place in site-packages."""
    with zipfile.ZipFile(wheel) as content:
        return sorted(name for name in content.namelist() if name.endswith((".dylib", ".metallib", ".so")))


def main(argv: list[str]) -> int:
    if len(argv) != 1 or not re.fullmatch(r"\d+\.\d+", argv[0]):
        sys.stderr.write("usage: python packaging/macos/lock_mlx.py MACOS\n")
        return 2
    lock = LOCK.read_text(encoding="utf-8")
    print('# This file was written by "make lock".')
    for package in PACKAGES:
        pinned = re.search(rf"^{package}==(\S+)", lock, re.MULTILINE)
        assert pinned is not None
        with tempfile.TemporaryDirectory() as target:
            wheel = download(package, pinned.group(1), argv[0], target)
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            print(f"{package}=={pinned.group(1)} --hash=sha256:{digest}  # {wheel.name}")
            for name in libraries(wheel):
                print(f"#   {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

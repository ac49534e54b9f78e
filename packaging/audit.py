"""Asks PyPI for known vulnerabilities of every locked package, those for other systems and Pythons too:

    python packaging/audit.py LOCK...

pip-audit alone would look only at what the machine that runs it would install. Exit code 1 where one is known, or
where a package could not be looked up.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", re.MULTILINE)


def rounds(texts: Iterable[str]) -> list[list[str]]:
    """All `name==version` of the lock files, in lists that name no package twice."""
    versions: dict[str, list[str]] = {}
    for name, version in (pin for text in texts for pin in _PIN.findall(text)):
        if version not in versions.setdefault(name, []):
            versions[name].append(version)
    most = max(map(len, versions.values()), default=0)
    return [[f"{name}=={found[i]}" for name, found in sorted(versions.items()) if i < len(found)] for i in range(most)]


def main(locks: list[str]) -> int:
    failed = False
    for pins in rounds(Path(lock).read_text(encoding="utf-8") for lock in locks):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write("\n".join(pins))
            file.flush()
            command = [sys.executable, "-m", "pip_audit", "--strict", "--disable-pip", "--no-deps"]
            done = subprocess.run([*command, "--progress-spinner", "off", "-r", file.name], check=False)
        print(f"{len(pins)} packages: {'see above' if done.returncode else 'nothing known'}", flush=True)
        failed |= done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Gathers the licence texts of everything in a bundle, for inkstand.spec; app/licences.py reads what is written here.

A bundle is made of distributions of Python packages, Python itself, PyInstaller's bootloader and, on Linux, libraries
of the building system, whose texts its packages keep in /usr/share/doc.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import Distribution, distribution
from pathlib import Path

from app.licences import INDEX, Component, component_of, in_order

Entry = tuple[str, str, str]
"""As PyInstaller lists a file: place in the bundle, source, kind."""
_COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z][A-Za-z0-9.-]*[A-Za-z0-9])")
_DOCUMENTS = Path("/usr/share/doc")


def in_bundle(entries: Iterable[Entry], distributions: Iterable[Distribution]) -> list[Distribution]:
    """The distributions of which at least one file is among the collected ones."""
    sources = {Path(source).resolve() for _, source, kind in entries if source and kind != "SYMLINK"}
    return [
        one
        for one in distributions
        if any(Path(str(one.locate_file(file))).resolve() in sources for file in one.files or ())
    ]


def system_libraries(entries: Iterable[Entry], site: Path) -> list[Path]:
    """Sources of the libraries that come from neither a wheel nor the checkout."""
    found = {Path(source).resolve() for target, source, kind in entries if kind == "BINARY" and "/" not in target}
    return sorted(source for source in found if not source.is_relative_to(site.resolve()))


def debian_packages(files: Iterable[Path], run: Callable[[Sequence[str]], str]) -> dict[str, list[Path]]:
    """Names of the packages of Debian or Ubuntu that own the files; the empty name has those of none.

    Args:
        run: standard output of a command; empty when it fails.
    """
    owners: dict[str, list[Path]] = {}
    for file in files:
        # The database has either of two names for a file, where /lib is a link to /usr/lib.
        named = [str(file), str(file).removeprefix("/usr"), f"/usr{file}"]
        answer = next((line for name in named for line in run(["dpkg", "-S", name]).splitlines() if ": " in line), "")
        owners.setdefault(answer.split(":")[0].split(",")[0], []).append(file)
    return owners


def debian_component(package: str, run: Callable[[Sequence[str]], str], documents: Path = _DOCUMENTS) -> Component:
    """A package's copyright file and the common texts that it refers to."""
    copyright_file = documents / package / "copyright"
    texts = [copyright_file] if copyright_file.is_file() else []
    for name in sorted(set(_COMMON.findall(copyright_file.read_text("utf-8", "replace")))) if texts else ():
        common = Path("/usr/share/common-licenses", name)
        texts += [common] if common.is_file() else []
    return Component(package, run(["dpkg-query", "-W", "-f=${Version}", package]).split("\n")[0], "", texts)


def python_component() -> Component:
    """The interpreter with its library, and what the builds of python.org link into it."""
    text = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")
    return Component("Python", sys.version.split()[0], "PSF-2.0", [text] if text.is_file() else [])


def gather(entries: Sequence[Entry], distributions: Iterable[Distribution], site: Path, root: Path) -> list[Component]:
    """Everything in a bundle, Inkstand first.

    Raises:
        SystemExit: something has no text.
    """
    version = distribution("inkstand").version
    own = Component("Inkstand", version, "Apache-2.0", [root / "LICENSE", root / "resources" / "NOTICE"])
    # Of PyInstaller itself, whose bootloader is the executable, only the hooks are among the files.
    installer = replace(component_of(distribution("pyinstaller")), licence="GPL-2.0-or-later WITH Bootloader-exception")
    found = [component_of(one) for one in in_bundle(entries, distributions)]
    found = [*(one for one in found if one.name != installer.name), installer, python_component()]
    if sys.platform == "linux" and shutil.which("dpkg") is not None:
        packages = debian_packages(system_libraries(entries, site), _output)
        for file in packages.pop("", []):
            # Of a Python that was built by hand, whose licence covers it, or of nobody that is known.
            if not file.is_relative_to(sys.base_prefix):
                sys.stderr.write(f"warning: no licence text is known for {file}\n")
        found += [debian_component(package, _output) for package in packages]
    lacking = [component.name for component in found if not component.texts]
    if lacking:
        raise SystemExit(
            f"No licence texts for {', '.join(lacking)}: add them to resources/licenses and app/licences.py."
        )
    return [own, *in_order(found)]


def write(found: Iterable[Component], folder: Path) -> list[Entry]:
    """Write the index below `folder`. Returns what goes into the bundle."""
    entries: list[Entry] = []
    index: list[dict[str, object]] = []
    place = Path(INDEX).parent
    for component in found:
        texts: dict[str, Path] = {}
        for text in component.texts:
            # Packages keep the texts of their parts in folders, all with the same few names.
            parts = text.parts[text.parts.index("licenses") + 1 :] if "licenses" in text.parts else (text.name,)
            texts["-".join(parts)] = text
        entries += [(str(place / component.name / name), str(text), "DATA") for name, text in texts.items()]
        named = [f"{component.name}/{name}" for name in texts]
        index.append(
            {"name": component.name, "version": component.version, "licence": component.licence, "texts": named}
        )
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / Path(INDEX).name
    written.write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return [*entries, (INDEX, str(written), "DATA")]


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    )
    return done.stdout if done.returncode == 0 else ""

"""What the program consists of and under which licences: everything in a bundle, elsewhere what it runs on."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from engine.paths import resource

INDEX = "licenses/index.json"
"""In a bundle, written when it is made: a list of objects with name, version, licence and the texts' places."""
SUPPLEMENTS = {
    "cmeel-openblas": ("OpenBLAS.txt", "LAPACK.txt"),
    # Its wheel for Linux brings netlib's BLAS and LAPACK, and the Fortran runtime of GCC.
    "mlx-cpu": ("LAPACK.txt", "GPL-3.0.txt", "GCC-exception-3.1.txt", "LGPL-2.1.txt"),
    "pyside6-essentials": ("Qt.txt", "LGPL-3.0.txt", "GPL-3.0.txt"),
    "shiboken6": ("Qt.txt", "LGPL-3.0.txt", "GPL-3.0.txt"),
    "tokenizers": ("Apache-2.0.txt",),
}
"""Texts in resources/licenses for packages that come without those of all their parts."""
_TEXT = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
_ASKED = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^]]*)\])?")
_EXTRA = re.compile(r"extra == ['\"]([^'\"]+)['\"]")


@dataclass(frozen=True, slots=True)
class Component:
    """`licence` is an SPDX expression, or what the makers call it; empty where only the texts say it."""

    name: str
    version: str
    licence: str
    texts: Sequence[Path]


def components() -> Sequence[Component]:
    """Inkstand first, then everything else by name."""
    bundle = getattr(sys, "_MEIPASS", None)
    return installed() if bundle is None else read_index(Path(bundle) / INDEX)


def read_index(index: Path) -> Sequence[Component]:
    """The components of a bundle; none where the index is missing or no list of them."""
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))
        return [
            Component(
                entry["name"], entry["version"], entry["licence"], [index.parent / text for text in entry["texts"]]
            )
            for entry in entries
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def installed(program: str = "inkstand") -> Sequence[Component]:
    """The program and the packages that it asks for, directly or through others, as far as they are installed."""
    found: dict[str, Component] = {}
    waiting, seen = [(program, frozenset[str]())], set[tuple[str, frozenset[str]]]()
    while waiting:
        asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        try:
            one = distribution(asked[0])
        except PackageNotFoundError:
            continue
        found[normalized(asked[0])] = component_of(one)
        waiting += _required(one, asked[1])
    own = found.pop(normalized(program), None)
    return [*([own] if own else []), *in_order(found.values())]


def _required(one: Distribution, extras: frozenset[str]) -> Iterable[tuple[str, frozenset[str]]]:
    """What a package asks for with these extras, as names with extras, whatever the system."""
    for line in one.requires or ():
        match = _ASKED.match(line)
        extra = _EXTRA.search(line)
        if match is not None and (extra is None or extra[1] in extras):
            yield match["name"], frozenset(part.strip() for part in (match["extras"] or "").split(",") if part.strip())


def in_order(found: Iterable[Component]) -> list[Component]:
    return sorted(found, key=lambda component: component.name.lower())


def component_of(one: Distribution) -> Component:
    """A package with the texts that it brings along and those that it lacks."""
    metadata = one.metadata
    stated = next((metadata[key] for key in ("License-Expression", "License") if key in metadata), "").strip()
    if not stated or "\n" in stated or len(stated) > 120:
        classifiers = metadata.get_all("Classifier") or []
        stated = ", ".join(line.split(" :: ")[-1] for line in classifiers if line.startswith("License ::"))
    texts = [Path(str(one.locate_file(file))) for file in one.files or () if is_text(PurePosixPath(file))]
    texts += [resource("licenses") / text for text in SUPPLEMENTS.get(normalized(metadata["Name"]), ())]
    return Component(metadata["Name"], one.version, stated, texts)


def is_text(file: PurePosixPath) -> bool:
    """Whether a file of a package is the text of a licence."""
    folder = next((part for part in file.parts if part.endswith(".dist-info")), None)
    return folder is not None and (file.name.upper().startswith(_TEXT) or "licenses" in file.parts)


def normalized(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()

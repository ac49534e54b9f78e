"""Values of Inkstand.app's Info.plist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

MARKDOWN = "net.daringfireball.markdown"
_TAG = re.compile(r"macosx_(\d+)_(\d+)_")


def version(root: Path) -> str:
    """The program's version, as pyproject.toml has it from engine/__init__.py."""
    match = re.search(r'^__version__ = "([^"]+)"$', (root / "engine" / "__init__.py").read_text(), re.MULTILINE)
    assert match is not None
    return match.group(1)


def oldest_macos(tags: Iterable[str]) -> str:
    """The oldest macOS that wheels with these platform tags run on, as `14.0`: the newest one that a tag asks for.

    Raises:
        ValueError: none of them is a tag of macOS.
    """
    asked = [(int(major), int(minor)) for tag in tags for major, minor in _TAG.findall(tag)]
    return ".".join(map(str, max(asked)))


def minimum_macos(distributions: Iterable[Distribution]) -> str:
    """The oldest macOS on which everything that is installed runs; of each wheel its most lenient tag counts."""
    least = []
    for distribution in distributions:
        tags = re.findall(r"^Tag: (\S+)$", distribution.read_text("WHEEL") or "", re.MULTILINE)
        asked = [tag for tag in tags if _TAG.search(tag)]
        if asked:
            least.append(min(asked, key=lambda tag: tuple(map(int, _TAG.search(tag).groups()))))
    return oldest_macos(least)


def promised_macos(distributions: Iterable[Distribution], lock: str) -> str:
    """The oldest macOS of mlx.lock, which the Makefile and the cask name.

    Raises:
        SystemExit: something that is installed asks for a newer one.
    """
    promised, needed = oldest_macos(lock.splitlines()), minimum_macos(distributions)
    if tuple(map(int, needed.split("."))) > tuple(map(int, promised.split("."))):
        raise SystemExit(
            f"What is installed needs macOS {needed}, but the app is for {promised}, see MACOS in the Makefile."
        )
    return promised


def values(version: str, minimum: str) -> dict[str, Any]:
    """What PyInstaller does not set by itself.

    Args:
        minimum: oldest macOS that the bundle runs on, as `14.0`.
    """
    return {
        "CFBundleDisplayName": "Inkstand",
        "CFBundleShortVersionString": version,
        "CFBundleVersion": version,
        "LSMinimumSystemVersion": minimum,
        # MLX has wheels for Apple silicon only.
        "LSArchitecturePriority": ["arm64"],
        "LSRequiresNativeExecution": True,
        "LSApplicationCategoryType": "public.app-category.productivity",
        "NSHighResolutionCapable": True,
        "NSSupportsAutomaticGraphicsSwitching": True,
        "NSHumanReadableCopyright": "The Inkstand authors. Apache License 2.0.",
        # Exported chats. Models are folders, which are chosen inside the window; as a document type they would put
        # Inkstand beside every folder. Alternate: no editor loses its files to the chat by the installation of it.
        "CFBundleDocumentTypes": [
            _document("Exported chat", "public.json", ["json"]),
            _document("Exported chat as Markdown", MARKDOWN, ["md", "markdown"]),
        ],
        # Imported: the type is its inventor's, and a system without an editor for it has not heard of it.
        "UTImportedTypeDeclarations": [
            {
                "UTTypeIdentifier": MARKDOWN,
                "UTTypeDescription": "Markdown",
                "UTTypeConformsTo": ["public.plain-text"],
                "UTTypeTagSpecification": {"public.filename-extension": ["md", "markdown"]},
            }
        ],
    }


def _document(name: str, content_type: str, extensions: list[str]) -> dict[str, Any]:
    return {
        "CFBundleTypeName": name,
        "CFBundleTypeRole": "Viewer",
        "LSHandlerRank": "Alternate",
        "LSItemContentTypes": [content_type],
        "CFBundleTypeExtensions": extensions,
    }

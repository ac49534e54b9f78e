"""What the library remembers between runs: `library.json` in the data directory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from filelock import FileLock

from engine.hub.manifest import read_json, write_json


@dataclass(slots=True)
class Remembered:
    """A folder of models as it was when it was last seen."""

    device: int
    models: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By path: the model's JSON form."""


@dataclass(slots=True)
class LibrarySettings:
    """Paths are absolute."""

    models: str | None = None
    """Folder for downloads; None = the usual one."""
    folders: list[str] = field(default_factory=list[str])
    """Further folders to look for models in."""
    pairs: dict[str, str] = field(default_factory=dict[str, str])
    """Path of a model -> path of the folder with its head, as the user chose; "" = none."""
    seen: dict[str, Remembered] = field(default_factory=dict[str, Remembered])
    """By folder."""


class SettingsFile:
    """Reads and writes the settings; processes take turns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> LibrarySettings:
        """The settings; the defaults where there are none that can be read."""
        value = read_json(self._path)
        raw = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        try:
            return LibrarySettings(
                models=raw.get("models"),
                folders=[str(f) for f in raw.get("folders", [])],
                pairs={str(k): str(v) for k, v in raw.get("pairs", {}).items()},
                seen={str(k): Remembered(int(v["device"]), dict(v["models"])) for k, v in raw.get("seen", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return LibrarySettings()

    @contextmanager
    def change(self) -> Generator[LibrarySettings]:
        """Reads, lets the caller change, and writes if anything changed. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self._path.with_suffix(".lock")):
            settings = self.read()
            before = asdict(settings)
            yield settings
            if (after := asdict(settings)) != before:
                write_json(self._path, {"version": 1, **after})

"""What the library remembers between runs: `library.json` in the data directory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from engine.hub.errors import BusyError, TargetError
from engine.hub.manifest import read_json, write_json
from engine.locks import FileLock, HeldError

_TURN_S = 5.0
"""Seconds to wait for another process, which needs milliseconds."""


@dataclass(slots=True)
class Remembered:
    """A folder of models as it was when it was last seen."""

    device: int
    models: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By path: the model's JSON form."""


@dataclass(slots=True)
class Moving:
    """A move of the models folder that has begun and not ended."""

    source: str
    """Where the models were."""
    listed: bool
    """The source was among the further folders before."""


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
    moving: Moving | None = None


class SettingsFile:
    """Reads and writes the settings; processes take turns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> LibrarySettings:
        """The settings; the defaults where there are none that can be read."""
        value = read_json(self._path)
        raw = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        try:
            models = raw.get("models")
            return LibrarySettings(
                models=models if isinstance(models, str) else None,
                folders=[str(f) for f in raw.get("folders", [])],
                pairs={str(k): str(v) for k, v in raw.get("pairs", {}).items()},
                seen={str(k): Remembered(int(v["device"]), dict(v["models"])) for k, v in raw.get("seen", {}).items()},
                moving=Moving(str(move["source"]), bool(move["listed"])) if (move := raw.get("moving")) else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return LibrarySettings()

    @contextmanager
    def change(self) -> Generator[LibrarySettings]:
        """Reads, lets the caller change, and writes if anything changed.

        Raises:
            BusyError: another process has been at it for seconds.
            TargetError: the file cannot be written, and is as it was.
        """
        lock = FileLock(self._path.with_suffix(".lock"))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(wait_s=_TURN_S)
        except HeldError as error:
            raise BusyError(f"{self._path} is in use by {error.holder.name}.", "Try again, or end it.") from error
        except OSError as error:
            raise self._unwritable(error) from error
        with lock:
            settings = self.read()
            before = asdict(settings)
            yield settings
            if (after := asdict(settings)) != before:
                self._write(after)

    def _write(self, value: dict[str, Any]) -> None:
        try:
            write_json(self._path, {"version": 1, **value})
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> TargetError:
        return TargetError(
            f"What was chosen cannot be stored in {self._path} ({error.strerror or error}).",
            "Make room on its disk, or make the file and its folder writable.",
        )

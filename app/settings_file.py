"""Settings on disk: one JSON object, written atomically, in which unknown names survive.

A newer version may have written names that this one does not know, so saving merges into what is there.
"""

from __future__ import annotations

import base64
import binascii
import json
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from app.files import write_atomically
from app.json_text import parse
from app.settings import DraftDefault, Sampling, Settings, SettingsError

_MAX_BYTES = 16 * 2**20

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and sentences for the user about what of the file could not be used."""

    settings: Settings
    notices: tuple[str, ...] = ()


class SettingsFile:
    """The file at one path; it need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Loaded:
        """Reads the file. Whatever cannot be used is replaced by its default, and said.

        A file that is no JSON object at all is renamed and so kept.
        """
        try:
            raw = self._read()
        except OSError as error:
            why = error.strerror or error
            return Loaded(Settings(), (f"The settings {self.path} cannot be read ({why}), so the defaults are used.",))
        except ValueError as error:
            return Loaded(Settings(), (self._set_aside(error),))
        settings, refused = _read_settings(raw)
        return Loaded(settings, tuple(f"{self.path.name}: {error.title} The default is used." for error in refused))

    def save(self, settings: Settings) -> None:
        """Replaces the file in one step, keeping names that are not known here.

        Raises:
            SettingsError: it cannot be written; the old file is still there.
        """
        try:
            try:
                kept = self._read()
            except ValueError as error:
                self._set_aside(error)
                kept = {}
            document = json.dumps(_merged(kept, _encode(settings)), ensure_ascii=True, indent=2, allow_nan=False)
            write_atomically(self.path, document + "\n")
        except OSError as error:
            raise SettingsError(
                f"The settings could not be written to {self.path} ({error.strerror or error}).",
                "Make room on its disk, or make the file and its folder writable.",
            ) from error

    def _read(self) -> Json:
        """The object in the file; empty without a file. Raises ValueError when there is none in it, or OSError."""
        try:
            # Reading a pipe would wait for somebody to write.
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise ValueError("it is no file")
            with self.path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
        raw = parse(data.decode("utf-8-sig"))
        if not isinstance(raw, dict):
            raise ValueError("it holds no JSON object")
        return cast("Json", raw)

    def _set_aside(self, why: ValueError) -> str:
        stamp = datetime.now().astimezone().strftime("%Y-%m-%d-%H%M%S-%f")
        kept = self.path.with_name(f"{self.path.stem}.damaged.{stamp}{self.path.suffix}")
        try:
            self.path.replace(kept)
        except OSError as error:
            return (
                f"The settings {self.path} are damaged ({why}) and could not be renamed ({error}). Defaults are used."
            )
        return f"The settings were damaged ({why}), so the defaults are used. The old file was kept as {kept}."


def _read_settings(raw: Json) -> tuple[Settings, list[SettingsError]]:
    """Takes the fields one by one, so that a wrong one costs no other."""
    settings = Settings()
    refused: list[SettingsError] = []
    for name in (item.name for item in fields(Settings)):
        if name not in raw:
            continue
        try:
            if name in ("sampling", "draft"):
                part, wrong = _read_part(name, getattr(settings, name), raw[name])
                refused += wrong
                settings = replace(settings, **{name: part})
            else:
                settings = replace(settings, **{name: _DECODERS.get(name, _as_it_is)(raw[name])})
        except SettingsError as error:
            refused.append(error)
    return settings, refused


def _read_part(
    name: str, part: Sampling | DraftDefault, raw: object
) -> tuple[Sampling | DraftDefault, list[SettingsError]]:
    if not isinstance(raw, dict):
        raise SettingsError(f"{name} is {json.dumps(raw)[:80]}.", "It must be an object.")
    values = cast("Json", raw)
    refused: list[SettingsError] = []
    for item in fields(part):
        if item.name in values:
            try:
                part = replace(part, **{item.name: values[item.name]})
            except SettingsError as error:
                refused.append(error)
    return part, refused


def _as_it_is(value: object) -> object:
    return value


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) and value else value


def _paths(value: object) -> object:
    return tuple(map(_path, cast("list[object]", value))) if isinstance(value, list) else value


def _bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


_DECODERS: Mapping[str, Callable[[object], object]] = {
    "models_folder": _path,
    "further_folders": _paths,
    "window_state": _bytes,
}


def _encode(settings: Settings) -> Json:
    document = asdict(settings)
    document["models_folder"] = None if settings.models_folder is None else str(settings.models_folder)
    document["further_folders"] = [str(folder) for folder in settings.further_folders]
    document["window_state"] = base64.b64encode(settings.window_state).decode("ascii")
    return document


def _merged(old: Json, new: Json) -> Json:
    merged = dict(old)
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            merged[name] = _merged(cast("Json", before), cast("Json", value))
        else:
            merged[name] = value
    return merged

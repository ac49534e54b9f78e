"""Reading a JSON object field by field, so that every wrong or missing value is named."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from engine.errors import ConfigError

_MAX_JSON_BYTES = 64 << 20
"""Far above any real config or index; keeps a mislabelled shard from being read as text."""
_HINT = "Compare the file with the checkpoint's original config.json, or download it again."


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `ConfigError` naming the file when it is anything else."""
    cure = "Download the file again."
    try:
        size = path.stat().st_size
        if size > _MAX_JSON_BYTES:
            raise ConfigError(f"{path} is {size} bytes long, which is no plausible JSON file of a checkpoint.", cure)
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.", cure) from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds a JSON {type(value).__name__} instead of an object.", cure)
    return cast("dict[str, Any]", value)


class Fields:
    """One JSON object of a config file.

    Every reader takes the accepted spellings of a field, in order of preference; a field that is absent or null
    falls back to `default`, and without a default it is reported as missing. All raise `ConfigError`.

    Args:
        raw: the object.
        where: what to call it in messages, for example "config.json: text_config".
    """

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self._raw = raw
        self.where = where

    def has(self, *names: str) -> bool:
        """Whether one of the spellings is present and not null."""
        return any(self._raw.get(name) is not None for name in names)

    def raw(self, *names: str) -> tuple[str, Any]:
        """The first spelling that is present and not null, with its value; otherwise the first name and None."""
        present = (name for name in names if self._raw.get(name) is not None)
        name = next(present, names[0])
        return name, self._raw.get(name)

    def wrong(self, name: str, value: Any, accepted: str) -> ConfigError:
        """The error for a value outside what is accepted."""
        return ConfigError(f"{self.where}.{name} is {value!r}; it must be {accepted}.", _HINT)

    def missing(self, name: str, *aliases: str, accepted: str) -> ConfigError:
        also = f" (also spelled {', '.join(aliases)})" if aliases else ""
        return ConfigError(f"{self.where}.{name}{also} is missing; it must be {accepted}.", _HINT)

    def integer(self, *names: str, low: int, high: int, default: int | None = None) -> int:
        accepted = f"a whole number from {low} to {high}"
        name, value = self.raw(*names)
        if value is None:
            if default is None:
                raise self.missing(*names, accepted=accepted)
            return default
        if not _is_integer(value) or not low <= value <= high:
            raise self.wrong(name, value, accepted)
        return value

    def number(self, *names: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number with low < value <= high."""
        accepted = f"a number above {low:g} and at most {high:g}"
        name, value = self.raw(*names)
        if value is None:
            if default is None:
                raise self.missing(*names, accepted=accepted)
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, value, accepted)
        if not math.isfinite(value) or not low < value <= high:
            raise self.wrong(name, value, accepted)
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        name, value = self.raw(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def fixed(self, name: str, only: object) -> None:
        """A switch that every model of the family sets the same way: absent, or exactly `only`."""
        if name not in self._raw:
            return
        value = self._raw[name]
        if value != only or isinstance(value, bool) != isinstance(only, bool):
            shown = {None: "null", True: "true", False: "false"}.get(cast(Any, only), repr(only))
            raise ConfigError(
                f"{self.where}.{name} is {value!r}; Inkstand implements the Inkling family, where it is {shown}.",
                "Choose another checkpoint: this one needs an architecture that is not supported.",
            )

    def indices(self, *names: str, count: int, default: Sequence[int] | None = None) -> frozenset[int]:
        """A list of distinct layer numbers below `count`."""
        accepted = f"a list of distinct layer numbers from 0 to {count - 1}"
        name, value = self.raw(*names)
        if value is None:
            if default is None:
                raise self.missing(*names, accepted=accepted)
            return frozenset(default)
        items = cast("list[Any]", value) if isinstance(value, list) else None
        if items is None or not all(_is_integer(i) and 0 <= i < count for i in items) or len(set(items)) != len(items):
            raise self.wrong(name, value, accepted)
        return frozenset(items)

    def kinds(self, *names: str, count: int, among: Mapping[str, bool]) -> tuple[bool, ...]:
        """A list of `count` words, each a key of `among`; returns what they stand for."""
        accepted = f"a list of {count} entries, each " + " or ".join(f'"{key}"' for key in among)
        name, value = self.raw(*names)
        if value is None:
            raise self.missing(*names, accepted=accepted)
        items = cast("list[Any]", value) if isinstance(value, list) else None
        if items is None or len(items) != count or not all(isinstance(i, str) and i in among for i in items):
            raise self.wrong(name, value, accepted)
        return tuple(among[i] for i in items)

    def nested(self, name: str) -> Fields | None:
        """The object under `name`, or None."""
        value = self._raw.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return Fields(cast("dict[str, Any]", value), f"{self.where}.{name}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

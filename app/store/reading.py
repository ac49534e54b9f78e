"""JSON objects of foreign origin, read field by field, so that a wrong value is named by its place in the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeGuard, cast

from app.json_text import FIELD_DEPTH, deeper_than, parse
from app.store.errors import ImportFileError

MAX_TIME = 253402300799.0
"""The last second of the year 9999."""
MAX_ID = 2**31 - 1
HINT = "Nothing was imported. Export the chat again, or mend the file in an editor."


def parse_json(text: str, what: str) -> object:
    """The value of a JSON text. Raises ImportFileError when it is none, or one that cannot be written again."""
    try:
        return parse(text)
    except ValueError as error:
        raise ImportFileError(f"{what} is no valid JSON ({error}).", HINT) from error


class Entry:
    """One object of the file; `where` is its place, for example "chats[0].messages[3]"."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise _wrong(where, raw, "an object")
        self._raw = cast("dict[str, Any]", raw)
        self.where = where

    def text(self, name: str, limit: int, default: str | None = None) -> str:
        value = self._raw.get(name, default)
        if not isinstance(value, str) or len(value) > limit:
            raise self.wrong(name, f"text of at most {limit:,} characters")
        return value

    def text_or_none(self, name: str, limit: int) -> str | None:
        return None if self._raw.get(name) is None else self.text(name, limit)

    def choice(self, name: str, among: Sequence[str]) -> str:
        value = self._raw.get(name)
        if not isinstance(value, str) or value not in among:
            raise self.wrong(name, " or ".join(f'"{one}"' for one in among))
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._raw.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def number(self, name: str, low: float, high: float) -> float:
        value = self._raw.get(name)
        if not is_number(value, low, high):
            raise self.wrong(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def number_or_none(self, name: str, low: float, high: float) -> float | None:
        return None if self._raw.get(name) is None else self.number(name, low, high)

    def integer(self, name: str, low: int, high: int) -> int:
        value = self._raw.get(name)
        if not is_integer(value, low, high):
            raise self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def integer_or_none(self, name: str, low: int, high: int) -> int | None:
        return None if self._raw.get(name) is None else self.integer(name, low, high)

    def items(self, name: str, limit: int, *, required: bool = False) -> list[Any]:
        value = self._raw.get(name, None if required else [])
        if not isinstance(value, list) or len(cast("list[Any]", value)) > limit:
            raise self.wrong(name, f"a list of at most {limit:,} entries")
        return cast("list[Any]", value)

    def free(self, name: str) -> dict[str, Any] | None:
        """An object whose fields are not looked at, or None."""
        value = self._raw.get(name)
        if value is None:
            return None
        if not isinstance(value, dict) or deeper_than(cast("dict[str, Any]", value), FIELD_DEPTH):
            raise self.wrong(name, f"an object nested at most {FIELD_DEPTH} deep")
        return cast("dict[str, Any]", value)

    def wrong(self, name: str, accepted: str) -> ImportFileError:
        """The error for a field whose value is none of what is accepted."""
        if name not in self._raw:
            return ImportFileError(f"{self.where}.{name} is missing; it must be {accepted}.".lstrip("."), HINT)
        return _wrong(f"{self.where}.{name}", self._raw[name], accepted)

    def wrong_item(self, name: str, index: int, value: object, accepted: str) -> ImportFileError:
        """The error for one entry of a list."""
        return _wrong(f"{self.where}.{name}[{index}]", value, accepted)


def is_integer(value: object, low: int, high: int) -> TypeGuard[int]:
    """Whether a JSON value is a whole number in the range; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: object, low: float, high: float) -> TypeGuard[int | float]:
    """Whether a JSON value is a number in the range; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _wrong(where: str, value: object, accepted: str) -> ImportFileError:
    shown = json.dumps(value)
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    return ImportFileError(f"{where.lstrip('.')} is {shown}; it must be {accepted}.", HINT)

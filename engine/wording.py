"""Counts, sizes and foreign text as people read them. 1 GB = 10^9 bytes, as disks are sold and macOS counts."""

from __future__ import annotations

import json
import re

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with control characters and lone surrogates spelt out, but for tabs and ends of lines.

    Names in a checkpoint and text of a model may hold what a terminal obeys, or what no stream can encode.
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def json_line(value: object) -> str:
    """`value` as JSON in one line that reads back as the same value, with what `printable` spells out escaped."""
    # json.dumps escapes the first 32 characters itself, not those that an 8-bit terminal obeys.
    text = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with the noun it counts; `many` is the plural where an s does not make it."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def size(count: float) -> str:
    """Three digits or so of a number of bytes: "0 B", "12.3 kB", "4.46 GB", "1.90 TB"."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B" or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {units[0]}"

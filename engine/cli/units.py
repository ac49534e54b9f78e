"""Sizes, rates and times as people read them. 1 GB = 10^9 bytes, as disks are sold and macOS counts."""

from __future__ import annotations

from engine.wording import size

__all__ = ["duration", "rate", "size"]


def rate(bytes_per_second: float) -> str:
    return f"{size(bytes_per_second)}/s"


def duration(seconds: float) -> str:
    """The two largest units: "48 s", "3 min 5 s", "2 h 10 min", "1 d 3 h"."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            parts.append("")
    return " ".join(p for p in parts[:2] if p)

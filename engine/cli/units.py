"""Sizes, rates and times as people read them. 1 GB = 10^9 bytes, as disks are sold and macOS counts."""

from __future__ import annotations


def size(count: float) -> str:
    """Three digits or so: "0 B", "12.3 kB", "4.46 GB", "1.9 TB"."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B" or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {units[0]}"


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

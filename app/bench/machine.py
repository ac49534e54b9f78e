"""How busy the machine was with other things than the bench."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


class Others:
    """Counts, from when it is made, what other programs take of the processors. Knows nothing outside of Linux."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._mine, self._all = _own_seconds(), _busy_seconds()

    def percent(self) -> float | None:
        """Of all processors together; None where the system does not tell."""
        if self._all is None:
            return None
        busy = (_busy_seconds() or 0.0) - self._all - (_own_seconds() - self._mine)
        return max(0.0, 100 * busy / ((time.monotonic() - self._began) * (os.cpu_count() or 1)))


def _own_seconds() -> float:
    """Processor time of this process and of the children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _busy_seconds() -> float | None:
    """Processor time of everything since the machine was started."""
    if sys.platform != "linux":
        return None
    user, nice, system, _idle, _wait, irq, soft, stolen = map(
        int, Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    )
    # `stolen` is what the host gave to other guests, which is as good as another program here.
    return (user + nice + system + irq + soft + stolen) / os.sysconf("SC_CLK_TCK")

"""Whether a window can be opened here, found out before Qt is touched: Qt ends the process when it cannot."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from engine.errors import UserError


class NoDisplay(UserError):  # noqa: N818 (a situation, not a mistake)
    """There is nothing to open a window on."""


def check_display(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> None:
    """Raises NoDisplay with the reason when a window cannot be opened."""
    if platform in ("darwin", "win32") or environ.get("QT_QPA_PLATFORM"):
        return
    wayland, x11 = environ.get("WAYLAND_DISPLAY"), environ.get("DISPLAY")
    if wayland:
        path = Path(environ.get("XDG_RUNTIME_DIR", "/")) / wayland
        if path.exists():
            return
    if x11:
        match = re.fullmatch(r"(?:unix)?:(\d+)(?:\.\d+)?", x11)
        if match is None or _listens(f"/tmp/.X11-unix/X{match.group(1)}"):
            return
    raise NoDisplay(
        f"There is no display to open a window on (DISPLAY is {x11 or 'not set'}).",
        "Use `inkstand chat` for the chat in the terminal.",
    )


def _listens(path: str) -> bool:
    """Whether an X server answers, at the socket in the file system or the abstract one of that name."""
    for address in (path, f"\0{path}"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(address)
            except OSError:
                continue
            return True
    return False

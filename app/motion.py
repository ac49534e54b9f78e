"""Whether the system is set to reduce motion. Qt does not say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

_COMMANDS: dict[str, tuple[Sequence[str], str]] = {
    "darwin": (("/usr/bin/defaults", "read", "com.apple.universalaccess", "reduceMotion"), "1"),
    "linux": (("gsettings", "get", "org.gnome.desktop.interface", "enable-animations"), "false"),
}
"""Per platform what to ask, and the answer that means "reduce"."""


def _ask(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=2, check=True).stdout


def system_reduces_motion(platform: str = sys.platform, ask: Callable[[Sequence[str]], str] = _ask) -> bool:
    """Blocks for a moment. False where it cannot be found out."""
    if platform not in _COMMANDS:
        return False
    command, answer = _COMMANDS[platform]
    try:
        return ask(command).strip() == answer
    except (OSError, subprocess.SubprocessError):
        return False

"""A virtual screen with a window manager, and the hands and eyes of a person at it: xdotool and ImageMagick."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

TOOLS = {"Xvfb": "xvfb", "openbox": "openbox", "xdotool": "xdotool", "import": "imagemagick"}
"""Programs and the packages of Debian that hold them."""


class Stuck(Exception):  # noqa: N818 (a state, told to a person)
    """What was waited for did not happen."""


def missing() -> list[str]:
    """Packages to install before a desktop can be made."""
    return [package for program, package in TOOLS.items() if shutil.which(program) is None]


def wait(what: str, condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Raises Stuck when it does not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Stuck(f"after {seconds:.0f} s still waiting: {what}")
        time.sleep(0.1)


class Desktop:
    """Use as a context manager. Screenshots go to `shots`, numbered in order."""

    def __init__(self, shots: Path) -> None:
        self.shots = shots
        self.environ = dict(os.environ)
        self._children: list[subprocess.Popen[bytes]] = []
        self._taken = 0

    def __enter__(self) -> Desktop:
        reader, writer = os.pipe()
        self._spawn(["Xvfb", "-displayfd", str(writer), "-screen", "0", "1280x832x24", "-nolisten", "tcp"], writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as display:
            number = display.readline().decode().strip()
        if not number:
            raise Stuck("Xvfb did not start")
        # Qt is to go through X11 here, wherever this runs.
        self.environ |= {"DISPLAY": f":{number}", "QT_QPA_PLATFORM": "xcb"}
        self.environ.pop("WAYLAND_DISPLAY", None)
        self._spawn(["openbox"])
        wait("the window manager", lambda: self.ask("getactivewindow") is not None or self._manages())
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children):
            child.terminate()
            child.wait()

    def _spawn(self, command: list[str], *pass_fds: int) -> None:
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(command, env=self.environ, stdout=quiet, stderr=quiet, pass_fds=pass_fds)
        self._children.append(child)

    def _manages(self) -> bool:
        return self.ask("get_num_desktops") is not None

    def ask(self, *arguments: str) -> str | None:
        """What xdotool answers; None when it fails."""
        done = subprocess.run(
            ["xdotool", *arguments], env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def window(self, title: str) -> str | None:
        """The visible window whose title holds `title`."""
        found = self.ask("search", "--onlyvisible", "--name", title)
        return found.split()[-1] if found else None

    def activate(self, title: str, seconds: float = 60.0) -> str:
        """Wait for a window and bring it to the front."""
        wait(f"a window named {title}", lambda: self.window(title), seconds)
        window = self.window(title)
        assert window is not None
        self.ask("windowactivate", "--sync", window)
        return window

    def type(self, text: str) -> None:
        self.ask("type", "--delay", "12", text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.ask("key", "--clearmodifiers", key)
            time.sleep(0.15)

    def shoot(self, name: str) -> Path:
        """Save the screen. Raises Stuck when all of it has nearly one colour."""
        self._taken += 1
        path = self.shots / f"{self._taken:02d}-{name}.png"
        subprocess.run(["import", "-window", "root", str(path)], env=self.environ, check=True)
        colours = subprocess.run(["identify", "-format", "%k", str(path)], stdout=subprocess.PIPE, check=True)
        if int(colours.stdout) < 64:
            raise Stuck(f"{path} shows nothing")
        return path

"""The name that systems know the program by, and how the tarball gets into the menu of a Linux desktop."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.identity import APP_ID

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
LINUX = PACKAGING / "linux"


def test_systems_know_the_program_by_one_name() -> None:
    """Apple takes letters, digits, hyphens and dots, desktop entries no hyphens."""
    assert re.fullmatch(r"[a-z]+(\.[a-z][a-z0-9]*)+\.[A-Z][A-Za-z]+", APP_ID)
    assert "bundle_identifier=APP_ID" in (PACKAGING / "inkstand.spec").read_text(encoding="utf-8")
    assert "setDesktopFileName(APP_ID)" in (ROOT / "app" / "composition.py").read_text(encoding="utf-8")
    entry = desktop_entry(LINUX / f"{APP_ID}.desktop")
    assert entry["Icon"] == APP_ID
    assert f"id={APP_ID}\n" in (LINUX / "install.sh").read_text(encoding="utf-8")
    assert f"/{APP_ID}.savedState" in (PACKAGING / "macos" / "inkstand.rb.in").read_text(encoding="utf-8")
    for path in (*PACKAGING.rglob("*"), *(ROOT / "app").rglob("*.py")):
        if path.is_file() and path.suffix != ".pyc":
            found = re.findall(r"\b[a-z]+(?:\.[a-z]+)*\.Inkstand\b", path.read_text(encoding="utf-8"))
            assert set(found) <= {APP_ID}, path


def desktop_entry(path: Path) -> dict[str, str]:
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    parser.read_string(path.read_text(encoding="utf-8"))
    return dict(parser["Desktop Entry"])


def test_the_menu_entry_says_what_desktops_ask_for() -> None:
    entry = desktop_entry(LINUX / f"{APP_ID}.desktop")
    assert (entry["Type"], entry["Name"], entry["Terminal"]) == ("Application", "Inkstand", "false")
    assert entry["Categories"].endswith(";")
    assert entry["StartupWMClass"] == "Inkstand"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """What lies in the tarball, in a folder whose name a careless script would trip over."""
    folder = tmp_path / 'my "own" $HOME\\100% folder'
    folder.mkdir()
    for name in (f"{APP_ID}.desktop", "install.sh"):
        (folder / name).write_bytes((LINUX / name).read_bytes())
        (folder / name).chmod(0o755)
    (folder / f"{APP_ID}.png").write_bytes(b"png")
    (folder / "inkstand").write_text("#!/bin/sh\n")
    (folder / "inkstand").chmod(0o755)
    return folder


def add_to_menu(folder: Path, home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    home.mkdir(exist_ok=True)
    command = [str(folder / "install.sh"), *options]
    environ = {"HOME": str(home), "PATH": f"/usr/bin:/bin:{home}/.local/bin"}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30, env=environ)


def executable(exec_line: str) -> str:
    """The program of an Exec line: strings are unescaped first, then what stands in quotes."""
    text = re.sub(r"\\(.)", r"\1", exec_line)
    assert text[0] == text[-1] == '"'
    return re.sub(r"\\(.)", r"\1", text[1:-1]).replace("%%", "%")


@pytest.mark.skipif(sys.platform != "linux", reason="menus of Linux desktops")
def test_the_tarball_adds_itself_to_the_menu_and_goes_away_again(unpacked: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    entry = home / ".local/share/applications" / f"{APP_ID}.desktop"
    icon = home / ".local/share/icons/hicolor/256x256/apps" / f"{APP_ID}.png"
    command = home / ".local/bin/inkstand"
    for _ in range(2):
        done = add_to_menu(unpacked, home)
        assert (done.returncode, done.stderr) == (0, "")
        assert "In a terminal: inkstand\n" in done.stdout
        assert executable(desktop_entry(entry)["Exec"]) == str(unpacked / "inkstand")
        assert icon.read_bytes() == b"png"
        assert command.resolve() == unpacked / "inkstand"
    assert add_to_menu(unpacked, home, "--remove").returncode == 0
    assert not entry.exists()
    assert not icon.exists()
    assert not command.is_symlink()


@pytest.mark.skipif(sys.platform != "linux", reason="menus of Linux desktops")
def test_the_tarball_leaves_another_command_of_that_name_alone(unpacked: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = home / ".local/bin/inkstand"
    command.parent.mkdir(parents=True)
    command.write_text("another")
    assert "left alone" in add_to_menu(unpacked, home).stdout
    assert add_to_menu(unpacked, home, "--remove").returncode == 0
    assert command.read_text() == "another"
    wrong = add_to_menu(unpacked, home, "--help")
    assert wrong.returncode == 2
    assert "--remove" in wrong.stderr

"""`inkstand --self-test`: that it passes here, that it would fail where something is missing, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QColor, QImage

from app.self_test import LEAST_COLOURS, LEAST_SHARE, SelfTestError, check_licences, measure, refuse_network
from engine.errors import UserError


def python(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, **environ},
    )


def test_the_command_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home, scratch, user = (tmp_path / name for name in ("home", "scratch", "user"))
    scratch.mkdir()
    user.mkdir()
    places = {"INKSTAND_HOME": str(home), "TMPDIR": str(scratch), "HOME": str(user)}
    done = python("-m", "app", "--self-test", **places, QT_QPA_PLATFORM="xcb", XDG_CACHE_HOME="", XDG_CONFIG_HOME="")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["modules", "licences", "tokens", "window", "Inkstand"]
    assert lines[2].split()[1] == "20,"
    assert not home.exists()
    assert list(user.rglob("*")) == []
    assert list(scratch.glob("inkstand-self-test-*")) == []


def test_a_missing_part_is_named() -> None:
    script = (
        "import sys; from pathlib import Path; import engine.paths as paths, app.self_test as test;"
        "test.demo_checkpoint = lambda: paths.resource('demo_checkpoint', roots=[Path('nowhere')]);"
        "sys.exit(test.main([('tokens', test.check_tokens), ('never', lambda: 'reached')]))"
    )
    done = python("-c", script)
    assert done.returncode == 1
    assert done.stderr.startswith("FAILED tokens: The bundled demo_checkpoint is missing")
    assert done.stdout == ""


def test_a_bundle_without_a_licence_text_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    with pytest.raises(SelfTestError, match="of everything"):
        check_licences()
    text = tmp_path / "licenses" / "part" / "LICENSE"
    text.parent.mkdir(parents=True)
    text.write_text("Do what you like.")
    part = {"name": "part", "version": "1", "licence": "", "texts": ["part/LICENSE"]}
    (tmp_path / "licenses" / "index.json").write_text(json.dumps([part]))
    assert check_licences() == "of 1 component"
    text.unlink()
    with pytest.raises(SelfTestError, match="of part"):
        check_licences()


def test_a_bundle_without_its_openblas_fails_though_it_would_work_slowly() -> None:
    script = (
        "import sys, engine, app.self_test as test; from engine.blas import BlasStatus;"
        "engine.BLAS = BlasStatus('unavailable', 'Not there.'); sys.frozen = True;"
        "sys.exit(test.main([('tokens', test.check_tokens)]))"
    )
    done = python("-c", script)
    assert done.returncode == 1
    assert done.stderr == "FAILED tokens: the bundle lacks its BLAS: Not there.\n"


@pytest.mark.parametrize(
    ("error", "line", "traced"),
    [
        (SelfTestError("seen"), "FAILED step: seen", False),
        (UserError("title", "hint"), "FAILED step: title", False),
        (ImportError("no libQt6Svg"), "FAILED step: ImportError: no libQt6Svg", True),
    ],
)
def test_only_unexpected_failures_are_traced(error: Exception, line: str, traced: bool) -> None:
    script = (
        "import sys; from app.self_test import SelfTestError, main\n"
        "from engine.errors import UserError\n"
        f"def step(): raise {error!r}\n"
        "sys.exit(main([('step', step)]))"
    )
    done = python("-c", script)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(line)
    assert ("Traceback" in done.stderr) == traced


def test_other_machines_are_refused_and_local_sockets_are_not() -> None:
    with pytest.raises(PermissionError, match="getaddrinfo"):
        refuse_network("socket.getaddrinfo", ("huggingface.co", 443, 0, 0, 0))
    with pytest.raises(PermissionError, match=r"192\.0\.2\.1"):
        refuse_network("socket.connect", (None, ("192.0.2.1", 443)))
    refuse_network("socket.connect", (None, "/run/user/1000/bus"))
    refuse_network("open", ("/etc/hosts", "r", 0))


def test_a_call_home_fails_the_self_test() -> None:
    script = (
        "import socket, sys; from app.self_test import main\n"
        "def step(): socket.create_connection(('127.0.0.1', 9)); return 'connected'\n"
        "sys.exit(main([('step', step)]))"
    )
    done = python("-c", script)
    assert done.returncode == 1
    assert "uses no network" in done.stderr


def test_blank_pictures_are_told_from_drawn_ones() -> None:
    image = QImage(200, 100, QImage.Format.Format_ARGB32)
    image.fill(QColor("#ffffff"))
    assert measure(image) == (1, 0.0)
    for x in range(100):
        for y in range(100):
            image.setPixelColor(x, y, QColor(x, y, 0))
    colours, share = measure(image)
    assert colours == 10_001 > LEAST_COLOURS
    assert share == pytest.approx(0.5)
    assert share > LEAST_SHARE

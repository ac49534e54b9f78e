"""What the bundle is made of, and lints of what runs on other machines only: the macOS side."""

from __future__ import annotations

import plistlib
import re
import shutil
import subprocess
import sys
import zlib
from importlib.metadata import Distribution
from pathlib import Path

import pytest
import yaml

import engine

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
SPEC = (PACKAGING / "inkstand.spec").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SCRIPTS = sorted(PACKAGING.rglob("*.sh"))
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of packaging/ import each other by plain names, as the spec does."""
    monkeypatch.syspath_prepend(str(PACKAGING))
    monkeypatch.syspath_prepend(str(PACKAGING / "macos"))


def locked(name: str) -> dict[str, set[str]]:
    """Packages of a lock file as `name==version`, with the hashes of each."""
    found: dict[str, set[str]] = {}
    current = ""
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([a-z0-9][a-z0-9._-]*==\S+)", line):
            current = match.group(1)
            found[current] = set()
        found.get(current, set()).update(HASH.findall(line))
    return found


def mlx_lock() -> list[tuple[str, str, str]]:
    """Package, hash and wheel of each line."""
    lines = (PACKAGING / "macos" / "mlx.lock").read_text(encoding="utf-8").splitlines()
    rows = [re.fullmatch(r"(\S+==\S+) --hash=sha256:([0-9a-f]{64})  # (\S+\.whl)", line) for line in lines[1:]]
    return [(row.group(1), row.group(2), row.group(3)) for row in rows if row is not None]


def wheel_libraries(package: str) -> list[str]:
    """What mlx.lock says the wheel of a package holds."""
    text = (PACKAGING / "macos" / "mlx.lock").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"^{package}==.*\n((?:#   .*\n)*)", text, re.MULTILINE)
    return [line.removeprefix("#   ") for line in listed.splitlines()]


# -- the spec and what it takes in ---------------------------------------------------------------


def test_the_spec_compiles_and_applies_every_choice() -> None:
    compile(SPEC, "inkstand.spec", "exec")
    import bundle_parts

    used = set(re.findall(r"\bparts\.(\w+)", SPEC))
    offered = {
        name
        for name, value in vars(bundle_parts).items()
        if name[0].isalpha() and getattr(value, "__module__", "bundle_parts") == "bundle_parts"
    }
    choices = {name for name in offered if name.isupper()} - {"QT_PLUGINS"}
    assert choices <= used
    assert {"is_left_out", "needed_libraries", "is_needed"} <= used
    assert "licences.write(licences.gather(" in SPEC
    assert all(hasattr(bundle_parts, name) for name in used)


def test_what_mlx_needs_is_named() -> None:
    import bundle_parts

    assert {"mlx._reprlib_fix", "mlx.__array_api_info"} <= set(bundle_parts.HIDDEN_IMPORTS)
    assert bundle_parts.METALLIB in wheel_libraries("mlx-metal")
    # MLX looks for its kernels beside the library.
    assert str(Path(bundle_parts.METALLIB).with_name("libmlx.dylib")) in wheel_libraries("mlx-metal")
    assert [name for name in wheel_libraries("mlx") if name.startswith("mlx/core.")]
    assert "required(parts.METALLIB)" in SPEC
    assert "required(parts.OPENBLAS)" in SPEC
    assert "required(parts.OPENBLAS_HEADER)" in SPEC


@pytest.mark.skipif(sys.platform != "linux", reason="the BLAS of mlx-cpu is replaced on Linux only")
def test_openblas_lands_where_the_engine_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bundle_parts

    from engine.blas import preload_openblas

    library = tmp_path / bundle_parts.OPENBLAS
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no library")
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    status = preload_openblas(loaded_modules=[], environ={})
    assert status.state == "unavailable"
    assert str(library) in status.detail
    site = Path(Distribution.from_name("cmeel-openblas").locate_file(""))
    assert (site / bundle_parts.OPENBLAS).is_file()
    assert (site / bundle_parts.OPENBLAS_HEADER).is_file()
    assert all(list((site / "mlx_cpu.libs").glob(pattern)) for pattern in bundle_parts.FORTRAN)


def test_files_that_are_read_as_files_exist() -> None:
    import bundle_parts

    for name in bundle_parts.SOURCES:
        assert (ROOT / name).is_file()
    for name in bundle_parts.NOT_SHIPPED:
        assert (ROOT / "resources" / name).is_dir()


@pytest.mark.parametrize(
    ("target", "dropped"),
    [
        ("PySide6/Qt/plugins/platforms/libqxcb.so", False),
        ("PySide6/Qt/plugins/platforms/libqoffscreen.dylib", False),
        ("PySide6/Qt/plugins/platforms/libqeglfs.so", True),
        ("PySide6/Qt/plugins/imageformats/libqsvg.so", False),
        ("PySide6/Qt/plugins/imageformats/libqpdf.so", True),
        ("PySide6/Qt/plugins/sqldrivers/libqsqlite.so", True),
        ("PySide6/Qt/qml/QtQuick/qmldir", True),
        ("PySide6/Qt/translations/qtbase_de.qm", True),
        ("PySide6/QtCore.abi3.so", False),
        ("libgfortran.so.5", True),
        ("mlx_cpu.libs/libgfortran-f7379c93.so.5.0.0", False),
    ],
)
def test_unused_parts_of_qt_are_left_out(target: str, dropped: bool) -> None:
    import bundle_parts

    assert bundle_parts.is_left_out(target) == dropped


def test_only_linked_libraries_stay(tmp_path: Path) -> None:
    import bundle_parts

    files = {
        "PySide6/QtGui.abi3.so": "gui",
        "PySide6/Qt/lib/libQt6Gui.so.6": "qtgui",
        "PySide6/Qt/lib/QtCore.framework/Versions/A/QtCore": "qtcore",
        "PySide6/Qt/lib/libQt6Pdf.so.6": "pdf",
        "libX11.so.6": "x11",
        "libgtk-3.so.0": "gtk",
        "libpython3.13.so.1.0": "python",
    }
    links = {"gui": ["qtgui"], "qtgui": ["qtcore", "x11"], "pdf": ["gtk"], "gtk": ["x11"]}
    needed = bundle_parts.needed_libraries(
        [(target, str(tmp_path / source)) for target, source in files.items()],
        lambda source: [str(tmp_path / other) for other in links.get(Path(source).name, [])],
    )
    assert needed == {"libQt6Gui.so.6", "QtCore.framework", "libX11.so.6"}

    def stays(target: str, source: str = "", kind: str = "BINARY") -> bool:
        return bundle_parts.is_needed((target, source, kind), needed)

    assert stays("libpython3.13.so.1.0")
    assert stays("PySide6/Qt/lib/QtCore.framework/Resources/Info.plist", kind="DATA")
    assert stays("PySide6/Qt/lib/QtCore.framework/Versions/Current", "A", "SYMLINK")
    assert stays("libmlx.dylib", "mlx/lib/libmlx.dylib", "SYMLINK")
    assert stays("libQt6Gui.so.6", "PySide6/Qt/lib/libQt6Gui.so.6", "SYMLINK")
    assert not stays("libQt6Pdf.so.6", "PySide6/Qt/lib/libQt6Pdf.so.6", "SYMLINK")
    assert not stays("libgtk-3.so.0")


def test_the_lock_of_the_bundle_is_that_of_the_program_and_its_builder() -> None:
    program, bundle = locked("requirements.lock"), locked("requirements-bundle.lock")
    assert program.items() <= bundle.items()
    added = {name.split("==")[0] for name in bundle.keys() - program.keys()}
    assert "pyinstaller" in added
    assert "hypothesis" not in added


# -- macOS ---------------------------------------------------------------------------------------


def test_info_plist_and_its_minimum_system() -> None:
    import info_plist

    wheels = mlx_lock()
    program = locked("requirements.lock")
    assert [package.split("==")[0] for package, _, _ in wheels] == ["mlx", "mlx-metal"]
    for package, digest, wheel in wheels:
        assert digest in program[package]
        assert wheel.endswith("_arm64.whl")
        assert wheel.startswith(package.replace("-", "_").replace("==", "-") + "-")
    (wanted,) = re.findall(r"^MACOS := (\S+)$", MAKEFILE, re.MULTILINE)
    minimum = info_plist.oldest_macos(wheel for _, _, wheel in wheels)
    assert minimum == wanted
    values = plistlib.loads(plistlib.dumps(info_plist.values(info_plist.version(ROOT), minimum)))
    assert values["LSMinimumSystemVersion"] == minimum
    assert values["CFBundleShortVersionString"] == engine.__version__
    assert values["NSHighResolutionCapable"] is True
    assert values["LSApplicationCategoryType"].startswith("public.app-category.")
    documents = values["CFBundleDocumentTypes"]
    assert {kind for document in documents for kind in document["CFBundleTypeExtensions"]} >= {"json", "md"}
    assert {document["CFBundleTypeRole"] for document in documents} == {"Viewer"}
    assert {document["LSHandlerRank"] for document in documents} == {"Alternate"}
    declared = {kind["UTTypeIdentifier"] for kind in values["UTImportedTypeDeclarations"]}
    named = {kind for document in documents for kind in document["LSItemContentTypes"]}
    assert {kind for kind in named if not kind.startswith("public.")} == declared


def test_the_strictest_wheel_decides_and_each_counts_by_its_most_lenient_tag(tmp_path: Path) -> None:
    import info_plist

    installed = []
    for name, tags in {"a": ["macosx_10_9_x86_64", "macosx_11_0_arm64"], "b": ["macosx_13_3_arm64"], "c": []}.items():
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "WHEEL").write_text("".join(f"Tag: cp313-cp313-{tag}\n" for tag in tags) + "Tag: py3-none-any\n")
        installed.append(Distribution.at(info))
    assert info_plist.minimum_macos(installed) == "13.3"
    assert info_plist.promised_macos(installed, "mlx-1-cp313-cp313-macosx_14_0_arm64.whl") == "14.0"
    with pytest.raises(SystemExit, match=r"needs macOS 13\.3, but the app is for 13\.0"):
        info_plist.promised_macos(installed, "mlx-1-cp313-cp313-macosx_13_0_arm64.whl")


def test_the_app_is_built_with_the_python_of_its_wheels() -> None:
    build = yaml.safe_load((ROOT / ".github" / "workflows" / "bundle.yml").read_text(encoding="utf-8"))
    (python,) = [
        step["with"]["python-version"]
        for step in build["jobs"]["macos"]["steps"]
        if "setup-python" in step.get("uses", "")
    ]
    (wheel,) = [wheel for package, _, wheel in mlx_lock() if package.startswith("mlx==")]
    assert f"-cp{python.replace('.', '')}-" in wheel


def test_no_entitlement_goes_unexplained() -> None:
    path = PACKAGING / "macos" / "Inkstand.entitlements"
    assert plistlib.loads(path.read_bytes()) == {}
    for name in ("allow-jit", "allow-unsigned-executable-memory", "disable-library-validation"):
        assert name in path.read_text(encoding="utf-8")


def test_the_cask_is_filled_in(tmp_path: Path) -> None:
    image = tmp_path / "Inkstand-1.2.3-arm64.dmg"
    image.write_bytes(b"image")
    command = [PACKAGING / "macos" / "cask.sh", image, "somebody/inkstand"]
    cask = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    assert 'version "1.2.3"' in cask
    assert f'sha256 "{sha256(b"image")}"' in cask
    assert "somebody/inkstand/releases/download/v#{version}/Inkstand-#{version}-arm64.dmg" in cask
    assert 'macos: ">= :sonoma"' in cask
    assert "@" not in cask


def sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def test_the_icons_hold_every_size(tmp_path: Path) -> None:
    command = [sys.executable, PACKAGING / "icon.py", tmp_path]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    data = (tmp_path / "Inkstand.icns").read_bytes()
    assert data[:4] == b"icns"
    assert int.from_bytes(data[4:8], "big") == len(data)
    found: dict[str, int] = {}
    place = 8
    while place < len(data):
        length = int.from_bytes(data[place + 4 : place + 8], "big")
        picture = data[place + 8 : place + length]
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        assert zlib.crc32(picture[12:29]) == int.from_bytes(picture[29:33], "big")
        found[data[place : place + 4].decode()] = int.from_bytes(picture[16:20], "big")
        place += length
    assert found["ic07"] == 128
    assert found["ic10"] == 1024
    assert sorted(set(found.values())) == [16, 32, 64, 128, 256, 512, 1024]
    assert (tmp_path / "inkstand.png").stat().st_size > 1000


# -- scripts -------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", *SCRIPTS], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_executable_and_parse(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    done = subprocess.run(["sh", "-n", script], check=False, capture_output=True, text=True, timeout=10)
    assert done.returncode == 0, done.stderr
    assert script.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    assert re.search(r"^set -eu$", script.read_text(encoding="utf-8"), re.MULTILINE)


def test_each_file_has_its_line_in_the_map() -> None:
    text = (PACKAGING / "README.md").read_text(encoding="utf-8")
    for path in PACKAGING.rglob("*"):
        if path.is_file() and path.parent.name in ("packaging", "macos", "linux") and path.name != "README.md":
            assert f"`{path.relative_to(PACKAGING)}`" in text, path

"""A bundle holds the licence text of everything in it."""

from __future__ import annotations

import re
from importlib.metadata import Distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of packaging/ import each other by plain names, as the spec does."""
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))


def entry_of(package: str, name: str, kind: str = "DATA") -> tuple[str, str, str]:
    """A file of an installed package as PyInstaller lists it."""
    (found,) = [file for file in Distribution.from_name(package).files or () if str(file) == name]
    return name, str(found.locate()), kind


def test_what_is_in_the_bundle_has_its_licences_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import licences

    from app.licences import INDEX, Component, read_index

    both = [Distribution.from_name("qasync"), Distribution.from_name("pytest")]
    assert licences.in_bundle([entry_of("qasync", "qasync/__init__.py", "PYMODULE")], both) == both[:1]
    texts = [tmp_path / name for name in ("LICENSE", "licenses/a/LICENSE", "licenses/b/LICENSE")]
    for text in texts:
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(str(text))
    part = Component("part", "1.0", "MIT", texts)
    bundle = tmp_path / "bundle"
    for target, source, kind in licences.write([part], tmp_path / "work"):
        assert kind == "DATA"
        (bundle / target).parent.mkdir(parents=True, exist_ok=True)
        (bundle / target).write_bytes(Path(source).read_bytes())
    (read,) = read_index(bundle / INDEX)
    assert (read.name, read.version, read.licence) == ("part", "1.0", "MIT")
    assert [text.read_text() for text in read.texts] == [str(text) for text in texts]


def test_a_bundle_without_a_licence_text_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import licences

    info = tmp_path / "bare-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: bare\nVersion: 1.0\n")
    (info / "RECORD").write_text("bare.py,,\nbare-1.0.dist-info/METADATA,,\n")
    (tmp_path / "bare.py").touch()
    monkeypatch.setattr(licences, "distribution", lambda _name: Distribution.from_name("pytest"))
    entry = ("bare.py", str(tmp_path / "bare.py"), "PYMODULE")
    with pytest.raises(SystemExit, match=r"No licence texts for bare\b"):
        licences.gather([entry], [Distribution.at(info)], tmp_path, ROOT)


def test_every_package_that_is_locked_has_its_licence_text() -> None:
    """What is installed of the lock, which is what a bundle can hold on this system."""
    from importlib.metadata import PackageNotFoundError

    from app.licences import component_of

    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    seen = 0
    for name in re.findall(r"^([a-z0-9][a-z0-9._-]*)==", lock, re.MULTILINE):
        try:
            component = component_of(Distribution.from_name(name))
        except PackageNotFoundError:
            continue
        assert component.texts, name
        assert any(text.stat().st_size > 500 for text in component.texts), name
        seen += 1
    assert seen > 20


def test_system_libraries_bring_the_texts_of_their_packages(tmp_path: Path) -> None:
    import licences

    site = tmp_path / "site"
    places = {"libz.so.1": tmp_path / "usr/lib/libz.so.1", "libmlx.so": site / "mlx/lib/libmlx.so"}
    entries = [(target, str(source), "BINARY") for target, source in places.items()]
    entries.append(("PySide6/QtCore.so", str(tmp_path / "QtCore.so"), "EXTENSION"))
    assert licences.system_libraries(entries, site) == [places["libz.so.1"]]
    answers = {
        ("dpkg", "-S", "/lib/libz.so.1"): "zlib1g:amd64: /lib/libz.so.1\n",
        ("dpkg-query", "-W", "-f=${Version}", "zlib1g"): "1:1.2",
    }

    def run(command: list[str]) -> str:
        return answers.get(tuple(command), "")

    files = [Path("/usr/lib/libz.so.1"), Path("/opt/libown.so")]
    assert licences.debian_packages(files, run) == {"zlib1g": files[:1], "": files[1:]}
    (tmp_path / "zlib1g").mkdir()
    (tmp_path / "zlib1g" / "copyright").write_text("See /usr/share/common-licenses/GPL-2.\n")
    component = licences.debian_component("zlib1g", run, tmp_path)
    assert (component.name, component.version) == ("zlib1g", "1:1.2")
    names = [text.name for text in component.texts]
    assert names[0] == "copyright"
    assert names[1:] in ([], ["GPL-2"])
    assert licences.debian_component("other", run, tmp_path).texts == []

"""What the bundle holds beyond what PyInstaller finds by following imports, and what it leaves out again.

Only names and choices: `inkstand.spec` applies them, tests/test_packaging.py reads them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Container, Iterable
from pathlib import Path, PurePosixPath

HIDDEN_IMPORTS = (
    # Imported by the extension module mlx.core, where no analysis of bytecode sees it.
    "mlx._reprlib_fix",
    "mlx.__array_api_info",
    # Imported by name in pyqtgraph, before it knows whether a plot will use OpenGL.
    "PySide6.QtOpenGL",
)
METADATA = ("mlx", "safetensors", "tokenizers", "huggingface_hub", "jinja2")
"""Distributions whose version `inkstand info` prints."""

SOURCES = ("engine/bench/peer_mlx_vlm.py", "engine/blas.py")
"""Read as files by the peer's interpreter in `inkstand bench --peer`: its program, and what that loads."""

NOT_SHIPPED = ("screenshots",)
"""Directories of resources/ that only documents show."""

OPENBLAS = "cmeel.prefix/lib/libopenblas.so"
"""One of the wheel's three copies, at the place where engine/blas.py looks below the bundle's directory."""
OPENBLAS_HEADER = "cmeel.prefix/include/openblas/openblas_config.h"
"""From which engine/blas.py reads what processor that build asks for."""
FORTRAN = ("libgfortran-*.so*", "libquadmath-*.so*")
"""In mlx_cpu.libs/: what that OpenBLAS needs on a machine without a Fortran runtime."""
METALLIB = "mlx/lib/mlx.metallib"
"""Compiled kernels, which MLX looks for beside libmlx.dylib."""

EXCLUDED_MODULES = (
    *("PySide6.QtConcurrent", "PySide6.QtDesigner", "PySide6.QtHelp", "PySide6.QtNetwork", "PySide6.QtPdf"),
    *("PySide6.QtPrintSupport", "PySide6.QtQml", "PySide6.QtQuick", "PySide6.QtQuickWidgets", "PySide6.QtSql"),
    *("PySide6.QtTest", "PySide6.QtUiTools", "PySide6.QtWebChannel", "PySide6.QtWebEngineCore", "PySide6.QtXml"),
    # What libraries use where it is installed, none of which this program calls.
    *("IPython", "OpenGL", "cupy", "h5py", "matplotlib", "numba", "pandas", "scipy", "tensorflow", "torch"),
    *("_pytest", "pip", "pytest", "setuptools", "tkinter", "turtle", "turtledemo", "wheel"),
    # Parts of huggingface_hub that are not used: its command line, and a transfer that engine/hub replaces.
    *("huggingface_hub.cli", "hf_xet", "typer"),
)

QT_PLUGINS = {
    # Windows; offscreen is what the self-test draws on.
    "platforms": ("qcocoa", "qxcb", "qwayland", "qoffscreen", "qminimal"),
    # Read by style sheets and icons; attachments are text.
    "imageformats": ("qsvg",),
    "iconengines": ("qsvgicon",),
    # Only what asks the system for light or dark and for file dialogs. Fusion, which the window uses, is built in.
    "platformthemes": ("qxdgdesktopportal",),
    "styles": ("qmacstyle",),
    # Compose keys and input methods.
    "platforminputcontexts": ("composeplatforminputcontextplugin", "ibusplatforminputcontextplugin"),
    "wayland-shell-integration": ("xdg-shell",),
    "wayland-decoration-client": ("bradient", "adwaita"),
}
"""Kinds of Qt plugins and the ones of each that are kept. PNG needs none."""

_QT = PurePosixPath("PySide6", "Qt")
_SYSTEM_LIBRARIES = ("libgfortran.so", "libquadmath.so", "libreadline.so")
"""The Fortran runtime is found on some machines that build and not on others, and engine/blas.py brings its own. GNU
Readline is under the GPL: line editing takes the system's, and does without where there is none."""


def is_left_out(target: str) -> bool:
    """Whether a collected file is dropped: a Qt plugin, translation or QML module that is not used, or the like."""
    path = PurePosixPath(target.replace("\\", "/"))
    if path.parent == PurePosixPath() and path.name.startswith(_SYSTEM_LIBRARIES):
        return True
    if not path.is_relative_to(_QT):
        return False
    kind, *rest = path.relative_to(_QT).parts
    if kind == "plugins":
        return path.stem.removeprefix("lib") not in QT_PLUGINS.get(rest[0], ())
    # The window speaks English, so Qt's own texts need no translations.
    return kind in ("translations", "qml", "metatypes")


def library(target: str) -> str | None:
    """The shared library that a collected file is or belongs to, `libX11.so.6` or `QtCore.framework`.

    None for everything else: programs, extension modules, plugins, libraries inside of packages.
    """
    path = PurePosixPath(target.replace("\\", "/"))
    if path.is_relative_to(_QT / "lib"):
        return path.relative_to(_QT / "lib").parts[0]
    if path.parent != PurePosixPath() or path.name.startswith("libpython"):
        return None
    return path.name if ".so" in path.suffixes or path.suffix == ".dylib" else None


def needed_libraries(files: Iterable[tuple[str, str]], links: Callable[[str], Iterable[str]]) -> set[str]:
    """Libraries, as `library` names them, that something else needs, directly or through another library.

    Args:
        files: collected files as (place in the bundle, source).
        links: sources of the libraries that a source is linked to.
    """
    libraries: dict[Path, str] = {}
    waiting: list[str] = []
    for target, source in files:
        name = library(target)
        if name is None:
            waiting.append(source)
        else:
            libraries[Path(source).resolve()] = name
    found: set[str] = set()
    seen: set[Path] = set()
    while waiting:
        for linked in links(waiting.pop()):
            source = Path(linked).resolve()
            if source in libraries and source not in seen:
                seen.add(source)
                found.add(libraries[source])
                waiting.append(str(source))
    return found


def is_needed(entry: tuple[str, str, str], needed: Container[str]) -> bool:
    """Whether an entry of PyInstaller's lists (place, source, kind) stays, given the libraries that are needed.

    The source of a link is what it refers to, seen from its own place; it stays with that.
    """
    target, source, kind = entry
    file = posixpath.normpath(posixpath.join(posixpath.dirname(target), source)) if kind == "SYMLINK" else target
    name = library(file)
    return name is None or name in needed

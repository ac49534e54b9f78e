"""Loads OpenBLAS in front of the reference BLAS that the Linux CPU wheel of mlx links.

The dynamic linker resolves the `cblas_*` calls of libmlx.so to the first library in the global scope that exports
them. Whatever is loaded with RTLD_GLOBAL before `mlx.core` therefore replaces the reference BLAS, which has one thread
and whose cost grows linearly with the number of rows: on it, verifying five tokens costs nearly as much as five steps.
The `cmeel-openblas` package exports the plain names; those of scipy carry a prefix and would not do.

That library needs `libgfortran.so.5`, which a bare machine lacks. The mlx wheel carries one under a name of its own
(`mlx_cpu.libs/libgfortran-<hash>.so.5.0.0`). The linker matches libraries by the SONAME stored inside the file, so a
copy in memory with the plain SONAME satisfies the dependency without touching any installed file.

A build for one kind of processor ends the process with an illegal instruction on a lesser one, and the wheels of
cmeel-openblas are such builds: for AVX-512 on x86-64, for SVE2 on ARM. What a build asks for stands in its header.
Where the processor has less, the system's own OpenBLAS is taken, which distributions build for all processors.

Its threads wait for each other by spinning, so one that finds no free core stalls all of them: on two cores with
anything else running, two threads decode several times slower than one. Unless OPENBLAS_NUM_THREADS says otherwise, one
core is left to the rest of the machine, and no more than four threads are used: the products are bound by memory.

Failure is never fatal: mlx then computes the same on the library it links.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SWITCH = "INKSTAND_OPENBLAS"
"""Environment variable: 0 leaves mlx with the BLAS it links."""

_LIBRARY = Path("cmeel.prefix", "lib", "libopenblas.so")
"""Where cmeel-openblas has it, below site-packages; a bundle keeps the same place below its own directory."""

_HEADER = Path("cmeel.prefix", "include", "openblas", "openblas_config.h")
"""Where that package says what its build was made for."""

_SYSTEM_LIBRARY = "libopenblas.so.0"
"""What the linker finds where a distribution's package is installed."""

_INSTRUCTIONS = {
    "HAVE_AVX": ("avx",),
    "HAVE_AVX2": ("avx2",),
    "HAVE_FMA3": ("fma",),
    "HAVE_AVX512VL": ("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"),
    "HAVE_AVX512BF16": ("avx512_bf16",),
    "HAVE_SVE": ("sve",),
    "NEOVERSEN1": ("asimdhp", "asimddp"),
    "NEOVERSEV1": ("sve", "bf16"),
    "NEOVERSEN2": ("sve2", "bf16"),
}
"""What a definition in the header asks of the processor, in the words of /proc/cpuinfo. ARM's targets ask for more than
the header lists."""

_FORTRAN_SONAME = b"libgfortran.so.5"

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""Any of them set is the user's own choice, which OpenBLAS reads by itself."""

_MOST_THREADS = 4


@dataclass(frozen=True, slots=True)
class BlasStatus:
    """What became of the preload."""

    state: Literal["loaded", "off", "not needed", "too late", "unavailable"]
    detail: str
    """One sentence for people: version and threads, or why not and the cure."""
    library: str | None = None
    """Path of the OpenBLAS that was loaded, or the name by which the linker found the system's."""
    threads: int | None = None


def preload_openblas(
    *,
    platform: str = sys.platform,
    environ: Mapping[str, str] = os.environ,
    search: Iterable[Path] | None = None,
    loaded_modules: Iterable[str] | None = None,
    instructions: Collection[str] | None = None,
    system_library: str = _SYSTEM_LIBRARY,
) -> BlasStatus:
    """Loads OpenBLAS into the global symbol scope of this process. Takes about 10 ms; raises nothing.

    Args:
        platform: as `sys.platform`.
        environ: holds the switch.
        search: directories that hold installed packages; by default those of the bundle and of `sys.path`.
        loaded_modules: names of the modules imported so far; by default `sys.modules`.
        instructions: sets of instructions that the processor has, as /proc/cpuinfo calls them; by default its own.
        system_library: name of the OpenBLAS to take where the package's does not suit the processor.
    """
    if platform != "linux":
        return BlasStatus("not needed", "mlx uses the system's own libraries here.")
    if environ.get(SWITCH, "").strip().lower() in {"0", "off", "no", "false"}:
        return BlasStatus("off", f"Switched off by {SWITCH}={environ[SWITCH]}.")
    if "mlx.core" in (sys.modules if loaded_modules is None else loaded_modules):
        return BlasStatus("too late", "mlx.core was imported before the engine. Import engine first.")

    roots = list(_package_directories() if search is None else search)
    library = _first(root / _LIBRARY for root in roots)
    if library is None:
        return BlasStatus("unavailable", "OpenBLAS is not installed. Cure: pip install cmeel-openblas")
    lacking = missing_instructions(_header_of(library), instructions or processor_instructions())
    try:
        if lacking:
            handle, library = ctypes.CDLL(system_library, mode=ctypes.RTLD_GLOBAL), Path(system_library)
        else:
            handle = _load(library, roots)
    except OSError as error:
        if lacking:
            needs = f"The OpenBLAS of cmeel-openblas needs a processor with {', '.join(lacking)}."
            return BlasStatus("unavailable", f"{needs} Cure: install the system's, as by apt install libopenblas0")
        cure = " Cure: apt install libgfortran5" if _FORTRAN_SONAME.decode() in str(error) else ""
        return BlasStatus("unavailable", f"{library} cannot be loaded: {error}.{cure}")
    if not any(environ.get(variable) for variable in _THREAD_VARIABLES):
        _set_threads(handle, default_threads(len(os.sched_getaffinity(0))))
    return _loaded_status(library, handle)


def default_threads(cores: int) -> int:
    """Threads for that many usable cores."""
    return max(1, min(_MOST_THREADS, cores - 1))


def missing_instructions(header: str, instructions: Collection[str]) -> list[str]:
    """What an OpenBLAS asks for and the processor lacks.

    Args:
        header: the text of its openblas_config.h; an empty one asks for nothing.
        instructions: what the processor has; when nothing is known of it, nothing is missing.
    """
    defined = re.findall(r"^#define OPENBLAS_(\w+)", header, re.MULTILINE)
    needed = [name for definition in defined for name in _INSTRUCTIONS.get(definition, ())]
    return [name for name in dict.fromkeys(needed) if name not in instructions] if instructions else []


def processor_instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The sets of instructions that the processor has; empty where the system does not tell."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    # x86 calls the line flags, ARM calls it Features.
    return frozenset(next((line.split()[2:] for line in lines if line.startswith(("flags", "Features"))), ()))


def replace_soname(image: bytes, old: bytes, new: bytes) -> bytes:
    """A copy of the shared library `image` in which the name `old` reads `new`; the size stays the same.

    Raises:
        ValueError: `new` is longer than `old`, or `old` does not occur exactly once.
    """
    if len(new) > len(old):
        raise ValueError(f"{new!r} does not fit in the place of {old!r}")
    terminated = old + b"\0"
    if image.count(terminated) != 1:
        raise ValueError(f"{old!r} does not occur exactly once")
    return image.replace(terminated, new.ljust(len(terminated), b"\0"))


def _package_directories() -> Iterable[Path]:
    # A frozen bundle unpacks its libraries in a directory of its own, which is not on sys.path.
    bundle = getattr(sys, "_MEIPASS", None)
    return [Path(entry) for entry in ([bundle] if bundle else []) + sys.path if entry]


def _first(candidates: Iterable[Path]) -> Path | None:
    return next((path for path in candidates if path.is_file()), None)


def _header_of(library: Path) -> str:
    """What stands in the header beside the library; nothing where there is none."""
    header = library.parents[len(_LIBRARY.parts) - 1] / _HEADER
    return header.read_text(errors="replace") if header.is_file() else ""


def _load(library: Path, roots: list[Path]) -> ctypes.CDLL:
    """Raises OSError with the linker's own message when the library or its Fortran runtime cannot be loaded."""
    try:
        return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        if not _load_fortran_of_mlx(roots):
            raise
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _load_fortran_of_mlx(roots: list[Path]) -> bool:
    """Loads the Fortran runtime of the mlx wheel under its plain name; False where there is none that fits."""
    fortran = _first(path for root in roots for path in sorted(root.glob("mlx_*.libs/libgfortran-*.so.5*")))
    if fortran is None:
        return False
    # Its own dependency (x86 only) lies beside it, where the linker does not look for a library that is in memory.
    for quadmath in sorted(fortran.parent.glob("libquadmath-*.so*")):
        ctypes.CDLL(str(quadmath))
    try:
        image = replace_soname(fortran.read_bytes(), fortran.name.encode(), _FORTRAN_SONAME)
    except ValueError:
        return False
    # The descriptor stays open: the linker knows the library by this path and would mistake a later file of the
    # same number for it.
    descriptor = os.memfd_create(_FORTRAN_SONAME.decode())
    with open(descriptor, "wb", closefd=False) as file:
        file.write(image)
    ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    return True


def _set_threads(handle: ctypes.CDLL, threads: int) -> None:
    # A build without the call keeps its own default.
    with contextlib.suppress(AttributeError):
        handle.openblas_set_num_threads(ctypes.c_int(threads))


def _loaded_status(library: Path, handle: ctypes.CDLL) -> BlasStatus:
    try:
        handle.openblas_get_config.restype = ctypes.c_char_p
        config = handle.openblas_get_config().decode()
        threads = int(handle.openblas_get_num_threads())
    except AttributeError:
        return BlasStatus("loaded", "A build that does not tell its version.", str(library))
    return BlasStatus("loaded", f"{config}, {threads} thread{'s' if threads > 1 else ''}", str(library), threads)

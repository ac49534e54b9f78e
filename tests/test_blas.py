"""The OpenBLAS preload: its effect on a fresh process, and that nothing about it can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import BLAS
from engine.blas import (
    SWITCH,
    default_threads,
    missing_instructions,
    preload_openblas,
    processor_instructions,
    replace_soname,
)

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="OpenBLAS is only preloaded on Linux")
PRELOADED = pytest.mark.skipif(
    sys.platform != "linux" or "needs a processor" in BLAS.detail, reason="no OpenBLAS suits this machine"
)


def run(arguments: list[str], **environ: str) -> str:
    environment = {**os.environ, **environ}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def blas_of(**environ: str) -> dict[str, Any]:
    return json.loads(run(["-m", "app", "info", "--json"], **environ))["blas"]


@PRELOADED
def test_info_shows_what_the_variable_does() -> None:
    on, off = blas_of(**{SWITCH: "1"}), blas_of(**{SWITCH: "0"})
    assert on["state"] == "loaded"
    assert "openblas" in on["library"]
    assert on["detail"].startswith("OpenBLAS ")
    assert off == {"state": "off", "detail": f"Switched off by {SWITCH}=0.", "library": None, "threads": None}


@PRELOADED
def test_the_number_of_threads_follows_the_variable_of_openblas() -> None:
    assert blas_of(**{SWITCH: "1", "OPENBLAS_NUM_THREADS": "1"})["threads"] == 1


MATMUL = """
import engine
import mlx.core as mx
mx.random.seed(3)
x, w = mx.random.normal((5, 384)), mx.random.normal((512, 384)) / 20
product = x @ w.T
with open("/proc/self/maps") as maps:
    mapped = sum("libopenblas" in line for line in maps) > 0
print([mapped, product.tolist()])
"""


@ON_LINUX
@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 3), (5, 4), (64, 4)])
def test_one_core_is_left_to_the_rest_of_the_machine(cores: int, threads: int) -> None:
    assert default_threads(cores) == threads


@PRELOADED
def test_without_a_choice_of_the_user_the_default_is_set() -> None:
    status = blas_of(**{SWITCH: "1", "OPENBLAS_NUM_THREADS": "", "OMP_NUM_THREADS": "", "GOTO_NUM_THREADS": ""})
    assert status["threads"] == default_threads(len(os.sched_getaffinity(0)))


@PRELOADED
def test_products_agree_with_and_without_it() -> None:
    (mapped, fast), (unmapped, slow) = (json.loads(run(["-c", MATMUL], **{SWITCH: on}).lower()) for on in ("1", "0"))
    assert (mapped, unmapped) == (True, False)
    differences = [abs(a - b) for row, other in zip(fast, slow, strict=True) for a, b in zip(row, other, strict=True)]
    assert max(differences) < 1e-4


RESOLVED = """
import ctypes
import engine
first = ctypes.CDLL(None).cblas_sgemm
own = ctypes.CDLL(engine.BLAS.library).cblas_sgemm
address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
print(address(first) == address(own))
"""


@PRELOADED
def test_the_plain_blas_names_resolve_to_openblas() -> None:
    assert run(["-c", RESOLVED], **{SWITCH: "1"}) == "True\n"


@pytest.mark.parametrize("value", ["0", "off", "No", " false "])
def test_the_switch_understands_the_usual_words(value: str) -> None:
    assert preload_openblas(platform="linux", environ={SWITCH: value}, search=[]).state == "off"


def test_elsewhere_nothing_is_needed() -> None:
    assert preload_openblas(platform="darwin", environ={}, search=[]).state == "not needed"


def test_after_mlx_it_is_too_late() -> None:
    status = preload_openblas(platform="linux", environ={}, search=[], loaded_modules=["mlx.core"])
    assert status.state == "too late"
    assert "Import engine first" in status.detail


def test_a_missing_package_is_named_with_its_cure(tmp_path: Path) -> None:
    status = preload_openblas(platform="linux", environ={}, search=[tmp_path], loaded_modules=[])
    assert status.state == "unavailable"
    assert "pip install cmeel-openblas" in status.detail


@ON_LINUX
def test_a_damaged_library_is_named_and_not_fatal(tmp_path: Path) -> None:
    library = tmp_path / "cmeel.prefix" / "lib" / "libopenblas.so"
    library.parent.mkdir(parents=True)
    library.write_text("not a library")
    # A Fortran runtime without the expected name inside is not used either.
    runtime = tmp_path / "mlx_cpu.libs" / "libgfortran-0badcafe.so.5.0.0"
    runtime.parent.mkdir()
    runtime.write_bytes(b"nothing to replace")
    status = preload_openblas(platform="linux", environ={}, search=[tmp_path], loaded_modules=[])
    assert status.state == "unavailable"
    assert str(library) in status.detail


def test_a_shared_librarys_name_is_replaced_in_place() -> None:
    image = b"\x7fELF libgfortran-f7379c93.so.5.0.0\0 rest"
    changed = replace_soname(image, b"libgfortran-f7379c93.so.5.0.0", b"libgfortran.so.5")
    assert len(changed) == len(image)
    assert changed.startswith(b"\x7fELF libgfortran.so.5\0")
    assert changed.endswith(b"\0 rest")


@pytest.mark.parametrize("image", [b"absent", b"name.so\0 name.so\0"])
def test_a_name_that_is_not_there_once_is_left_alone(image: bytes) -> None:
    with pytest.raises(ValueError, match="exactly once"):
        replace_soname(image, b"name.so", b"n.so")


def test_a_longer_name_does_not_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        replace_soname(b"n.so\0", b"n.so", b"name.so")


SKYLAKE = "#define OPENBLAS_SKYLAKEX\n#define OPENBLAS_HAVE_AVX2\n#define OPENBLAS_HAVE_AVX512VL\n"
NEOVERSE = '#define OPENBLAS_NEOVERSEN2\n#define OPENBLAS_HAVE_SVE 1\n#define OPENBLAS_CHAR_CORENAME "NEOVERSEN2"\n'
GENERIC = "#define OPENBLAS_HAVE_SSE2\n"
AVX512 = ["avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"]


@pytest.mark.parametrize(
    ("header", "instructions", "missing"),
    [
        (SKYLAKE, {"avx2", *AVX512}, []),
        (SKYLAKE, {"avx2"}, AVX512),
        (SKYLAKE, {"avx512f"}, ["avx2", *AVX512[1:]]),
        (NEOVERSE, {"asimd", "sve", "sve2", "bf16"}, []),
        (NEOVERSE, {"asimd"}, ["sve2", "bf16", "sve"]),
        (GENERIC, {"sse2"}, []),
        ("", {"sse2"}, []),
        (SKYLAKE, set(), []),
    ],
)
def test_what_a_build_asks_for_and_the_processor_lacks(header: str, instructions: set[str], missing: list[str]) -> None:
    assert missing_instructions(header, instructions) == missing


def test_the_processors_instructions_are_read_on_both_architectures(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: x\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\n")
    assert processor_instructions(cpuinfo) == {"fpu", "avx2", "fma"}
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 50\nFeatures\t: fp asimd sve\n")
    assert processor_instructions(cpuinfo) == {"fp", "asimd", "sve"}
    cpuinfo.write_text("processor\t: 0\n")
    assert processor_instructions(cpuinfo) == set()
    assert processor_instructions(tmp_path / "absent") == set()


@pytest.fixture
def for_avx512(tmp_path: Path) -> Path:
    """Site packages with an OpenBLAS for AVX-512, which must not even be opened elsewhere."""
    prefix = tmp_path / "cmeel.prefix"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib" / "libopenblas.so").write_text("not a library")
    (prefix / "include" / "openblas").mkdir(parents=True)
    (prefix / "include" / "openblas" / "openblas_config.h").write_text(SKYLAKE)
    return tmp_path


def preload(site: Path, instructions: set[str], system_library: str) -> Any:
    return preload_openblas(
        platform="linux",
        environ={"OPENBLAS_NUM_THREADS": "1"},
        search=[site],
        loaded_modules=[],
        instructions=instructions,
        system_library=system_library,
    )


def test_a_build_that_the_processor_cannot_run_is_not_loaded(for_avx512: Path) -> None:
    status = preload(for_avx512, {"sse2", "avx2"}, "libno-such-openblas.so.0")
    assert status.state == "unavailable"
    assert "needs a processor with avx512f" in status.detail
    assert "apt install libopenblas0" in status.detail


@ON_LINUX
def test_the_systems_own_is_taken_instead(for_avx512: Path) -> None:
    status = preload(for_avx512, {"sse2", "avx2"}, "libm.so.6")
    assert (status.state, status.library) == ("loaded", "libm.so.6")


def test_a_processor_that_can_run_it_gets_the_packages(for_avx512: Path) -> None:
    status = preload(for_avx512, {"avx2", *AVX512}, "libm.so.6")
    assert status.state == "unavailable"
    assert "libopenblas.so cannot be loaded" in status.detail


@ON_LINUX
def test_the_installed_package_says_what_it_asks_for() -> None:
    """A header that moved or changed its words would let a build run that ends the process."""
    site = next(Path(entry) for entry in sys.path if (Path(entry) / "cmeel.prefix").is_dir())
    header = (site / "cmeel.prefix" / "include" / "openblas" / "openblas_config.h").read_text()
    assert "OPENBLAS_CHAR_CORENAME" in header
    if "SKYLAKEX" in header:
        assert missing_instructions(header, {"avx", "avx2", "fma"}) == AVX512

"""Compiles our own CUDA kernels with NVRTC, which MLX brings along, and starts them through MLX.

`mx.fast.cuda_kernel` would do both, but puts headers in front of every kernel that take a second and a half to compile,
again in every process. Ours include nothing: five or six of them delay a start by less than that.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import mlx.core as mx

from engine.model.device import on_cuda

_LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12")
"""By the names under which MLX has loaded them."""

TYPES = {mx.float32: "float", mx.bfloat16: "bf16"}
"""Dtypes that `PRELUDE` reads and writes."""

PRELUDE = r"""
struct bf16 { unsigned short bits; };
struct Eight { float v[8]; };

__device__ __forceinline__ float as_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ __forceinline__ float as_float(float x) { return x; }

__device__ __forceinline__ void store(float* p, float x) { *p = x; }
__device__ __forceinline__ void store(bf16* p, float x) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(p->bits) : "f"(x));
}

// Two numbers as bfloat16, the first in the lower half.
__device__ __forceinline__ unsigned pair(float first, float second) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

__device__ __forceinline__ unsigned both(bf16 first, bf16 second) {
  return static_cast<unsigned>(second.bits) << 16 | first.bits;
}

__device__ __forceinline__ Eight eight_at(const float* p) {
  const float4* q = reinterpret_cast<const float4*>(p);
  const float4 a = __ldg(q), b = __ldg(q + 1);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// Eight bfloat16 numbers as four pairs.
struct Pairs { unsigned v[4]; };

__device__ __forceinline__ Pairs row_pairs(const bf16* p) {
  const uint4 u = __ldg(reinterpret_cast<const uint4*>(p));
  return {{u.x, u.y, u.z, u.w}};
}

// sum += 16 outputs x 16 inputs times 16 inputs x 8 rows. Of the outputs, `low` holds number lane / 4 and `high` that
// plus 8; `row` is number lane / 4 of the rows. A thread brings four inputs: which of its inputs stands in which place
// does not matter as long as outputs and rows agree.
__device__ __forceinline__ void add_product(
    float (&sum)[4], unsigned low0, unsigned low1, unsigned high0, unsigned high1, unsigned row0, unsigned row1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(low0), "r"(high0), "r"(low1), "r"(high1), "r"(row0), "r"(row1));
}

__device__ __forceinline__ void add_eight(float (&sum)[4], const Pairs& low, const Pairs& high, const Pairs& row) {
  add_product(sum, low.v[0], low.v[1], high.v[0], high.v[1], row.v[0], row.v[1]);
  add_product(sum, low.v[2], low.v[3], high.v[2], high.v[3], row.v[2], row.v[3]);
}

__device__ __forceinline__ float sum_over_warp(float x) {
#pragma unroll
  for (int apart = 16; apart; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  return x;
}

__device__ __forceinline__ float most_in_warp(float x) {
#pragma unroll
  for (int apart = 16; apart; apart /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
  return x;
}
"""
"""In front of every kernel."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel; the name tells it from all others, as MLX keeps loaded kernels under their names."""

    name: str
    binary: bytes

    def __call__(
        self,
        inputs: Sequence[mx.array],
        scalars: Sequence[int],
        *,
        blocks: tuple[int, int, int],
        threads: int,
        outputs: Sequence[tuple[tuple[int, ...], mx.Dtype]],
    ) -> list[mx.array]:
        """Shapes and dtypes of `outputs` to arrays. The kernel's parameters are inputs, outputs, then scalars.

        Inputs that are not stored row by row are copied.
        """
        x, y, z = blocks
        return mx.fast.precompiled_cuda_kernel(
            name=self.name,
            compiled_source=self.binary,
            inputs=inputs,
            output_shapes=[shape for shape, _ in outputs],
            output_dtypes=[dtype for _, dtype in outputs],
            scalars=scalars,
            grid=(x * threads, y, z),
            threadgroup=(threads, 1, 1),
            ensure_row_contiguous=True,
        )


@cache
def available() -> bool:
    """Whether our kernels can be compiled here, and run: bfloat16 on tensor cores begins with Ampere."""
    return on_cuda() and _library() is not None and _capability()[0] >= 8


@cache
def compiled(name: str, source: str, **constants: int | mx.Dtype) -> Kernel:
    """The kernel `NAME` of CUDA C++ `source`, in which integer `constants` are macros, and dtypes of `TYPES` types.

    Raises:
        RuntimeError: the compiler refuses it, which is a bug.
    """
    lines = [f"using {key} = {TYPES[value]};" for key, value in constants.items() if isinstance(value, mx.Dtype)]
    lines += [f"#define {key} {value}" for key, value in constants.items() if isinstance(value, int)]
    whole = "\n".join([PRELUDE, *lines, source])
    unique = f"inkstand_{name}_{hashlib.sha256(whole.encode()).hexdigest()[:16]}"
    return Kernel(unique, _compile(whole.replace("NAME", unique), "sm_{}{}".format(*_capability())))


def _capability() -> tuple[int, int]:
    device = mx.device_info()
    return int(device["compute_capability_major"]), int(device["compute_capability_minor"])


def _compile(source: str, architecture: str) -> bytes:
    nvrtc = _library()
    assert nvrtc is not None
    program = ctypes.c_void_p()
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"inkstand.cu", 0, None, None))
    try:
        failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if failed:
            raise RuntimeError(_fetch(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode())
        return _fetch(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _fetch(size_of: Any, fetch: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(fetch(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC answers with error {status}")


@cache
def _library() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None

"""Runs CUDA source on the processor: a fiber per thread, with barriers, shuffles and tensor-core products between them.

The source is compiled as C++ behind a header that stands in for CUDA; the few lines of PTX in it are replaced by calls.
Blocks run one after the other. Results start as NaN, so that what no thread writes is seen.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

COMPILER = shutil.which("g++") if sys.platform == "linux" else None

_CALLS = {
    "mma.sync": "emulated_product(sum, low0, high0, low1, high1, row0, row1);",
    "cvt.rn.bf16x2": "both = emulated_bf16(second) << 16 | emulated_bf16(first);",
    "cvt.rn.bf16.f32": "p->bits = emulated_bf16(x);",
}

_HEADER = r"""
#include <setjmp.h>
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>
using std::max;
using std::min;
#define __global__ static
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)
struct Index { unsigned x, y, z; };
struct uint2 { unsigned x, y; };
struct float2 { float x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
static Index threadIdx, blockIdx, blockDim, gridDim;

template <typename T> static T emulated_load(const T* p) {
  if (reinterpret_cast<size_t>(p) % sizeof(T)) __builtin_trap();  // as the device does
  return *p;
}
template <typename T> static T __ldg(const T* p) { return emulated_load(p); }
template <typename T> static T __ldcs(const T* p) { return emulated_load(p); }
static float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static float __int_as_float(unsigned u) { return __uint_as_float(u); }
static unsigned emulated_bf16(float f) {
  unsigned u;
  memcpy(&u, &f, 4);
  return f == f ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fc0;
}
static unsigned __byte_perm(unsigned a, unsigned b, unsigned places) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) found |= (bytes >> 8 * (places >> 4 * i & 7) & 0xff) << 8 * i;
  return found;
}

// Fibers. A group waits until all of it has arrived.
struct Group { int size, arrived; long turn; };
static ucontext_t beginnings[1024];
static jmp_buf scheduler, fibers[1024];
static bool begun[1024], done[1024];
static Group whole, warps[32];
static void yield() {
  if (!_setjmp(fibers[threadIdx.x])) _longjmp(scheduler, 1);
}
static void resume() {
  if (_setjmp(scheduler)) return;
  if (begun[threadIdx.x]) _longjmp(fibers[threadIdx.x], 1);
  begun[threadIdx.x] = true;
  setcontext(&beginnings[threadIdx.x]);
}
static void meet(Group& group) {
  const long turn = group.turn;
  if (++group.arrived < group.size) {
    while (group.turn == turn) yield();
  } else {
    group.arrived = 0, ++group.turn;
  }
}
static void leave(Group& group) {
  if (--group.size && group.arrived == group.size) group.arrived = 0, ++group.turn;
}
static void __syncthreads() { meet(whole); }
static void __syncwarp() { meet(warps[threadIdx.x / 32]); }
static float __shfl_xor_sync(unsigned, float x, int apart) {
  static float brought[32][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  brought[warp][lane] = x;
  __syncwarp();
  const float found = brought[warp][lane ^ apart];
  __syncwarp();
  return found;
}

// mma.m16n8k16: where the operands' numbers are, by lane and register, is in the PTX manual.
static void emulated_product(
    float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  static unsigned brought[32][32][6];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned own[6] = {a0, a1, a2, a3, b0, b1};
  memcpy(brought[warp][lane], own, sizeof own);
  __syncwarp();
  const auto half = [](unsigned u, int i) { return __uint_as_float(i ? u & 0xffff0000u : u << 16); };
  for (int o = 0; o < 4; ++o) {
    const int row = lane / 4 + o / 2 * 8, column = lane % 4 * 2 + o % 2;
    for (int k = 0; k < 16; ++k) {
      const int lanes = k % 8 / 2, register_ = k / 8;
      sum[o] += half(brought[warp][row % 8 * 4 + lanes][row / 8 + register_ * 2], k % 2) *
                half(brought[warp][column * 4 + lanes][4 + register_], k % 2);
    }
  }
  __syncwarp();
}
"""

_START = r"""
template <typename... P, size_t... I>
static void call(void (*kernel)(P...), void** parameters, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<P>*>(parameters[I])...);
}
template <typename... P>
static void call(void (*kernel)(P...), void** parameters) { call(kernel, parameters, std::index_sequence_for<P...>()); }
static void** given;
static void fiber() {
  call(NAME, given);
  done[threadIdx.x] = true;
  leave(whole), leave(warps[threadIdx.x / 32]);
  yield();
}
extern "C" void start(void** parameters, int x, int y, int z, int threads) {
  static std::vector<char> stacks(1024 * 65536);
  given = parameters;
  gridDim = {unsigned(x), unsigned(y), unsigned(z)}, blockDim = {unsigned(threads), 1, 1};
  for (int block = 0; block < x * y * z; ++block) {
    blockIdx = {unsigned(block % x), unsigned(block / x % y), unsigned(block / x / y)};
    whole = {threads, 0, 0};
    for (int w = 0; w < threads / 32; ++w) warps[w] = {32, 0, 0};
    for (int t = 0; t < threads; ++t) {
      begun[t] = done[t] = false;
      getcontext(&beginnings[t]);
      beginnings[t].uc_stack.ss_sp = &stacks[t * 65536], beginnings[t].uc_stack.ss_size = 65536;
      makecontext(&beginnings[t], fiber, 0);
    }
    for (bool left = true; left;) {
      left = false;
      for (int t = 0; t < threads; ++t) {
        if (done[t]) continue;
        left = true, threadIdx.x = t;
        resume();
      }
    }
  }
}
"""


class Emulator:
    """Stands in for NVRTC (`compile`) and for `mx.fast.precompiled_cuda_kernel` (`start`).

    Args:
        place: where libraries are written.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._libraries: dict[bytes, ctypes.CDLL] = {}

    def compile(self, source: str, architecture: str) -> bytes:
        """What stands for the machine code: the path of a library."""
        assert COMPILER is not None
        name = re.findall(r"\b(inkstand_\w+)\(", source)[0]
        for instruction, called in _CALLS.items():
            source = re.sub(rf'asm\("{re.escape(instruction)}.*?\);', called, source, flags=re.DOTALL)
        text, library = self._place / f"{name}.cpp", self._place / f"{name}.so"
        source = source.replace('extern "C" ', "")
        text.write_text(_HEADER + source + _START.replace("NAME", name), encoding="utf-8")
        # Products and sums stay as they are written; `fmaf` alone is fused.
        flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-w", "-fPIC", "-shared"]
        subprocess.run([COMPILER, *flags, "-o", library, text], check=True)
        return str(library).encode()

    def start(
        self,
        *,
        name: str,
        compiled_source: bytes,
        inputs: Sequence[mx.array],
        output_shapes: Sequence[tuple[int, ...]],
        output_dtypes: Sequence[mx.Dtype],
        scalars: Sequence[int],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        ensure_row_contiguous: bool,
    ) -> list[mx.array]:
        """Runs the kernel at once."""
        assert ensure_row_contiguous
        if compiled_source not in self._libraries:
            self._libraries[compiled_source] = ctypes.CDLL(compiled_source.decode())
        nothing = {mx.float32: (np.float32, np.nan), mx.bfloat16: (np.uint16, 0x7FC0)}
        results = [
            np.full(shape, nothing[d][1], nothing[d][0]) for shape, d in zip(output_shapes, output_dtypes, strict=True)
        ]
        buffers = [_aligned(_bits(array)) for array in inputs] + [_aligned(array) for array in results]
        pointers = [ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers]
        values: list[Any] = [*pointers, *(ctypes.c_int(value) for value in scalars)]
        parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        (x, y, z), (threads, _, _) = grid, threadgroup
        self._libraries[compiled_source].start(parameters, x // threads, y, z, threads)
        found = [mx.array(buffer) for buffer in buffers[len(inputs) :]]
        return [a if d == mx.float32 else a.view(mx.bfloat16) for a, d in zip(found, output_dtypes, strict=True)]


def _bits(array: mx.array) -> np.ndarray:
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 256 bytes, as the device's allocations do."""
    room = np.empty(array.nbytes + 256, np.uint8)
    begin = -room.ctypes.data % 256
    copy = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy

"""Attention of a few queries on CUDA, in which a query's result depends on its own keys alone.

MLX takes other kernels for one query than for several, and for other numbers of keys. Here keys are taken in chunks of
64 that begin at multiples of 64 of the sequence: a block of threads computes the softmax and the weighted values of one
chunk, for one query and the heads that share a key head, and a second kernel adds the chunks in order. A query adds
exactly nothing for what it does not see, so that neither rows after it nor keys before its window change a bit. The
relative bias is computed where it is used, and no mask is made.
"""

from __future__ import annotations

import mlx.core as mx

from engine.cache import ALIGN, KVCache
from engine.model.cuda.compiler import TYPES, available, compiled
from engine.model.relative_bias import RelativeBias

_CHUNK = 64
assert ALIGN % _CHUNK == 0  # so that chunks of a view are chunks of the sequence

_CHUNKS = r"""
#define NOTHING __int_as_float(0xff800000)  // minus infinity

// A block of D threads, a multiple of 64. Keys are counted from a chunk's beginning on; row `start` of the buffers, of
// `capacity` rows per head, is number 0, and the last of `length` queries has key `all` - 1 as its own.
extern "C" __global__ void NAME(
    const T* q, const T* r, const T* keys, const T* values, const T* bank,
    float* most_of, float* total_of, float* sum_of, int length, int all, int start, int capacity, int extent) {
  const int chunk = blockIdx.x, group = blockIdx.y, row = blockIdx.z, me = threadIdx.x;
  const int heads = gridDim.y * HEADS, chunks = gridDim.x;
  const int own = all - length + row;
  const int begin = chunk * CHUNK, end = min(begin + CHUNK, own + 1);
  if (begin > own) return;

  __shared__ float query[HEADS][D];
  __shared__ float feature[HEADS][FEATURES];
  __shared__ float weight[HEADS][CHUNK];
  for (int h = 0; h < HEADS; ++h) {
    const int head = group * HEADS + h;
    query[h][me] = as_float(q[(row * heads + head) * D + me]) / D;
    for (int f = me; f < FEATURES; f += D) feature[h][f] = as_float(r[(row * heads + head) * FEATURES + f]);
  }
  __syncthreads();

  // One key per thread; as many threads as there are sides share the heads of a key.
  constexpr int SIDES = D / CHUNK, MINE = (HEADS + SIDES - 1) / SIDES;
  {
    const int side = me / CHUNK;
    const int key = begin + me % CHUNK, away = own - key;
    const bool sees = away >= 0 && (!WINDOWED || away < extent);
    float score[MINE] = {};
    if (sees) {
      const T* k = keys + (static_cast<long long>(group) * capacity + start + key) * D;
#pragma unroll 2
      for (int d = 0; d < D; d += 8) {
        const Eight part = eight_at(k + d);
#pragma unroll
        for (int u = 0; u < MINE; ++u) {
          const float* wanted = query[min(side + u * SIDES, HEADS - 1)] + d;
#pragma unroll
          for (int i = 0; i < 8; ++i) score[u] = fmaf(wanted[i], part.v[i], score[u]);
        }
      }
      if (away < extent) {
        const T* column = bank + extent - 1 - away;
#pragma unroll 4
        for (int f = 0; f < FEATURES; ++f) {
          const float b = as_float(column[f * extent]);
#pragma unroll
          for (int u = 0; u < MINE; ++u) {
            score[u] = fmaf(feature[min(side + u * SIDES, HEADS - 1)][f], b, score[u]);
          }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < MINE; ++u) {
      if (side + u * SIDES < HEADS) weight[side + u * SIDES][me % CHUNK] = sees ? score[u] : NOTHING;
    }
  }
  __syncthreads();

  const long long at = (static_cast<long long>(row) * heads + group * HEADS) * chunks + chunk;
  for (int h = me / 32; h < HEADS; h += D / 32) {
    const int lane = me % 32;
    const float a = weight[h][lane], b = weight[h][lane + 32];
    const float most = most_in_warp(fmaxf(a, b));
    const float p = most == NOTHING ? 0.0f : expf(a - most), s = most == NOTHING ? 0.0f : expf(b - most);
    const float total = sum_over_warp(p + s);
    weight[h][lane] = p;
    weight[h][lane + 32] = s;
    if (lane == 0) {
      most_of[at + h * chunks] = most;
      total_of[at + h * chunks] = total;
    }
  }
  __syncthreads();

  float sum[HEADS] = {};
  const T* v = values + (static_cast<long long>(group) * capacity + start + begin) * D + me;
#pragma unroll 4
  for (int key = begin; key < end; ++key, v += D) {
    const float value = as_float(*v);
#pragma unroll
    for (int h = 0; h < HEADS; ++h) sum[h] = fmaf(weight[h][key - begin], value, sum[h]);
  }
#pragma unroll
  for (int h = 0; h < HEADS; ++h) sum_of[(at + h * chunks) * D + me] = sum[h];
}
"""

_MERGE = r"""
#define NOTHING __int_as_float(0xff800000)

extern "C" __global__ void NAME(
    const float* most_of, const float* total_of, const float* sum_of, T* out, int length, int all, int chunks) {
  const int head = blockIdx.x, row = blockIdx.y, heads = gridDim.x, me = threadIdx.x;
  const int seen = (all - length + row) / CHUNK + 1;
  const long long query = static_cast<long long>(row) * heads + head, at = query * chunks;
  float most = NOTHING;
  for (int c = 0; c < seen; ++c) most = fmaxf(most, most_of[at + c]);
  float total = 0.0f, sum = 0.0f;
#pragma unroll 4
  for (int c = 0; c < seen; ++c) {
    const float share = expf(most_of[at + c] - most);
    total = fmaf(share, total_of[at + c], total);
    sum = fmaf(share, sum_of[(at + c) * D + me], sum);
  }
  store(out + query * D + me, sum / total);
}
"""


def takes(head_dim: int, dtype: mx.Dtype) -> bool:
    """Whether `RowAttention` computes heads of that size."""
    return head_dim % _CHUNK == 0 and dtype in TYPES and available()


class RowAttention:
    """The attention of one layer for few rows, in float32, with scores scaled by 1 / head_dim.

    Args:
        group: query heads per key head.
        dtype: of queries, features and keys.
    """

    def __init__(self, head_dim: int, group: int, d_rel: int, bias: RelativeBias, dtype: mx.Dtype) -> None:
        self.bias, self.dtype = bias, dtype
        shared: dict[str, int | mx.Dtype] = {"T": dtype, "D": head_dim, "CHUNK": _CHUNK}
        grouping = {"HEADS": group, "FEATURES": d_rel, "WINDOWED": int(bias.windowed)}
        self._chunks = compiled("attention_chunks", _CHUNKS, **shared, **grouping)
        self._merge = compiled("attention_merge", _MERGE, **shared)

    def __call__(self, q: mx.array, r: mx.array, cache: KVCache, first: int) -> mx.array:
        """The last L rows of `cache` as queries over its keys -> [1, L, heads * head_dim].

        Args:
            q, r: [1, L, heads, head_dim] and relative features [1, L, heads, d_rel], both with their log scaling.
            first: position of the first key that any of the rows may see, a multiple of `ALIGN`.
        """
        assert cache.keys is not None
        assert cache.values is not None
        _, length, heads, head_dim = q.shape
        _, kv_heads, capacity, _ = cache.keys.shape
        keys = cache.offset - first
        chunks = -(-keys // _CHUNK)
        shape = (length, heads, chunks)
        parts = self._chunks(
            [q, r, cache.keys, cache.values, self.bias.bank],
            [length, keys, first - cache.base, capacity, self.bias.extent],
            blocks=(chunks, kv_heads, length),
            threads=head_dim,
            outputs=[(shape, mx.float32), (shape, mx.float32), ((*shape, head_dim), mx.float32)],
        )
        return self._merge(
            parts,
            [length, keys, chunks],
            blocks=(heads, length, 1),
            threads=head_dim,
            outputs=[((1, length, heads * head_dim), self.dtype)],
        )[0]

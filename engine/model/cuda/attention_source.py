"""CUDA source of `engine.model.cuda.attention`."""

CHUNKS = r"""
#define NOTHING __int_as_float(0xff800000)  // minus infinity

// A block: one chunk of keys, the heads that share a key head, and `per_block` rows. Each warp keeps 16 of the keys and
// 16 dimensions of all values in registers, whatever the number of rows; heads are the columns of a tensor core's tile.
// Keys from position `first` on are in the buffers, of `capacity` rows per head, whose row 0 is position `base`.
extern "C" __global__ void __launch_bounds__(2 * CHUNK) NAME(
    const bf16* q, const bf16* r, const bf16* keys, const bf16* values, const bf16* bank,
    float* most_of, float* total_of, float* sum_of,
    int length, int position, int first, int base, int capacity, int extent, int per_block) {
  constexpr int WARPS = CHUNK / 16, STEPS = CHUNK / 16, SLABS = D / 32, TILES = (D / 16 + WARPS - 1) / WARPS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane / 4, place = lane % 4;
  const int group = blockIdx.y, heads = gridDim.y * HEADS, chunks = gridDim.x;
  const int begin = (first / CHUNK + static_cast<int>(blockIdx.x)) * CHUNK, end = position + length;
  const int from = blockIdx.z * per_block, to = min(from + per_block, length);
  const long long buffer = static_cast<long long>(group) * capacity - base;

  const int low_key = begin + 16 * warp + quad, high_key = low_key + 8;
  Pairs low[SLABS] = {}, high[SLABS] = {};
#pragma unroll
  for (int s = 0; s < SLABS; ++s) {
    const int d = 32 * s + 8 * place;
    if (low_key >= first && low_key < end) low[s] = row_pairs(keys + (buffer + low_key) * D + d);
    if (high_key >= first && high_key < end) high[s] = row_pairs(keys + (buffer + high_key) * D + d);
  }
  // Dimensions 2 quad and 2 quad + 1 of a tile, for four keys of each step.
  unsigned value[TILES][STEPS][4] = {};
#pragma unroll
  for (int t = 0; t < TILES; ++t) {
    const int d = 16 * (warp + WARPS * t) + 2 * quad;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = begin + 16 * s + 4 * place + i;
        if (d < D && key >= first && key < end) {
          value[t][s][i] = __ldg(reinterpret_cast<const unsigned*>(values + (buffer + key) * D + d));
        }
      }
    }
  }

  // Scores in float, then in their place weights in bfloat16.
  __shared__ __align__(16) float scores[ROWS * HEADS][CHUNK + 8];
  const auto sees_some = [&](int own) {
    return begin <= own && (!WINDOWED || own - (begin + CHUNK - 1) < extent);
  };
  for (int row = from; row < to; ++row) {
    const int own = position + row;
    if (!sees_some(own)) continue;
#pragma unroll
    for (int tile = 0; tile < HEADS; tile += 8) {
      const long long query = static_cast<long long>(row) * heads + group * HEADS + tile + quad;
      const bool is_head = tile + quad < HEADS;
      float sum[2][4] = {};
#pragma unroll
      for (int s = 0; s < SLABS; ++s) {
        Pairs x = {};
        if (is_head) x = row_pairs(q + query * D + 32 * s + 8 * place);
        add_eight(sum[s % 2], low[s], high[s], x);
      }
      float score[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) score[i] = (sum[0][i] + sum[1][i]) * (1.0f / D);
      if (own - (begin + CHUNK - 1) < extent) {
#pragma unroll
        for (int sixteen = 0; sixteen < FEATURES; sixteen += 16) {
          bf16 of_low[4] = {}, of_high[4] = {}, feature[4] = {};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int f = sixteen + 4 * place + i;
            if (f >= FEATURES) continue;
            const bf16* of_own = bank + f * extent + extent - 1 - own;
            if (low_key <= own && own - low_key < extent) of_low[i] = of_own[low_key];
            if (high_key <= own && own - high_key < extent) of_high[i] = of_own[high_key];
            if (is_head) feature[i] = r[query * FEATURES + f];
          }
          add_product(score, both(of_low[0], of_low[1]), both(of_low[2], of_low[3]), both(of_high[0], of_high[1]),
                      both(of_high[2], of_high[3]), both(feature[0], feature[1]), both(feature[2], feature[3]));
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = i < 2 ? low_key : high_key, head = tile + 2 * place + i % 2;
        const bool sees = key >= first && key <= own && (!WINDOWED || own - key < extent);
        if (head < HEADS) scores[(row - from) * HEADS + head][key - begin] = sees ? score[i] : NOTHING;
      }
    }
  }
  __syncthreads();

  for (int i = warp; i < (to - from) * HEADS; i += WARPS) {
    const int row = from + i / HEADS;
    if (!sees_some(position + row)) continue;
    float score[CHUNK / 32], most = NOTHING, total = 0.0f;
#pragma unroll
    for (int k = 0; k < CHUNK / 32; ++k) {
      score[k] = scores[i][CHUNK / 32 * lane + k];
      most = fmaxf(most, score[k]);
    }
    most = most_in_warp(most);
    __syncwarp();
    unsigned* weights = reinterpret_cast<unsigned*>(scores[i]) + CHUNK / 64 * lane;
#pragma unroll
    for (int k = 0; k < CHUNK / 32; k += 2) {
      weights[k / 2] = pair(expf(score[k] - most), expf(score[k + 1] - most));
      total += __uint_as_float(weights[k / 2] << 16) + __uint_as_float(weights[k / 2] & 0xffff0000u);
    }
    total = sum_over_warp(total);
    if (lane == 0) {
      const long long at = (static_cast<long long>(row) * heads + group * HEADS + i % HEADS) * chunks + blockIdx.x;
      most_of[at] = most, total_of[at] = total;
    }
  }
  __syncthreads();

  for (int row = from; row < to; ++row) {
    if (!sees_some(position + row)) continue;
#pragma unroll
    for (int tile = 0; tile < HEADS; tile += 8) {
      float sum[TILES][4] = {};
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        uint2 weight = {};
        if (tile + quad < HEADS) {
          const float* of_head = scores[(row - from) * HEADS + tile + quad];
          weight = *reinterpret_cast<const uint2*>(of_head + 8 * s + 2 * place);
        }
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
          const unsigned(&v)[4] = value[t][s];
          add_product(sum[t], __byte_perm(v[0], v[1], 0x5410), __byte_perm(v[2], v[3], 0x5410),
                      __byte_perm(v[0], v[1], 0x7632), __byte_perm(v[2], v[3], 0x7632), weight.x, weight.y);
        }
      }
#pragma unroll
      for (int t = 0; t < TILES; ++t) {
        const int d = 16 * (warp + WARPS * t) + 2 * quad;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int head = tile + 2 * place + i;
          if (d >= D || head >= HEADS) continue;
          const long long at = (static_cast<long long>(row) * heads + group * HEADS + head) * chunks + blockIdx.x;
          *reinterpret_cast<float2*>(sum_of + at * D + d) = {sum[t][i], sum[t][i + 2]};
        }
      }
    }
  }
}
"""

MERGE = r"""
#define NOTHING __int_as_float(0xff800000)

// A block: one row and head. Of every SLICES chunks of the sequence a thread adds one, in ascending order.
extern "C" __global__ void NAME(
    const float* most_of, const float* total_of, const float* sum_of, bf16* out,
    int position, int first, int extent, int chunks) {
  const int head = blockIdx.x, row = blockIdx.y, heads = gridDim.x, own = position + row;
  const int slice = threadIdx.x / D, me = threadIdx.x % D;
  const int from = (WINDOWED ? max(first, own - extent + 1) : first) / CHUNK, to = own / CHUNK;
  const long long query = static_cast<long long>(row) * heads + head, at = query * chunks - first / CHUNK;

  __shared__ float mosts[SLICES * D / 32];
  float most = NOTHING;
  for (int c = from + static_cast<int>(threadIdx.x); c <= to; c += SLICES * D) most = fmaxf(most, most_of[at + c]);
  most = most_in_warp(most);
  if (threadIdx.x % 32 == 0) mosts[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < SLICES * D / 32; ++w) most = fmaxf(most, mosts[w]);

  float total = 0.0f, sum = 0.0f;
#pragma unroll 8
  for (int c = from + (slice - from % SLICES + SLICES) % SLICES; c <= to; c += SLICES) {
    const float share = expf(most_of[at + c] - most);
    total = fmaf(share, total_of[at + c], total);
    sum = fmaf(share, sum_of[(at + c) * D + me], sum);
  }
  __shared__ float totals[SLICES][D], sums[SLICES][D];
  totals[slice][me] = total, sums[slice][me] = sum;
  __syncthreads();
  if (slice) return;
#pragma unroll
  for (int s = 1; s < SLICES; ++s) total += totals[s][me], sum += sums[s][me];
  store(out + query * D + me, sum / total);
}
"""

"""CUDA source of `engine.model.cuda.products`."""

TENSOR = r"""
// A source of weights has VALUES inputs per thread and slab, a Part of what is read for them, of which AHEAD are under
// way, and adds parts to sums.

struct Plain {
  static constexpr int VALUES = 8, AHEAD = 4;
  const bf16 *low, *high;
  struct Part { Pairs low, high; };

  // Weights are read once: they need not stay in the cache.
  static __device__ __forceinline__ Pairs read(const bf16* p) {
    const uint4 u = __ldcs(reinterpret_cast<const uint4*>(p));
    return {{u.x, u.y, u.z, u.w}};
  }
  __device__ __forceinline__ Part part(int k) const { return {read(low + k), read(high + k)}; }
  __device__ __forceinline__ void add(float (&sum)[4], const Part& part, const Pairs (&row)[1]) const {
    add_eight(sum, part.low, part.high, row[0]);
  }
};

// Packed in any number of bits: expanded to bfloat16.
template <int CODE, int SIZE, typename S>
struct Packed {
  static constexpr int VALUES = 8, AHEAD = 4;
  const unsigned char *low, *high;
  const S *low_scales, *high_scales, *low_biases, *high_biases;
  struct Part { Pairs low, high; };

  static __device__ __forceinline__ Pairs read(const unsigned char* p, float scale, float bias) {
    unsigned long long codes = 0;
    if constexpr (CODE == 8) {
      const uint2 u = __ldcs(reinterpret_cast<const uint2*>(p));
      codes = static_cast<unsigned long long>(u.y) << 32 | u.x;
    } else if constexpr (CODE == 4) {
      codes = __ldcs(reinterpret_cast<const unsigned*>(p));
    } else {
#pragma unroll
      for (int i = 0; i < CODE; ++i) codes |= static_cast<unsigned long long>(__ldg(p + i)) << (8 * i);
    }
    Pairs pairs;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float two[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const unsigned code = static_cast<unsigned>(codes >> ((2 * i + j) * CODE)) & ((1u << CODE) - 1);
        two[j] = fmaf(static_cast<float>(code), scale, bias);
      }
      pairs.v[i] = pair(two[0], two[1]);
    }
    return pairs;
  }
  __device__ __forceinline__ Part part(int k) const {
    const int g = k / SIZE;
    return {read(low + k / 8 * CODE, as_float(low_scales[g]), as_float(low_biases[g])),
            read(high + k / 8 * CODE, as_float(high_scales[g]), as_float(high_biases[g]))};
  }
  __device__ __forceinline__ void add(float (&sum)[4], const Part& part, const Pairs (&row)[1]) const {
    add_eight(sum, part.low, part.high, row[0]);
  }
};

// Packed in four bits: a code c is multiplied as 128 + c, whose bits as bfloat16 are 0x4300 + c, and
// sum (s c + b) x = s sum (128 + c) x + (b - 128 s) sum x over the inputs of a slab, which lie in one group.
template <int SIZE, typename S>
struct Packed<4, SIZE, S> {
  static constexpr int VALUES = SIZE % 64 ? 8 : 16, AHEAD = 2, EIGHTS = VALUES / 8;
  const unsigned char *low, *high;
  const S *low_scales, *high_scales, *low_biases, *high_biases;
  struct Part { unsigned low[EIGHTS], high[EIGHTS]; float low_scale, high_scale, low_bias, high_bias; };

  static __device__ __forceinline__ void read(unsigned (&codes)[EIGHTS], const unsigned char* p) {
    if constexpr (EIGHTS == 2) {
      const uint2 u = __ldcs(reinterpret_cast<const uint2*>(p));
      codes[0] = u.x, codes[1] = u.y;
    } else {
      codes[0] = __ldcs(reinterpret_cast<const unsigned*>(p));
    }
  }
  __device__ __forceinline__ Part part(int k) const {
    Part part;
    const int g = k / SIZE;
    read(part.low, low + k / 2), read(part.high, high + k / 2);
    part.low_scale = as_float(low_scales[g]), part.high_scale = as_float(high_scales[g]);
    part.low_bias = as_float(low_biases[g]), part.high_bias = as_float(high_biases[g]);
    return part;
  }
  // Codes i and i + 4.
  static __device__ __forceinline__ unsigned two(unsigned codes, int i) {
    return (codes >> (4 * i)) & 0x000f000fu | 0x43004300u;
  }
  __device__ __forceinline__ void add(float (&sum)[4], const Part& part, const Pairs (&row)[EIGHTS]) const {
    constexpr unsigned ones = 0x3f803f80u;
    float coded[4] = {}, plain[4] = {};
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        // Inputs i and i + 4, i + 1 and i + 5.
        const unsigned even = __byte_perm(row[e].v[i / 2], row[e].v[i / 2 + 2], 0x5410);
        const unsigned odd = __byte_perm(row[e].v[i / 2], row[e].v[i / 2 + 2], 0x7632);
        const unsigned l = part.low[e], h = part.high[e];
        add_product(coded, two(l, i), two(l, i + 1), two(h, i), two(h, i + 1), even, odd);
        add_product(plain, ones, ones, ones, ones, even, odd);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float scale = i < 2 ? part.low_scale : part.high_scale, bias = i < 2 ? part.low_bias : part.high_bias;
      sum[i] = fmaf(scale, coded[i], fmaf(fmaf(-128.0f, scale, bias), plain[i], sum[i]));
    }
  }
};

// A block computes 16 outputs: of one matrix for all rows; of experts for the row of pair blockIdx.z.
extern "C" __global__ void NAME(
#if BITS
    const bf16* rows, const unsigned* weight, const S* scales, const S* biases,
#else
    const bf16* rows, const bf16* weight,
#endif
#if EXPERTS
    const unsigned* experts, bf16* out, int inputs, int outputs, int pairs_per_row) {
  const long long matrix = experts[blockIdx.z], to = blockIdx.z, from = to / pairs_per_row;
  constexpr int count = 1;
#else
    bf16* out, int inputs, int outputs, int count) {
  constexpr long long matrix = 0, to = 0, from = 0;
#endif
  constexpr int WARPS = 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane / 4, first = blockIdx.x * 16;
  const long long low = matrix * outputs + min(first + quad, outputs - 1);
  const long long high = matrix * outputs + min(first + quad + 8, outputs - 1);
#if BITS
  const unsigned char* codes = reinterpret_cast<const unsigned char*>(weight);
  const long long bytes = inputs / 8 * BITS, groups = inputs / GROUP;
  using Source = Packed<BITS, GROUP, S>;
  const Source source{
      codes + low * bytes, codes + high * bytes, scales + low * groups, scales + high * groups,
      biases + low * groups, biases + high * groups};
#else
  using Source = Plain;
  const Source source{weight + low * inputs, weight + high * inputs};
#endif
  constexpr int VALUES = Source::VALUES, SLAB = 4 * VALUES, AHEAD = Source::AHEAD / TILES;

  float sum[TILES][4] = {};
  for (int slab = SLAB * warp; slab < inputs; slab += SLAB * WARPS * AHEAD) {
    typename Source::Part parts[AHEAD];
    Pairs row[AHEAD][TILES][VALUES / 8] = {};
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
      const int k = slab + SLAB * WARPS * u + VALUES * (lane % 4);
      parts[u] = {};
      if (k < inputs) {
        parts[u] = source.part(k);
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
          for (int e = 0; e < VALUES / 8; ++e) {
            const int r = 8 * t + quad;
            if (r < count) row[u][t][e] = row_pairs(rows + (from + r) * inputs + k + 8 * e);
          }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
#pragma unroll
      for (int t = 0; t < TILES; ++t) source.add(sum[t], parts[u], row[u][t]);
    }
  }

  __shared__ float sums[WARPS][16][8 * TILES + 1];
#pragma unroll
  for (int t = 0; t < TILES; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[warp][quad + i / 2 * 8][8 * t + 2 * (lane % 4) + i % 2] = sum[t][i];
  }
  __syncthreads();
  for (int at = threadIdx.x; at < 16 * count; at += blockDim.x) {
    const int o = at % 16, r = at / 16;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) total += sums[w][o][r];
    if (first + o < outputs) store(out + (to + r) * outputs + first + o, total);
  }
}
"""

FLOAT = r"""
// A warp computes one output of up to ROWS rows: lane t sums inputs 8 t, ... of every 256 in ascending order, and the
// lanes are added as a tree.
extern "C" __global__ void NAME(
    const float* rows, const float* weight, float* out, int inputs, int outputs, int count) {
  const int lane = threadIdx.x % 32, output = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const int from = blockIdx.z * ROWS;
  if (output >= outputs) return;
  float sum[ROWS] = {};
#pragma unroll 2
  for (int k = 8 * lane; k < inputs; k += 256) {
    const Eight w = eight_at(weight + static_cast<long long>(output) * inputs + k);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const Eight x = eight_at(rows + static_cast<long long>(min(from + r, count - 1)) * inputs + k);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[r] = fmaf(w.v[i], x.v[i], sum[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float total = sum_over_warp(sum[r]);
    if (lane == 0 && from + r < count) out[static_cast<long long>(from + r) * outputs + output] = total;
  }
}
"""

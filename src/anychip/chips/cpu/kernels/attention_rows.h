// A few rows of queries against keys and values of bfloat16 that are read where they lie in the cache, as in
// decode: writing a block out as float32 first would cost more than its products. Every sum has the order
// that a register tile over such a block has, and the same bits.
#pragma once
#include "attention_tiles.h"
#include "micro.h"

#if defined(ANYCHIP_PAIRS_IN_REGISTERS)
#define ANYCHIP_ROWS_IN_PLACE 1

namespace anychip {

constexpr int ROWS_IN_PLACE = 8;  // of queries; more are worth a block in float32

// Vectors of a KV head, of keys or of values, in a block of `stride` positions; those from `count` on are zeros.
struct Vectors {
  const bf16* base;
  const int64_t* at;  // where each lies from the base on, and those of the next block up to `known`
  int64_t count, stride, known, length;
  const bf16* operator[](int64_t j) const { return base + at[j]; }
  void ask(int64_t elements) const {  // for so many of each position of the next block
    for (int64_t j = stride; j < known; ++j) fetch(base + at[j], elements * sizeof(bf16));
  }
};

// scores [M][stride]: rows of q [length][M] times the keys.
template <int M>
inline void score_keys(const Vectors& k, const float* q, float* scores) {
  for (int64_t j0 = 0; j0 < k.stride; j0 += W) {
    V sum[M];
    for (auto& s : sum) s = vzero();
    for (int64_t d = 0; d < k.length && j0 < k.count; d += 2 * W) {
      V pairs[W];
      for (int j = 0; j < W; ++j) {
        pairs[j] = j0 + j < k.count ? vload(reinterpret_cast<const float*>(k[j0 + j] + d)) : vzero();
      }
      transpose(pairs);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
        const float* x = q + (d + 2 * i) * M;
        V first = bf16_first(pairs[i]), second = bf16_second(pairs[i]);
        for (int m = 0; m < M; ++m) sum[m] = vfma(vset(x[M + m]), second, vfma(vset(x[m]), first, sum[m]));
      }
    }
    for (int m = 0; m < M; ++m) vstore(scores + m * k.stride + j0, sum[m]);
  }
}

// o [M][length] += weights [M][stride] times N vectors of the values, from element d on.
template <int M, int N>
inline void add_values(const Vectors& v, int64_t d, const float* weights, float* o) {
  V sum[M][N];
  for (int m = 0; m < M; ++m) {
    for (int i = 0; i < N; ++i) sum[m][i] = vload(o + m * v.length + d + i * W);
  }
  for (int64_t j = 0; j < v.count; ++j) {
    for (int i = 0; i < N; ++i) {
      V value = load(v[j] + d + i * W);
      for (int m = 0; m < M; ++m) sum[m][i] = vfma(vset(weights[m * v.stride + j]), value, sum[m][i]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int i = 0; i < N; ++i) vstore(o + m * v.length + d + i * W, sum[m][i]);
  }
}

template <int M>
inline void gather_values(const Vectors& v, const float* weights, float* o) {
  constexpr int N = M <= 5 ? 4 : 2;
  int64_t d = 0;
  for (; d + N * W <= v.length; d += N * W) add_values<M, N>(v, d, weights, o);
  for (; d < v.length; d += 2 * W) add_values<M, 2>(v, d, weights, o);
}

}  // namespace anychip
#endif

// Register tiles. Every element of a product is one chain of fused multiply-adds in the order of
// K, whatever the tile's height: a row's result does not depend on the rows beside it. Scaled
// formats have one chain a run of 16 or 32 steps, s, and one over the runs: c += d * s + m * sum(x).
#pragma once
#include "formats.h"

namespace anychip {

constexpr int MR = REGISTERS == 32 ? 12 : (W == 8 ? 6 : 4);  // rows of a tile

// How two operands meet. Both are streams of 4-byte words, NR (weights) or M (rows) a step of SPAN
// elements of K: float32 by fused multiply-add, or pairs of bfloat16 by the dot product.
struct Fma {
  static constexpr int SPAN = 1;
  using Weights = V;
  static Weights weights(const float* p) { return vload(p); }
  static void put(float* p, Weights w) { vstore(p, w); }
  static V add(float x, Weights w, V sum) { return vfma(vset(x), w, sum); }
};

#ifdef ANYCHIP_DOT_BF16
struct Dot {
  static constexpr int SPAN = 2;
  using Weights = VI;
  static Weights weights(const float* p) { return _mm512_loadu_si512(p); }
  static void put(float* p, Weights w) { _mm512_storeu_si512(p, w); }
  static V add(float pair, Weights w, V sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(_mm512_set1_ps(pair)), (__m512bh)w);
  }
};
#endif

// c[M][NR] (+)= a[M][steps] b[steps][NR]. Row m, step i of a lies at m * AM + i * AK; a row of c is
// ldc long.
template <class Meet, int M, int AM, int AK>
inline void tile(int64_t steps, const float* a, const float* b, float* c, int64_t ldc, bool add) {
  V acc[M][2];
  for (int m = 0; m < M; ++m) {
    acc[m][0] = add ? vload(c + m * ldc) : vzero();
    acc[m][1] = add ? vload(c + m * ldc + W) : vzero();
  }
  for (int64_t i = 0; i < steps; ++i, a += AK, b += NR) {
    auto b0 = Meet::weights(b), b1 = Meet::weights(b + W);
    for (int m = 0; m < M; ++m) {
      acc[m][0] = Meet::add(a[m * AM], b0, acc[m][0]);
      acc[m][1] = Meet::add(a[m * AM], b1, acc[m][1]);
    }
  }
  for (int m = 0; m < M; ++m) {
    vstore(c + m * ldc, acc[m][0]);
    vstore(c + m * ldc + W, acc[m][1]);
  }
}

// c[NR] += d * s + minimum * sum, one row of a run's end.
template <bool OFFSET>
inline void add_scaled(float* c, const V (&s)[2], const V (&d)[2], const V (&minimum)[2], float sum) {
  for (int h = 0; h < 2; ++h) {
    V x = vfma(d[h], s[h], vload(c + h * W));
    if (OFFSET) x = vfma(minimum[h], vset(sum), x);
    vstore(c + h * W, x);
  }
}

// The scaled counterpart of `tile`, one for all formats whose runs are as long: b holds numbers, scales
// [runs][2][NR] their d and m, sums the rows' sums of x over runs, `stride` apart from row to row. Adds to
// c [M][NR].
template <class Meet, int M, int RUN, bool OFFSET>
__attribute__((noinline)) void tile_scaled(int64_t runs, const float* a, const float* b, const float* scales,
                                           const float* sums, int64_t stride, float* c) {
  constexpr int STEPS = RUN / Meet::SPAN;
  for (int64_t i = 0; i < runs; ++i, a += STEPS * M, b += STEPS * NR, scales += 2 * NR) {
    V s[M][2];
    for (auto& row : s) row[0] = row[1] = vzero();
    const float *x = a, *w = b;
    for (int k = 0; k < STEPS; ++k, x += M, w += NR) {
      auto b0 = Meet::weights(w), b1 = Meet::weights(w + W);
      for (int m = 0; m < M; ++m) {
        s[m][0] = Meet::add(x[m], b0, s[m][0]);
        s[m][1] = Meet::add(x[m], b1, s[m][1]);
      }
    }
    V d[2] = {vload(scales), vload(scales + W)}, low[2] = {vload(scales + NR), vload(scales + NR + W)};
    for (int m = 0; m < M; ++m) add_scaled<OFFSET>(c + m * NR, s[m], d, low, sums[m * stride + i]);
  }
}

// Calls f with the number of rows as a type, so that a tile of every height is compiled.
template <int M>
struct Rows {
  static constexpr int value = M;
};
template <int M, class F>
inline void with_rows(int rows, F f) {
  if constexpr (M > 1) {
    if (rows < M) return with_rows<M - 1>(rows, f);
  }
  f(Rows<M>{});
}

}  // namespace anychip

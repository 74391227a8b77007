// A few query rows against keys and values that are read where they lie in the cache, as in decode, by dot
// products of bfloat16. Lanes are keys, then elements of values; see attention_dots_columns.h for many rows.
#pragma once
#include "attention_dots_work.h"
#include "attention_rows.h"

#ifdef ANYCHIP_DOT_BF16
namespace anychip {
namespace attention {

// Lines of the next block that this head asks for, a few at a time between products: more at once than
// the processor can wait for would hold the products up. Where heads lie side by side each asks for a
// share of the positions, whole ones, since memory is fastest in sequence.
struct Ahead {
  const bf16 *k, *v;
  const int64_t* at;
  int64_t count, elements;
  Ahead(const Work& w, const int64_t* next, int64_t known) {
    int64_t head = w.asks > 1 ? 0 : w.head * w.g.head_stride, share = w.asks > 1 ? w.head : 0;
    int64_t first = known * share / w.asks;
    k = static_cast<const bf16*>(w.g.k_cache) + head;
    v = static_cast<const bf16*>(w.g.v_cache) + head;
    at = next + first;
    count = known * (share + 1) / w.asks - first;
    elements = w.asks * w.g.dim;
  }
  void ask(const bf16* base, int64_t part, int64_t parts) const {
    for (int64_t j = count * part / parts; j < count * (part + 1) / parts; ++j) {
      fetch(base + at[j], elements * sizeof(bf16));
    }
  }
};

// q [dim / 2][rows] pairs.
inline void load_rows(const DotWork& w) {
  Places places(w, 0, w.g.q_stride, w.g.dim);
  for (int64_t r = 0; r < places.count; ++r) {
    const bf16* q = static_cast<const bf16*>(w.g.q) + places.at[r];
    for (int64_t d = 0; d < w.g.dim; d += 2) std::memcpy(w.q + d / 2 * w.rows() + r, q + d, 2 * sizeof(bf16));
  }
}

// scores [M][KEYS].
template <int M>
inline void score_rows(const Vectors& k, const float* q, float* scores, const Ahead& next) {
  for (int64_t j0 = 0; j0 < KEYS; j0 += W) {
    next.ask(next.k, j0 / W, KEYS / W);
    V sum[M];
    for (auto& s : sum) s = vzero();
    for (int64_t d = 0; d < k.length && j0 < k.count; d += 2 * W) {
      V pairs[W];
      for (int j = 0; j < W; ++j) pairs[j] = vload(reinterpret_cast<const float*>(k[j0 + j] + d));
      transpose(pairs);
      const float* x = q + d / 2 * M;
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
        for (int m = 0; m < M; ++m) sum[m] = Dot::add(x[i * M + m], _mm512_castps_si512(pairs[i]), sum[m]);
      }
    }
    for (int m = 0; m < M; ++m) vstore(scores + m * KEYS + j0, sum[m]);
  }
}

// The largest of a row's scores, after those that it does not see are hidden; low, high: visible keys.
inline float cut_row(const AttentionArgs& g, float* scores, int64_t low, int64_t high) {
  V top = vset(-INF);
  for (int64_t j = 0; j < KEYS; j += W) {
    V x = vload(scores + j);
    if (g.softcap > 0.0) x = capped(g, x);
    if (j < low || j + W > high) x = only_visible(x, j, low, high);
    vstore(scores + j, x);
    top = vmax(x, top);
  }
  return hmax(top);
}

// Scores of a row become weights, [PAIRS]; their sum.
inline float weigh_row(const float* scores, V scale, V less, float* weights) {
  const __m512i uppers = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                                          25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  V sum = vzero();
  for (int64_t j = 0; j < KEYS; j += 2 * W) {
    V x = weight_of(vload(scores + j), scale, less), y = weight_of(vload(scores + j + W), scale, less);
    sum = vadd(vadd(sum, x), y);
    VI pairs = _mm512_permutex2var_epi16(_mm512_castps_si512(x), uppers, _mm512_castps_si512(y));
    _mm512_storeu_si512(weights + j / 2, pairs);
  }
  return hsum(sum);
}

template <int M>
inline void soften_rows(const DotWork& w, int64_t start) {
  float top[W], less[W], factor[W], sum[W] = {};
  vstore(top, vset(-INF));
  for (int m = 0; m < M; ++m) {
    int64_t token = m / w.s.group, low = w.first_of(token) - start, high = w.last_of(token) - start;
    top[m] = cut_row(w.g, w.scores + m * KEYS, low > 0 ? low : 0, high < KEYS ? high : KEYS);
  }
  V scale = vset(unit(w.g)), before = vload_n(w.now.m, M), m_now = vmax(vmul(vload(top), scale), before);
  vstore_n(w.now.m, m_now, M);
  vstore(less, less_of(m_now));
  V by = factor_of(before, m_now);
  vstore(factor, by);
  for (int m = 0; m < M; ++m) sum[m] = weigh_row(w.scores + m * KEYS, scale, vset(less[m]), w.weights + m * PAIRS);
  vstore_n(w.now.l, vfma(vload_n(w.now.l, M), by, vload(sum)), M);
  for (int m = 0; m < M; ++m) {
    float* o = w.now.o + m * w.s.width;
    for (int64_t d = 0; d < w.s.width && factor[m] != 1.0f; d += W) vstore(o + d, vmul(vload(o + d), vset(factor[m])));
  }
}

// o [M][length] += weights [M][PAIRS] times N times 32 elements of pairs of values, from element d on.
template <int M, int N>
inline void add_pairs(const Vectors& v, int64_t d, const float* weights, float* o, const Ahead& next) {
  V sum[M][2 * N];
  for (int m = 0; m < M; ++m) {
    for (int i = 0; i < 2 * N; ++i) sum[m][i] = vload(o + m * v.length + d + i * W);
  }
  for (int64_t j = 0; j < v.count; j += 2) {
    if (d == 0) next.ask(next.v, j / 2, PAIRS);
    for (int i = 0; i < N; ++i) {
      VI x = words(v[j] + d + i * 2 * W), y = words(v[j + 1] + d + i * 2 * W);
      VI first = lower_pairs(x, y), second = upper_pairs(x, y);
      for (int m = 0; m < M; ++m) {
        float weight = weights[m * PAIRS + j / 2];
        sum[m][2 * i] = Dot::add(weight, first, sum[m][2 * i]);
        sum[m][2 * i + 1] = Dot::add(weight, second, sum[m][2 * i + 1]);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int i = 0; i < 2 * N; ++i) vstore(o + m * v.length + d + i * W, sum[m][i]);
  }
}

template <int M>
inline void gather_rows(const Vectors& v, const float* weights, float* o, const Ahead& next) {
  constexpr int N = M <= 5 ? 2 : 1;
  int64_t d = 0;
  for (; d + N * 2 * W <= v.length; d += N * 2 * W) add_pairs<M, N>(v, d, weights, o, next);
  for (; d < v.length; d += 2 * W) add_pairs<M, 1>(v, d, weights, o, next);
}

template <int M>
inline void rows_of_dots(const DotWork& w, int64_t start) {
  int64_t at[2 * KEYS], known = locate(w.g, w.pages, w.length, start, 2 * KEYS, at);
  int64_t head = w.head * w.g.head_stride, count = known < KEYS ? known : KEYS;
  // Past the end the last one stands in: its scores are hidden, and its weights are 0.
  for (int64_t j = known; j < KEYS; ++j) at[j] = at[known - 1];
  Vectors keys{static_cast<const bf16*>(w.g.k_cache) + head, at, count, KEYS, known, w.g.dim};
  Vectors values{static_cast<const bf16*>(w.g.v_cache) + head, at, count, KEYS, known, w.g.value_dim};
  Ahead next(w, at + KEYS, known - count);
  score_rows<M>(keys, w.q, w.scores, next);
  soften_rows<M>(w, start);
  gather_rows<M>(values, w.weights, w.now.o, next);
}

inline void merge_rows(const DotWork& w, State into, State s) {
  float factor[2][W];
  int64_t rows = w.rows(), width = w.s.width;
  V a = vload_n(into.m, rows), b = vload_n(s.m, rows), m = vmax(a, b), fa = factor_of(a, m), fb = factor_of(b, m);
  vstore(factor[0], fa);
  vstore(factor[1], fb);
  vstore_n(into.m, m, rows);
  vstore_n(into.l, vfma(vload_n(into.l, rows), fa, vmul(vload_n(s.l, rows), fb)), rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = r * width; i < (r + 1) * width; i += W) {
      vstore(into.o + i, vfma(vload(into.o + i), vset(factor[0][r]), vmul(vload(s.o + i), vset(factor[1][r]))));
    }
  }
}

inline void write_few(const DotWork& w, State s) {
  Places places(w, 0, w.g.heads * w.g.value_dim, w.g.value_dim);
  for (int64_t r = 0; r < places.count; ++r) {
    bf16* y = static_cast<bf16*>(w.g.y) + places.at[r];
    V part = vset(part_of(w, r, s.m[r], s.l[r]));
    for (int64_t d = 0; d < w.g.value_dim; d += W) store(y + d, vmul(vload(s.o + r * w.s.width + d), part));
  }
}

}  // namespace attention
}  // namespace anychip
#endif

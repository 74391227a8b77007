// Columns of 16 or 32 query rows against blocks of the cache, by dot products of bfloat16.
//
// A lane is a query row. Scores are computed transposed, keys down and rows across, so that a key's pairs are
// spread from where they lie side by side and maxima and sums need no step between lanes; what
// comes out beside each other is what the second product takes. Outputs are transposed too: [width][rows].
#pragma once
#include "attention_dots_work.h"

#ifdef ANYCHIP_DOT_BF16
namespace anychip {
namespace attention {

// What N vectors of rows from `row` on see.
inline void look(const Work& w, int64_t row, Seen& seen) {
  seen = {};
  seen.from = seen.all_to = w.length;
  for (int64_t i = 0; i < COLUMN; ++i) {
    if (row + i >= w.rows()) continue;
    int64_t token = (row + i) / w.s.group, first = w.first_of(token), last = w.last_of(token);
    if (first >= last) first = last = 0;
    seen.first[i] = static_cast<int32_t>(first);
    seen.last[i] = static_cast<int32_t>(last);
    if (first < last && first < seen.from) seen.from = first;
    if (last > seen.to) seen.to = last;
    if (first > seen.all_from) seen.all_from = first;
    if (last < seen.all_to) seen.all_to = last;
  }
}

// Queries of a column of N vectors, [depth / 2][rows] pairs.
template <int N>
inline void load_column(const DotWork& w, int64_t row, float* out) {
  for (int64_t n = 0, first = row; n < N; ++n, first += LANES) {
    Places places(w, first, w.g.q_stride, w.g.dim);
    const bf16* q = static_cast<const bf16*>(w.g.q);
    for (int64_t d = 0; d < w.s.depth; d += 2 * LANES) {
      __mmask32 there = first_words(w.g.dim - d);
      V x[LANES];
      for (int i = 0; i < LANES; ++i) {
        x[i] = i < places.count ? _mm512_castsi512_ps(words_of(q + places.at[i] + d, there)) : vzero();
      }
      transpose(x);
      for (int i = 0; i < LANES; ++i) vstore(out + ((d / 2 + i) * N + n) * LANES, x[i]);
    }
  }
}

// Keys of a block as [depth / 32][KEYS][16 pairs], values as [PAIRS][width] pairs of positions. Past the end the
// last position stands in: its scores are hidden, and its weights are 0. Asks for the next block on the way:
// pages lie anywhere.
inline void load_pairs(const DotWork& w, int64_t start) {
  const bf16 *k = static_cast<const bf16*>(w.g.k_cache) + w.head * w.g.head_stride;
  const bf16 *v = static_cast<const bf16*>(w.g.v_cache) + w.head * w.g.head_stride;
  int64_t at[2 * KEYS], count = locate(w.g, w.pages, w.length, start, 2 * KEYS, at);
  for (int64_t j = KEYS; j < count; ++j) {
    fetch(k + at[j], w.g.dim * sizeof(bf16));
    fetch(v + at[j], w.g.value_dim * sizeof(bf16));
  }
  for (int64_t j = count; j < KEYS; ++j) at[j] = at[count - 1];
  for (int64_t d = 0; d < w.s.depth; d += 2 * LANES) {
    __mmask32 there = first_words(w.g.dim - d);
    float* out = w.keys + d / 2 * KEYS;
    for (int64_t j = 0; j < KEYS; ++j) _mm512_storeu_si512(out + j * LANES, words_of(k + at[j] + d, there));
  }
  for (int64_t d = 0; d < w.s.width; d += 2 * LANES) {
    __mmask32 there = first_words(w.g.value_dim - d);
    float* out = w.values + d;
    for (int64_t j = 0; j < KEYS; j += 2, out += w.s.width) {
      VI x = words_of(v + at[j] + d, there), y = words_of(v + at[j + 1] + d, there);
      _mm512_storeu_si512(out, lower_pairs(x, y));
      _mm512_storeu_si512(out + LANES, upper_pairs(x, y));
    }
  }
}

struct Span {  // keys of a block that any row of a column sees, in whole vectors of a row
  int64_t from, to;
};

// scores [KEYS][rows] of a span's keys; their largest.
template <int N>
inline void score(const DotWork& w, const float* q, Span span, V (&top)[N]) {
  constexpr int M = 8;
  for (auto& t : top) t = vset(-INF);
  for (int64_t j = span.from; j < span.to; j += M) {
    V sum[M][N];
    for (auto& row : sum) {
      for (auto& s : row) s = vzero();
    }
    const float *a = w.keys + j * LANES, *b = q;
    for (int64_t d = 0; d < w.s.depth; d += 2 * LANES, a += KEYS * LANES) {
      for (int i = 0; i < LANES; ++i, b += N * LANES) {
        VI x[N];
        for (int n = 0; n < N; ++n) x[n] = words(b + n * LANES);
        for (int m = 0; m < M; ++m) {
          for (int n = 0; n < N; ++n) sum[m][n] = Dot::add(a[m * LANES + i], x[n], sum[m][n]);
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        vstore(w.scores + ((j + m) * N + n) * LANES, sum[m][n]);
        top[n] = vmax(sum[m][n], top[n]);
      }
    }
  }
}

// Caps the scores and hides keys that rows do not see.
template <int N>
inline void cut(const DotWork& w, const Seen& seen, int64_t start, Span span, V (&top)[N]) {
  for (auto& t : top) t = vset(-INF);
  for (int64_t j = span.from; j < span.to; ++j) {
    VI position = _mm512_set1_epi32(static_cast<int32_t>(start + j));
    for (int n = 0; n < N; ++n) {
      float* score = w.scores + (j * N + n) * LANES;
      V x = w.g.softcap > 0.0 ? capped(w.g, vload(score)) : vload(score);
      __mmask16 there = _mm512_cmp_epi32_mask(words(seen.first + n * LANES), position, _MM_CMPINT_LE);
      there = _mm512_mask_cmp_epi32_mask(there, position, words(seen.last + n * LANES), _MM_CMPINT_LT);
      x = _mm512_mask_mov_ps(vset(-INF), there, x);
      vstore(score, x);
      top[n] = vmax(x, top[n]);
    }
  }
}

template <int N>
struct Sums {
  V of[2 * N];  // of even and of odd keys
};
template <int N>
inline Sums<N> operator+(const Sums<N>& a, const Sums<N>& b) {
  Sums<N> sums;
  for (int i = 0; i < 2 * N; ++i) sums.of[i] = vadd(a.of[i], b.of[i]);
  return sums;
}

// Weights of keys 2 i and 2 i + 1 of every vector of a row.
template <int N>
inline Sums<N> weigh(const DotWork& w, Span span, int64_t i, V scale, const V (&less)[N]) {
  Sums<N> sums;
  for (auto& s : sums.of) s = vzero();
  for (int64_t j = span.from + 2 * i; j < span.to; j += LANES) {
    for (int n = 0; n < N; ++n) {
      const float* score = w.scores + (j * N + n) * LANES;
      V even = weight_of(vload(score), scale, less[n]), odd = weight_of(vload(score + N * LANES), scale, less[n]);
      sums.of[2 * n] = vadd(sums.of[2 * n], even);
      sums.of[2 * n + 1] = vadd(sums.of[2 * n + 1], odd);
      VI pair = _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16), _mm512_castps_si512(odd));
      _mm512_storeu_si512(w.weights + (j / 2 * N + n) * LANES, pair);
    }
  }
  return sums;
}

// o [width][rows] += values times weights of a span, after it is taken to a new maximum where one rose.
template <int N>
inline void gather(const DotWork& w, Span span, float* o, const V (&factor)[N], bool risen) {
  constexpr int M = 8;
  for (int64_t d = 0; d < w.s.width; d += M) {
    V sum[M][N];
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        sum[m][n] = vload(o + ((d + m) * N + n) * LANES);
        if (risen) sum[m][n] = vmul(sum[m][n], factor[n]);
      }
    }
    const float* a = w.values + span.from / 2 * w.s.width + d;
    const float* b = w.weights + span.from / 2 * N * LANES;
    for (int64_t j = span.from; j < span.to; j += 2, a += w.s.width, b += N * LANES) {
      VI x[N];
      for (int n = 0; n < N; ++n) x[n] = words(b + n * LANES);
      for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) sum[m][n] = Dot::add(a[m], x[n], sum[m][n]);
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) vstore(o + ((d + m) * N + n) * LANES, sum[m][n]);
    }
  }
}

// A column of N vectors against a loaded block.
template <int N>
__attribute__((noinline)) void column_block(const DotWork& w, int64_t row, const Seen& seen, int64_t start) {
  Span span{seen.from > start ? (seen.from - start) / LANES * LANES : 0,
            seen.to < start + KEYS ? round_up(seen.to - start, LANES) : KEYS};
  V top[N], less[N], factor[N];
  score<N>(w, w.q + row * w.s.depth / 2, span, top);
  bool whole = seen.all_from <= start && seen.all_to >= start + KEYS;
  if (!whole || w.g.softcap > 0.0) cut<N>(w, seen, start, span, top);
  V scale = vset(unit(w.g));
  __mmask16 risen = 0;
  for (int n = 0; n < N; ++n) {
    V before = vload(w.now.m + row + n * LANES), m = vmax(vmul(top[n], scale), before);
    vstore(w.now.m + row + n * LANES, m);
    less[n] = less_of(m);
    factor[n] = factor_of(before, m);
    risen |= _mm512_cmp_ps_mask(before, m, _CMP_NEQ_UQ);
  }
  Sums<N> half[2];  // in the order of hsum() over a row's vector
  for (int i = 0; i < 2; ++i) {
    half[i] = (weigh<N>(w, span, i, scale, less) + weigh<N>(w, span, i + 4, scale, less)) +
              (weigh<N>(w, span, i + 2, scale, less) + weigh<N>(w, span, i + 6, scale, less));
  }
  Sums<N> all = half[0] + half[1];
  for (int n = 0; n < N; ++n) {
    float* l = w.now.l + row + n * LANES;
    vstore(l, vfma(vload(l), factor[n], vadd(all.of[2 * n], all.of[2 * n + 1])));
  }
  gather<N>(w, span, w.now.o + row * w.s.width, factor, risen != 0);
}

// into = into merged with s, 16 rows of N * 16.
template <int N>
inline void merge_column(State into, State s, int64_t row, int64_t width) {
  for (int64_t n = 0, at = row; n < N; ++n, at += LANES) {
    V a = vload(into.m + at), b = vload(s.m + at), m = vmax(a, b), fa = factor_of(a, m), fb = factor_of(b, m);
    vstore(into.m + at, m);
    vstore(into.l + at, vfma(vload(into.l + at), fa, vmul(vload(s.l + at), fb)));
    float *x = into.o + row * width + n * LANES, *y = s.o + row * width + n * LANES;
    for (int64_t d = 0; d < width; ++d, x += N * LANES, y += N * LANES) {
      vstore(x, vfma(vload(x), fa, vmul(vload(y), fb)));
    }
  }
}

template <int N>
inline void write_column(const DotWork& w, State s, int64_t row) {
  int64_t dim = w.g.value_dim;
  for (int64_t n = 0, first = row; n < N && first < w.rows(); ++n, first += LANES) {
    Places places(w, first, w.g.heads * dim, dim);
    float part[LANES] = {};
    for (int64_t i = 0; i < places.count; ++i) part[i] = part_of(w, first + i, s.m[first + i], s.l[first + i]);
    for (int64_t d = 0; d < dim; d += LANES) {
      V x[LANES];
      const float* o = s.o + row * w.s.width + (d * N + n) * LANES;
      for (int i = 0; i < LANES; ++i) x[i] = vmul(vload(o + i * N * LANES), vload(part));
      transpose(x);
      for (int64_t i = 0; i < places.count; ++i) {
        store_part(static_cast<bf16*>(w.g.y) + places.at[i] + d, x[i], dim - d);
      }
    }
  }
}

// Calls f with the first row of each column, its number, and its vectors as a type.
template <class F>
inline void each_column(const Work& w, F f) {
  for (int64_t row = 0; row < w.rows(); row += COLUMN) {
    if (w.rows() - row > LANES) {
      f(row, row / COLUMN, Rows<2>{});
    } else {
      f(row, row / COLUMN, Rows<1>{});
    }
  }
}

}  // namespace attention
}  // namespace anychip
#endif

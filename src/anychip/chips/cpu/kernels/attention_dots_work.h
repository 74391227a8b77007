// A task of attention by dot products of bfloat16, and its softmax in powers of two.
//
// A score is one chain of dot products over pairs of a head's elements. A weight is rounded to bfloat16, and
// counts as rounded in the sum l too; an output is one chain over pairs of positions. Maxima are in
// units of log 2. Rows that meet the cache in columns or where it lies take the same steps: the same bits.
#pragma once
#include "attention_work.h"
#include "exp2_fast.h"
#include "micro.h"

#ifdef ANYCHIP_DOT_BF16
namespace anychip {
namespace attention {

constexpr int LANES = 16;       // query rows of a vector
constexpr int COLUMN = 2 * LANES;
constexpr int64_t DOT_ROWS = 8 * COLUMN;   // of a tile at most
constexpr int64_t LEAST_ROWS = 3 * COLUMN; // that are worth loading a block
constexpr int PAIRS = KEYS / 2;
constexpr float LN2 = 0.69314718f;

struct Seen {  // positions that the rows of a column see: [first, last) of each, and over all
  int32_t first[COLUMN], last[COLUMN];
  int64_t from, to, all_from, all_to;  // of any row; of every lane
};

struct DotWork : Work {
  Seen* seen;      // of each column
  float* weights;  // pairs of bfloat16
};

inline VI words(const void* p) { return _mm512_loadu_si512(p); }

// Those of 32 elements that there are.
inline __mmask32 first_words(int64_t n) { return n >= 2 * LANES ? ~0u : n > 0 ? (1u << n) - 1u : 0u; }

// 32 elements of bfloat16 as pairs; zeros for those that are not there.
inline VI words_of(const bf16* p, __mmask32 there) { return _mm512_maskz_loadu_epi16(there, p); }

// Elements 0 .. 15 of x and y in pairs, and 16 .. 31.
inline VI lower_pairs(VI x, VI y) {
  const __m512i from = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                        37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  return _mm512_permutex2var_epi16(x, from, y);
}
inline VI upper_pairs(VI x, VI y) {
  const __m512i from = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55, 23, 54, 22,
                                        53, 21, 52, 20, 51, 19, 50, 18, 49, 17, 48, 16);
  return _mm512_permutex2var_epi16(x, from, y);
}

// Scores are multiplied by this, into units of log 2.
inline float unit(const AttentionArgs& g) { return (g.softcap > 0.0 ? 1.0f : static_cast<float>(g.scale)) * LOG2E; }

inline V capped(const AttentionArgs& g, V x) {
  return vsoftcap(vmul(x, vset(static_cast<float>(g.scale))), static_cast<float>(g.softcap));
}

// What takes a sum relative to a maximum `from` to one relative to `to`.
inline V factor_of(V from, V to) {
  __mmask16 same = _mm512_cmp_ps_mask(from, to, _CMP_EQ_OQ);
  return _mm512_mask_mov_ps(vexp(vmul(vsub(from, to), vset(LN2))), same, vset(1.0f));
}

// What is added to a score: minus the maximum, 0 where nothing was seen.
inline V less_of(V m) {
  return _mm512_maskz_sub_ps(_mm512_cmp_ps_mask(m, vset(-INF), _CMP_NEQ_UQ), vzero(), m);
}

// A weight rounded to bfloat16, in float32.
inline V weight_of(V score, V scale, V less) {
  VI bits = _mm512_castps_si512(exp2_up(vfma(score, scale, less)));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536)));
}

// What a row's output is multiplied by.
inline float part_of(const Work& w, int64_t row, float m, float l) {
  if (w.g.sinks && m != -INF) l += exp1(w.g.sinks[w.head * w.s.group + row % w.s.group] - m * LN2);
  return l > 0.0f || l != l ? 1.0f / l : 1.0f;
}

// Where up to 16 rows lie in q or y: elements from its start on.
struct Places {
  int64_t count, at[LANES];
  Places(const Work& w, int64_t row, int64_t token_stride, int64_t dim) : count(0) {
    int64_t token = w.tile.first + row / w.s.group, member = row % w.s.group;
    for (; count < LANES && row + count < w.rows(); ++count) {
      at[count] = token * token_stride + (w.head * w.s.group + member) * dim;
      if (++member < w.s.group) continue;
      member = 0;
      ++token;
    }
  }
};

}  // namespace attention
}  // namespace anychip
#endif

// One block of keys in tiles of AMX: how keys and values reach the tiles, and a turn of the pipeline.
//
// A turn serves three columns of 16 query rows at once: vectors soften the scores of one, tiles
// compute the scores of the next and the output of the one before. Both are cut into quarters that
// alternate, since the processor looks only some hundred instructions ahead; and what one unit has
// stored the other reads a turn later, since it is not forwarded.
#pragma once
#include <algorithm>
#include "amx.h"
#include "attention_tiles.h"
#include "softmax_amx.h"

#ifdef ANYCHIP_AMX
namespace anychip {
namespace amx {

constexpr int BLOCK = 64;        // keys
constexpr int QUARTER = BLOCK / 4;

// A row's maximum may lag behind: it moves when a weight, kept small by HEADROOM powers of two,
// reaches 2 (a bit of its exponent tells). That costs no accuracy, and spares both a pass over the
// scores and rescaling what was gathered at nearly every block.
constexpr float HEADROOM = 7.0f;

struct Visible {  // positions that 16 query rows see: [first, last) of each, and over all
  __m512i first, last;
  int64_t from, to, all_from, all_to;  // of any row; of every row that there is
};

struct Block {  // where the keys of a block and of the next one lie, for KV head 0
  int64_t start, count;
  int64_t at[2 * BLOCK];
};

struct Keys {  // of one KV head: four times 16 keys, a stride in bytes apart
  const uint16_t* at[4];
  int64_t stride;
};

struct Column {  // 16 query rows of one KV head
  const float* q;  // [dim / 2][16] pairs
  State state;
  const Visible* seen;
  int64_t head;
};

struct Turn {  // of one column; scores [64][16], weights in pairs [32][16]
  Column column;
  Keys keys;
  uint16_t* values;         // [dim / 16][2] tiles of [16 dims][32 keys]
  float *scores, *weights;
};

// Lines of the next block of keys and values, asked for a few at a time while this one is computed.
struct Ahead {
  const uint16_t *k, *v;
  const int64_t* at;
  int64_t count, bytes;
  void ask(int64_t part, int64_t parts) const {
    for (int64_t j = count * part / parts; j < count * (part + 1) / parts; ++j) {
      fetch(k + at[j], bytes);
      fetch(v + at[j], bytes);
    }
  }
};

// Keys copied side by side, for many columns; zeros past the sequence's end.
inline Keys copy_keys(const uint16_t* k, const Block& b, int64_t dim, uint16_t* out) {
  for (int64_t j = 0; j < BLOCK; ++j) {
    for (int64_t d = 0; d < dim; d += 32) {
      __m512i x = j < b.count ? _mm512_loadu_si512(k + b.at[j] + d) : _mm512_setzero_si512();
      _mm512_storeu_si512(out + j * dim + d, x);
    }
  }
  stores_are_read();
  return {{out, out + 16 * dim, out + 32 * dim, out + 48 * dim}, dim * 2};
}

// Keys where they lie in the cache, for few columns: 16 of a page have one stride. Those past the
// sequence's end are nobody's to see, whatever lies there.
inline Keys point_at_keys(const uint16_t* k, const Block& b, int64_t slot_stride) {
  Keys keys{{}, slot_stride * 2};
  for (int64_t i = 0; i < 4; ++i) keys.at[i] = k + b.at[16 * i < b.count ? 16 * i : 0];
  return keys;
}

// 8 dims of 32 keys become rows of 32 keys. x: keys 0..7 beside 8.., 16.. and 24.. .
inline void transpose_words(const __m512i (&x)[8], uint16_t* out) {
  __m512i a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm512_unpacklo_epi16(x[i], x[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi16(x[i], x[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi32(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi32(a[i + 1], a[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    _mm512_storeu_si512(out + 2 * i * 32, _mm512_unpacklo_epi64(b[i], b[i + 4]));
    _mm512_storeu_si512(out + (2 * i + 1) * 32, _mm512_unpackhi_epi64(b[i], b[i + 4]));
  }
}

// Values transposed, zeros past the sequence's end: a weight of 0 would not hide what is no number.
inline void load_values(const uint16_t* v, const Block& b, int64_t dim, const Ahead& ahead, uint16_t* out) {
  static const uint16_t none[8] = {};
  const uint16_t* rows[BLOCK];
  int64_t step[BLOCK];
  for (int64_t j = 0; j < BLOCK; ++j) {
    rows[j] = j < b.count ? v + b.at[j] : none;
    step[j] = j < b.count;
  }
  for (int64_t d = 0; d < dim; d += 8) {
    ahead.ask(d / 8, dim / 4);
    for (int64_t j = 0; j < BLOCK; j += 32) {
      auto part = [&](int64_t i) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[j + i] + d * step[j + i]));
      };
      __m512i x[8];
      for (int i = 0; i < 8; ++i) {
        x[i] = _mm512_inserti32x4(_mm512_castsi128_si512(part(i)), part(i + 8), 1);
        x[i] = _mm512_inserti32x4(x[i], part(i + 16), 2);
        x[i] = _mm512_inserti32x4(x[i], part(i + 24), 3);
      }
      transpose_words(x, out + (d / 16 * 2 + j / 32) * 512 + d % 16 * 32);
    }
  }
  stores_are_read();
}

// While scores are made tiles 0 and 1 hold them, 5, 2 and 3 queries and 4 rows of keys; while outputs are, 2 and
// 3 hold them, 5 and 0 weights and 4 and 1 rows of values. 6 holds a row of ones, 7 the sums that it makes of
// weights.
class AttentionTiles {
 public:
  AttentionTiles() {
    TileShape shape(16, 16);
    shape.rows[6] = shape.rows[7] = 1;
    uint16_t ones[TILE_STEPS];
    std::fill_n(ones, TILE_STEPS, uint16_t{0x3f80});
    asm volatile("" ::"m"(shape), "m"(ones) : "memory");
    _tile_loadconfig(&shape);
    _tile_loadd(6, ones, 64);
    stores_are_read();
  }
  ~AttentionTiles() { _tile_release(); }
  AttentionTiles(const AttentionTiles&) = delete;
  AttentionTiles& operator=(const AttentionTiles&) = delete;
};

// gcc spells the number of a tile into the instruction.
#define SCORE_KEYS(queries)                       \
  _tile_loadd(4, upper + d, t.keys.stride);       \
  _tile_dpbf16ps(0, 4, queries);                  \
  _tile_loadd(4, lower + d, t.keys.stride);       \
  _tile_dpbf16ps(1, 4, queries);

// Scores of half a block, 32 keys, times the queries of a column. Both halves meet the same queries: the first
// 64 elements of them, which is all in most models, are kept from the first half to the second.
inline void score_half(const Turn& t, int64_t half, int64_t dim) {
  const uint16_t *upper = t.keys.at[2 * half], *lower = t.keys.at[2 * half + 1];
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t d = 0; d < dim; d += 32) {
    const float* queries = t.column.q + d / 2 * LANES;
    if (d == 0) {
      if (half == 0) _tile_loadd(5, queries, 64);
      SCORE_KEYS(5)
    } else if (d == 32) {
      if (half == 0) _tile_loadd(2, queries, 64);
      SCORE_KEYS(2)
    } else {
      _tile_loadd(3, queries, 64);
      SCORE_KEYS(3)
    }
  }
}
#undef SCORE_KEYS

inline void store_half(const Turn& t, int64_t half) {
  float* scores = t.scores + half * BLOCK / 2 * LANES;
  _tile_stored(0, scores, 64);
  _tile_stored(1, scores + 16 * LANES, 64);
}

inline void score(const Turn& t, int64_t dim) {
  for (int64_t half = 0; half < 2; ++half) {
    score_half(t, half, dim);
    store_half(t, half);
  }
}

// Half a block's weights in a tile times its values: outputs, and with `sums` the weights' own sums.
#define GATHER_HALF(half, weights, sums)     \
  _tile_loadd(4, v + (half) * 512, 64);      \
  _tile_dpbf16ps(2, 4, weights);             \
  _tile_loadd(1, v + ((half) + 2) * 512, 64); \
  _tile_dpbf16ps(3, 1, weights);             \
  if (sums) _tile_dpbf16ps(7, 6, weights);

// o[32 dims from d][16] += values times weights; on the way, l[16] += the weights. They are read for the first
// dims, and kept for the others.
inline void gather(const Turn& t, int64_t d) {
  const uint16_t* v = t.values + d * BLOCK;
  float* o = t.column.state.o + d * LANES;
  if (d == 0) {
    _tile_loadd(5, t.weights, 64);
    _tile_loadd(0, t.weights + 16 * LANES, 64);
    _tile_loadd(7, t.column.state.l, 64);
  }
  _tile_loadd(2, o, 64);
  _tile_loadd(3, o + 16 * LANES, 64);
  GATHER_HALF(0, 5, d == 0)
  GATHER_HALF(1, 0, d == 0)
}
#undef GATHER_HALF

inline void store_output(const Turn& t, int64_t d) {
  float* o = t.column.state.o + d * LANES;
  _tile_stored(2, o, 64);
  _tile_stored(3, o + 16 * LANES, 64);
  if (d == 0) _tile_stored(7, t.column.state.l, 64);
}

inline void gather_all(const Turn& t, int64_t dim) {
  stores_are_read();
  for (int64_t d = 0; d < dim; d += 32) {
    gather(t, d);
    store_output(t, d);
  }
}

// Keys of the block that each row sees.
inline __mmask16 seen(const Visible& v, int64_t key) {
  __m512i at = _mm512_set1_epi32(static_cast<int32_t>(key));
  return _mm512_cmpgt_epi32_mask(v.last, at) & _mm512_cmple_epi32_mask(v.first, at);
}

// The largest visible score of each row.
template <bool MASKED>
inline V largest(const Visible& v, int64_t start, const float* scores) {
  auto with = [&](V top, int64_t j) {
    V x = vload(scores + j * LANES);
    return MASKED ? _mm512_mask_max_ps(top, seen(v, start + j), x, top) : vmax(x, top);
  };
  V a = vset(-INF), b = a, c = a, d = a;
  for (int64_t j = 0; j < BLOCK; j += 4) {
    a = with(a, j);
    b = with(b, j + 1);
    c = with(c, j + 2);
    d = with(d, j + 3);
  }
  return vmax(vmax(a, b), vmax(c, d));
}

// Raises the maxima of some rows to the largest score, and takes along what they gathered so far.
inline void raise_maximum(State state, __mmask16 rows, V top, int64_t dim) {
  V before = vload(state.m), m = _mm512_mask_mov_ps(before, rows, top);
  vstore(state.m, m);
  if (_mm512_mask_cmp_ps_mask(rows, before, vset(-INF), _CMP_NEQ_UQ) == 0) return;  // nothing yet
  V factor = _mm512_mask_mov_ps(vset(1.0f), rows, factor_of(before, m));
  vstore(state.l, vmul(vload(state.l), factor));
  scale_rows(state.o, dim, factor);
}

// What is subtracted from a row's scores: 0 for one that has seen nothing.
inline V subtrahend(State state) {
  V m = vload(state.m);
  return vsub(vset(-HEADROOM), _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(m, vset(-INF), _CMP_NEQ_UQ), m));
}

// Weights 2**(score * scale - m - HEADROOM) of a quarter of the block, rounded to bfloat16 in pairs of
// keys. Returns the bits that any of them has.
template <bool MASKED>
inline __m512i soften(const Visible& v, int64_t start, const float* scores, V scale, V less, float* weights) {
  const __m512i upper = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
  __m512i any = _mm512_setzero_si512();
  for (int64_t j = 0; j < QUARTER; j += 2) {
    V even = exp2_up(vfma(vload(scores + j * LANES), scale, less));
    V odd = exp2_up(vfma(vload(scores + (j + 1) * LANES), scale, less));
    if (MASKED) even = _mm512_maskz_mov_ps(seen(v, start + j), even);
    if (MASKED) odd = _mm512_maskz_mov_ps(seen(v, start + j + 1), odd);
    __m512i low = _mm512_castps_si512(even), high = _mm512_castps_si512(odd);
    __m512i pair = _mm512_mask_shuffle_epi8(high, 0x3333333333333333, low, upper);
    _mm512_storeu_si512(weights + j / 2 * LANES, pair);
    any = _mm512_or_si512(any, pair);
  }
  return any;
}

// Caps scores in place, leaving them in the units in which they came.
inline void cap(const AttentionArgs& g, float* scores) {
  V scale = vset(static_cast<float>(g.scale)), back = vset(static_cast<float>(1.0 / g.scale));
  for (int64_t j = 0; j < BLOCK; ++j) {
    V x = vsoftcap(vmul(vload(scores + j * LANES), scale), static_cast<float>(g.softcap));
    vstore(scores + j * LANES, vmul(x, back));
  }
}

// The largest scores of a block become the maxima of some rows; its weights are computed anew.
template <bool MASKED>
void start_over(const Turn& now, int64_t start, __mmask16 rows, V scale, int64_t dim) {
  const Visible& v = *now.column.seen;
  raise_maximum(now.column.state, rows, vmul(largest<MASKED>(v, start, now.scores), scale), dim);
  V less = subtrahend(now.column.state);
  for (int64_t j = 0; j < BLOCK; j += QUARTER) {
    soften<MASKED>(v, start + j, now.scores + j * LANES, scale, less, now.weights + j / 2 * LANES);
  }
}

// Softens `now`; on the way scores `next` and gathers `last`, where there are such.
template <bool MASKED>
void take_turn(const AttentionArgs& g, int64_t start, const Turn& now, const Turn* next, const Turn* last,
               const Ahead& ahead) {
  const int64_t middle = (g.dim / 32 + 1) / 2 * 32;
  const Visible& v = *now.column.seen;
  const State state = now.column.state;
  V scale = vset(static_cast<float>(g.scale) * LOG2E);
  if (g.softcap > 0.0) cap(g, now.scores);
  __mmask16 rows = _mm512_cmp_ps_mask(vload(state.m), vset(-INF), _CMP_EQ_OQ);
  if (rows) raise_maximum(state, rows, vmul(largest<MASKED>(v, start, now.scores), scale), g.dim);
  V less = subtrahend(state);
  __m512i any = _mm512_setzero_si512();
  auto soften_quarter = [&](int64_t i) {
    int64_t j = i * QUARTER;
    __m512i bits = soften<MASKED>(v, start + j, now.scores + j * LANES, scale, less, now.weights + j / 2 * LANES);
    any = _mm512_or_si512(any, bits);
    ahead.ask(4 + i, 8);
  };
  stores_are_read();
  for (int64_t half = 0; half < 2; ++half) {
    if (next) score_half(*next, half, g.dim);
    soften_quarter(half);
    if (next) store_half(*next, half);
  }
  for (int64_t half = 0; half < 2; ++half) {
    int64_t from = half * middle, to = half ? g.dim : middle;
    for (int64_t d = from; last && d < to; d += 32) {
      if (d > from) store_output(*last, d - 32);
      gather(*last, d);
    }
    soften_quarter(2 + half);
    if (last && from < to) store_output(*last, to - 32);
  }
  rows = _mm512_test_epi32_mask(any, _mm512_set1_epi32(0x40004000));  // a weight of 2 or more
  if (rows) start_over<MASKED>(now, start, rows, scale, g.dim);
}

}  // namespace amx
}  // namespace anychip
#endif

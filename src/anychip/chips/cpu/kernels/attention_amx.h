// Attention in tiles of AMX, for bfloat16 queries over a bfloat16 cache.
//
// Scores are computed transposed, keys down and query rows (token * group + head) across: a lane of
// a vector is a query row, so that maxima and sums need no step between lanes, and two score rows
// beside each other are already what the second product takes. Outputs are transposed too:
// [head dim][16 rows]. Keys are taken in blocks of 64 and spans of SPAN positions counted from
// position 0; within a span runs the online softmax, spans are merged in order. So what a row
// gets depends on positions alone: not on pages, chunks or its batch.
#pragma once
#include "amx.h"
#include "attention_tiles.h"
#include "pool.h"
#include "softmax_amx.h"

#ifdef ANYCHIP_AMX
namespace anychip {
namespace amx {

constexpr int BLOCK = 64;           // keys
constexpr int64_t SPAN = 1024;      // positions
constexpr int64_t TILE_LANES = 384; // query rows of a task at most

inline bool typed(const AttentionArgs& g) { return g.type == 1 && g.cache_type == 1; }

inline bool takes(const AttentionArgs& g) {
  return typed(g) && g.dim % TILE_STEPS == 0 && g.scale > 0.0 && g.heads / g.kv_heads <= TILE_LANES;
}

struct Shape {
  int64_t group, tokens, columns, dim, spans;  // columns: of 16 query rows
  explicit Shape(const AttentionArgs& g)
      : group(g.heads / g.kv_heads),
        tokens(TILE_LANES / group > 0 ? TILE_LANES / group : 1),
        columns((tokens * group + LANES - 1) / LANES),
        dim(g.dim),
        spans((g.table_width * g.page_size + SPAN - 1) / SPAN) {}
  int64_t state() const { return (dim + 2) * LANES; }             // floats of one column's state
  int64_t alone() const { return (group + LANES - 1) / LANES; }   // columns of one token
  int64_t part() const { return alone() * state(); }
  int64_t scratch() const {                                       // floats of a thread
    return columns * (dim / 2 * LANES + 2 * state()) + BLOCK * dim + 3 * BLOCK * LANES;
  }
};

struct Visible {  // positions that 16 query rows see: [first, last) of each, and over all
  __m512i first, last;
  int64_t from, to, all_from, all_to;  // of any row; of every row that there is
};

struct Work {
  const AttentionArgs& g;
  const Shape& s;
  Tile tile;
  int64_t head, length;
  const int32_t* pages;
  float *q, *all, *now;     // queries and states of the columns
  uint16_t *keys, *values;  // [64][dim]; [dim / 16][2] tiles of [16 dims][32 keys]
  float *scores, *weights;  // two times [64][16]; two times pairs [32][16]

  int64_t rows() const { return tile.count * s.group; }
  int64_t columns() const { return (rows() + LANES - 1) / LANES; }
};

inline Visible visible(const Work& w, int64_t column) {
  alignas(64) int32_t first[LANES] = {}, last[LANES] = {};
  Visible v{};
  v.from = v.all_to = w.length;
  for (int64_t i = 0; i < LANES && column * LANES + i < w.rows(); ++i) {
    int64_t position = w.g.positions[w.tile.first + (column * LANES + i) / w.s.group];
    int64_t low = w.g.window > 0 ? position - w.g.window + 1 : 0, high = w.g.causal ? position + 1 : w.length;
    low = low > 0 ? low : 0;
    high = high < w.length ? (high > low ? high : low) : w.length;
    first[i] = static_cast<int32_t>(low);
    last[i] = static_cast<int32_t>(high);
    v.from = low < v.from ? low : v.from;
    v.to = high > v.to ? high : v.to;
    v.all_from = low > v.all_from ? low : v.all_from;
    v.all_to = high < v.all_to ? high : v.all_to;
  }
  v.first = _mm512_load_si512(first);
  v.last = _mm512_load_si512(last);
  return v;
}

// 16 rows of 16 words become columns. out: rows of 64 bytes.
inline void transpose_words(V (&x)[W], float* out) {
  transpose(x);
  for (int i = 0; i < W; ++i) vstore(out + i * LANES, x[i]);
}

// Queries of the tile: column by column, [dim / 2][16] pairs.
inline void load_queries(Work& w) {
  const uint16_t* q = static_cast<const uint16_t*>(w.g.q);
  for (int64_t column = 0; column < w.columns(); ++column) {
    for (int64_t d = 0; d < w.s.dim; d += 32) {
      V x[W];
      for (int64_t i = 0; i < LANES; ++i) {
        int64_t r = column * LANES + i;
        const uint16_t* row = q + (w.tile.first + r / w.s.group) * w.g.q_stride + (w.head * w.s.group + r % w.s.group) * w.s.dim;
        x[i] = r < w.rows() ? vload(reinterpret_cast<const float*>(row + d)) : vzero();
      }
      transpose_words(x, w.q + (column * w.s.dim + d) / 2 * LANES);
    }
  }
}

// 64 keys as they are, and their values transposed; zeros past the sequence's end. Asks for the
// next block on the way.
inline void load_block(Work& w, int64_t start) {
  const uint16_t *k = static_cast<const uint16_t*>(w.g.k_cache), *v = static_cast<const uint16_t*>(w.g.v_cache);
  int64_t at[2 * BLOCK], count = locate(w.g, w.head, w.pages, w.length, start, 2 * BLOCK, at), dim = w.s.dim;
  for (int64_t j = 0; j < BLOCK; ++j) {
    if (j + BLOCK < count) fetch(k + at[j + BLOCK], dim * 2);
    if (j + BLOCK < count) fetch(v + at[j + BLOCK], dim * 2);
    for (int64_t d = 0; d < dim; d += 32) {
      __m512i x = j < count ? _mm512_loadu_si512(k + at[j] + d) : _mm512_setzero_si512();
      _mm512_storeu_si512(w.keys + j * dim + d, x);
    }
  }
  auto row = [&](int64_t j, int64_t d) {
    return j < count ? _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(v + at[j] + d)))
                     : _mm512_setzero_si512();
  };
  float* out = reinterpret_cast<float*>(w.values);
  for (int64_t d = 0; d < dim; d += LANES) {
    for (int64_t j = 0; j < BLOCK; j += 32, out += LANES * LANES) {
      V x[W];
      for (int64_t i = 0; i < LANES; ++i) {
        __m512i odd = _mm512_slli_epi32(row(j + 2 * i + 1, d), 16);
        x[i] = _mm512_castsi512_ps(_mm512_or_si512(row(j + 2 * i, d), odd));
      }
      transpose_words(x, out);
    }
  }
}

// scores[64][16] = keys times the queries of a column.
inline void score(const Work& w, int64_t column, float* scores) {
  const float* q = w.q + column * w.s.dim / 2 * LANES;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  int64_t stride = w.s.dim * 2;
  for (int64_t d = 0; d < w.s.dim; d += 32, q += 16 * LANES) {
    _tile_loadd(6, q, 64);
    _tile_loadd(4, w.keys + d, stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, w.keys + 16 * w.s.dim + d, stride);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(4, w.keys + 32 * w.s.dim + d, stride);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(5, w.keys + 48 * w.s.dim + d, stride);
    _tile_dpbf16ps(3, 5, 6);
  }
  _tile_stored(0, scores, 64);
  _tile_stored(1, scores + 16 * LANES, 64);
  _tile_stored(2, scores + 32 * LANES, 64);
  _tile_stored(3, scores + 48 * LANES, 64);
}

// Keys of the block that each row sees.
inline __mmask16 seen(const Visible& v, int64_t key) {
  __m512i at = _mm512_set1_epi32(static_cast<int32_t>(key));
  return _mm512_cmpgt_epi32_mask(v.last, at) & _mm512_cmple_epi32_mask(v.first, at);
}

// Caps scores in place, leaving them in the units in which they came.
inline void cap(const Work& w, float* scores) {
  V scale = vset(static_cast<float>(w.g.scale)), back = vset(static_cast<float>(1.0 / w.g.scale));
  for (int64_t j = 0; j < BLOCK; ++j) {
    V x = vsoftcap(vmul(vload(scores + j * LANES), scale), static_cast<float>(w.g.softcap));
    vstore(scores + j * LANES, vmul(x, back));
  }
}

// The largest visible score of each row.
template <bool MASKED>
inline V largest(const Visible& v, int64_t start, const float* scores) {
  V top[4] = {vset(-INF), vset(-INF), vset(-INF), vset(-INF)};
  for (int64_t j = 0; j < BLOCK; ++j) {
    V x = vload(scores + j * LANES);
    top[j % 4] = MASKED ? _mm512_mask_max_ps(top[j % 4], seen(v, start + j), x, top[j % 4]) : vmax(x, top[j % 4]);
  }
  return vmax(vmax(top[0], top[1]), vmax(top[2], top[3]));
}

// Weights 2**(score * scale - m), rounded to bfloat16 in pairs of keys. Returns their sum.
template <bool MASKED>
inline V soften(const Work& w, const Visible& v, int64_t start, const float* scores, V m, float* weights) {
  V less = vsub(vzero(), _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(m, vset(-INF), _CMP_NEQ_UQ), m));
  V scale = vset(static_cast<float>(w.g.scale) * LOG2E), sum[2] = {vzero(), vzero()};
  const __m512i half = _mm512_set1_epi32(0x8000);
  for (int64_t j = 0; j < BLOCK; j += 2) {
    V even = exp2_fast(vfma(vload(scores + j * LANES), scale, less));
    V odd = exp2_fast(vfma(vload(scores + (j + 1) * LANES), scale, less));
    if (MASKED) even = _mm512_maskz_mov_ps(seen(v, start + j), even);
    if (MASKED) odd = _mm512_maskz_mov_ps(seen(v, start + j + 1), odd);
    sum[0] = vadd(sum[0], even);
    sum[1] = vadd(sum[1], odd);
    __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
    __m512i high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
    _mm512_storeu_si512(weights + j / 2 * LANES, _mm512_mask_blend_epi16(0xaaaaaaaa, low, high));
  }
  return vadd(sum[0], sum[1]);
}

// o[dim][16] += values times weights.
inline void gather(const Work& w, const float* weights, float* o) {
  const uint16_t* v = w.values;
  for (int64_t d = 0; d < w.s.dim; d += 32, v += 4 * 512, o += 32 * LANES) {
    _tile_loadd(0, o, 64);
    _tile_loadd(1, o + 16 * LANES, 64);
    _tile_loadd(6, weights, 64);
    _tile_loadd(4, v, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, v + 2 * 512, 64);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(7, weights + 16 * LANES, 64);
    _tile_loadd(4, v + 512, 64);
    _tile_dpbf16ps(0, 4, 7);
    _tile_loadd(5, v + 3 * 512, 64);
    _tile_dpbf16ps(1, 5, 7);
    _tile_stored(0, o, 64);
    _tile_stored(1, o + 16 * LANES, 64);
  }
}

// Scores of one column become weights; its state is brought up to date but for the output.
template <bool MASKED>
void update(const Work& w, State state, const Visible& v, int64_t start, float* scores, float* weights) {
  if (w.g.softcap > 0.0) cap(w, scores);
  V scale = vset(static_cast<float>(w.g.scale) * LOG2E);
  V before = vload(state.m), m = vmax(vmul(largest<MASKED>(v, start, scores), scale), before);
  V sum = soften<MASKED>(w, v, start, scores, m, weights), factor = factor_of(before, m);
  vstore(state.m, m);
  vstore(state.l, vfma(vload(state.l), factor, sum));
  if (_mm512_cmp_ps_mask(factor, vset(1.0f), _CMP_NEQ_UQ)) scale_rows(state.o, w.s.dim, factor);
}

// One block of keys for the columns that see some of it. While the vectors soften one column, the
// tiles compute the scores of the next and the output of the one before: what a unit has stored is
// read by the other a turn later, since it is not forwarded.
inline void all_columns(Work& w, const Visible* seen_by, float* states, int64_t start) {
  int64_t columns[TILE_LANES / LANES], count = 0;
  for (int64_t c = 0; c < w.columns(); ++c) {
    if (seen_by[c].to > start && seen_by[c].from < start + BLOCK) columns[count++] = c;
  }
  if (count == 0) return;
  load_block(w, start);
  auto scores = [&](int64_t i) { return w.scores + i % 2 * BLOCK * LANES; };
  auto weights = [&](int64_t i) { return w.weights + i % 2 * BLOCK / 2 * LANES; };
  auto state = [&](int64_t i) { return state_at(states + columns[i] * w.s.state()); };
  score(w, columns[0], scores(0));
  for (int64_t i = 0; i < count; ++i) {
    const Visible& v = seen_by[columns[i]];
    if (i + 1 < count) score(w, columns[i + 1], scores(i + 1));
    if (i > 0) gather(w, weights(i - 1), state(i - 1).o);
    bool whole = v.all_from <= start && v.all_to >= start + BLOCK;
    whole ? update<false>(w, state(i), v, start, scores(i), weights(i))
          : update<true>(w, state(i), v, start, scores(i), weights(i));
  }
  gather(w, weights(count - 1), state(count - 1).o);
}

inline void run_span(Work& w, const Visible* seen_by, float* states, int64_t from, int64_t to) {
  for (int64_t column = 0; column < w.columns(); ++column) clear(state_at(states + column * w.s.state()), w.s.dim);
  for (int64_t start = from; start < to; start += BLOCK) all_columns(w, seen_by, states, start);
}

inline void write_rows(const Work& w, const float* states) {
  bf16* y = static_cast<bf16*>(w.g.y);
  for (int64_t column = 0; column < w.columns(); ++column) {
    State s = state_at(const_cast<float*>(states) + column * w.s.state());
    V l = vload(s.l), whole = _mm512_mask_mov_ps(vset(1.0f), _mm512_cmp_ps_mask(l, vzero(), _CMP_NEQ_UQ), l);
    for (int64_t d = 0; d < w.s.dim; d += LANES) {
      V x[W];
      for (int i = 0; i < W; ++i) x[i] = vdiv(vload(s.o + (d + i) * LANES), whole);
      transpose(x);
      for (int64_t i = 0; i < LANES && column * LANES + i < w.rows(); ++i) {
        int64_t r = column * LANES + i;
        store_part(y + ((w.tile.first + r / w.s.group) * w.g.heads + w.head * w.s.group + r % w.s.group) * w.s.dim + d, x[i], LANES);
      }
    }
  }
}

class Attention {
 public:
  explicit Attention(const AttentionArgs& args) : g(args), s(args) {
    tiles = static_cast<Tile*>(g.workspace);
    scratch = static_cast<float*>(g.workspace) + round_up(2 * g.tokens, 16);
    parts = scratch + g.pool->threads() * s.scratch();
  }

  int32_t run() {
    Cut cut = cut_tiles(g, height(), tiles);
    if (cut.status) return cut.status;
    if (g.tokens <= SPLIT_TOKENS && cut.longest > SPAN && cut.count * g.kv_heads < 4 * g.pool->threads()) {
      run_split(cut);
      return OK;
    }
    g.pool->run(cut.count * g.kv_heads, [&](int64_t task, int thread) {
      Work w = work(task / g.kv_heads, task % g.kv_heads, thread);
      Visible seen_by[TILE_LANES / LANES];
      begin(w, seen_by);
      Tiles amx(16, 16);
      run_span(w, seen_by, w.all, 0, w.length < SPAN ? w.length : SPAN);
      for (int64_t from = SPAN; from < w.length; from += SPAN) {
        run_span(w, seen_by, w.now, from, from + SPAN < w.length ? from + SPAN : w.length);
        for (int64_t c = 0; c < w.columns(); ++c) {
          merge(state_at(w.all + c * s.state()), state_at(w.now + c * s.state()), s.dim);
        }
      }
      write_rows(w, w.all);
    });
    return OK;
  }

 private:
  // Tokens of a tile: as many as share a block of keys well, as few as keep all threads at work.
  int64_t height() const {
    int64_t tasks = 4 * g.pool->threads(), even = (g.tokens * g.kv_heads + tasks - 1) / tasks;
    int64_t least = s.group >= 64 ? 1 : 64 / s.group;
    even = even > least ? even : least;
    return even < s.tokens ? even : s.tokens;
  }

  // Few tokens, each its own tile: a task a span, then the merge, as above.
  void run_split(const Cut& cut) {
    int64_t spans = (cut.longest + SPAN - 1) / SPAN;
    g.pool->run(cut.count * g.kv_heads * spans, [&](int64_t task, int thread) {
      int64_t from = task % spans * SPAN, pair = task / spans;
      Work w = work(pair / g.kv_heads, pair % g.kv_heads, thread);
      Visible seen_by[TILE_LANES / LANES];
      begin(w, seen_by);
      Tiles amx(16, 16);
      run_span(w, seen_by, parts + task * s.part(), from, from + SPAN < w.length ? from + SPAN : w.length);
    });
    for (int64_t pair = 0; pair < cut.count * g.kv_heads; ++pair) {
      Work w = work(pair / g.kv_heads, pair % g.kv_heads, 0);
      float* all = parts + pair * spans * s.part();
      for (int64_t i = 1; i < spans && i * SPAN < w.length; ++i) {
        for (int64_t c = 0; c < w.columns(); ++c) {
          merge(state_at(all + c * s.state()), state_at(all + i * s.part() + c * s.state()), s.dim);
        }
      }
      write_rows(w, all);
    }
  }

  void begin(Work& w, Visible* seen_by) {
    load_queries(w);
    for (int64_t c = 0; c < w.columns(); ++c) seen_by[c] = visible(w, c);
  }

  Work work(int64_t tile, int64_t head, int thread) {
    int32_t row = g.token_rows[tiles[tile].first];
    float* q = scratch + thread * s.scratch();
    float* all = q + s.columns * s.dim / 2 * LANES;
    float* now = all + s.columns * s.state();
    float* keys = now + s.columns * s.state();
    float* values = keys + BLOCK * s.dim / 2;
    float* scores = values + BLOCK * s.dim / 2;
    return {g, s, tiles[tile], head, g.kv_lens[row] > 0 ? g.kv_lens[row] : 0, g.page_table + row * g.table_width,
            q, all, now, reinterpret_cast<uint16_t*>(keys), reinterpret_cast<uint16_t*>(values), scores, scores + 2 * BLOCK * LANES};
  }

  const AttentionArgs& g;
  Shape s;
  Tile* tiles;
  float *scratch, *parts;
};

// Floats, also for sizes that the tiles do not take: what is asked for never shrinks when one grows.
inline int64_t attention_workspace(AttentionArgs g, int64_t threads) {
  g.dim = round_up(g.dim, TILE_STEPS);
  Shape s(g);
  int64_t most = g.tokens < SPLIT_TOKENS ? g.tokens : SPLIT_TOKENS;
  return round_up(2 * g.tokens, 16) + threads * s.scratch() + most * g.kv_heads * s.spans * s.part();
}

}  // namespace amx
}  // namespace anychip
#endif

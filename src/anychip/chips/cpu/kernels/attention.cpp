// Attention over a paged cache, prefill and decode alike.
//
// Keys are taken in blocks of KEYS positions and segments of SEGMENT positions, both counted from
// position 0, so the order of every sum depends on positions alone: not on the page size, not on
// how a prompt was cut, not on what shares the batch. Within a segment runs the online softmax
// (maximum m, sum l, output o); segments are merged in order. A block in which a token sees nothing
// leaves its m, l and o untouched; a masked key has weight exactly 0.
//
// A task is a tile of consecutive tokens of one sequence, for one KV head and its query heads
// (rows of the tile: token * group + head), over all segments; or, when there are few tiles, over
// one segment, and the partial results are merged afterwards in the same way.
#include "abi.h"
#include "attention_amx.h"
#include "attention_rows.h"
#include "attention_tiles.h"
#include "micro.h"
#include "pool.h"
#include "scaled.h"

namespace anychip {
namespace {

constexpr int KEYS = 64;
constexpr int64_t SEGMENT = 256;
constexpr int64_t TILE_ROWS = 8 * MR;

struct State {  // online softmax of the rows of a tile; o is [rows][width]
  float *m, *l, *o;
};

struct Sizes {
  int64_t group, tokens, rows, depth, width, segments;
  explicit Sizes(const AttentionArgs& g)
      : group(g.heads / g.kv_heads),
        tokens(TILE_ROWS / group > 0 ? TILE_ROWS / group : 1),
        rows(tokens * group),
        depth(round_up(g.dim, W)),
        width(round_up(g.value_dim, NR)),
        segments((g.table_width * g.page_size + SEGMENT - 1) / SEGMENT) {}
  int64_t state() const { return rows * (width + 2); }
  // For as many rows as a tile of any group: what is asked for never shrinks when a size grows.
  int64_t scratch() const {
    int64_t most = group > TILE_ROWS ? group : TILE_ROWS;
    return round_up(most * depth + KEYS * (depth + width) + MR * KEYS + 2 * most * (width + 2), 16);
  }
  int64_t part() const { return group * (width + 2); }
};

State state_at(float* at, int64_t rows) { return {at, at + rows, at + 2 * rows}; }

void clear(State s, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    s.m[r] = -INF;
    s.l[r] = 0.0f;
  }
  std::memset(s.o, 0, rows * width * sizeof(float));
}

// into = into merged with s. A row that saw nothing adds nothing; into an empty one s is copied.
void merge(State into, State s, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    if (s.m[r] == -INF) continue;
    float* a = into.o + r * width;
    const float* b = s.o + r * width;
    if (into.m[r] == -INF) {
      into.m[r] = s.m[r];
      into.l[r] = s.l[r];
      std::memcpy(a, b, width * sizeof(float));
      continue;
    }
    float m = into.m[r] > s.m[r] ? into.m[r] : s.m[r];
    V fa = vset(exp1(into.m[r] - m)), fb = vset(exp1(s.m[r] - m));
    float l[W];
    vstore(l, vfma(vset(into.l[r]), fa, vmul(vset(s.l[r]), fb)));
    into.m[r] = m;
    into.l[r] = l[0];
    for (int64_t i = 0; i < width; i += W) {
      vstore(a + i, vfma(vload(a + i), fa, vmul(vload(b + i), fb)));
    }
  }
}

struct Work {  // one tile of one KV head; x and c types are in the templates
  const AttentionArgs& g;
  const Sizes& s;
  Tile tile;
  int64_t head, length;       // KV head; visible positions end here (kv_len)
  const int32_t* pages;       // this sequence's row of the page table
  float *q, *keys, *values, *scores;
  State now;                  // of the running segment
  int64_t asks;               // heads whose next block is asked for

  int64_t rows() const { return tile.count * s.group; }
  int64_t last_of(int64_t token) const {  // one past the last visible position
    int64_t p = g.positions[tile.first + token] + 1;
    return g.causal && p < length ? p : length;
  }
  int64_t first_of(int64_t token) const {
    int64_t p = g.positions[tile.first + token] - g.window + 1;
    return g.window > 0 && p > 0 ? p : 0;
  }
};

// Queries as register tiles, [depth][rows of the tile].
template <class X>
void load_queries(Work& w) {
  for (int64_t r0 = 0; r0 < w.rows(); r0 += MR) {
    int64_t n = w.rows() - r0 < MR ? w.rows() - r0 : MR;
    float* out = w.q + r0 * w.g.dim;
    for (int64_t m = 0; m < n; ++m) {
      int64_t r = r0 + m;
      const X* x = static_cast<const X*>(w.g.q) + (w.tile.first + r / w.s.group) * w.g.q_stride +
                   (w.head * w.s.group + r % w.s.group) * w.g.dim;
      for (int64_t d = 0; d < w.g.dim; d += W) {
        int64_t left = w.g.dim - d < W ? w.g.dim - d : W;
        float t[W];
        vstore(t, load_part(x + d, left));
        for (int64_t j = 0; j < left; ++j) out[(d + j) * n + m] = t[j];
      }
    }
  }
}

// Keys of a block as panels [KEYS / NR][depth][NR], values as [width / NR][KEYS][NR]; what lies past
// the sequence's end is zeros; vectors that have scales are multiplied by them. Asks for the next block on the way: pages lie anywhere.
template <class C>
void load_block(Work& w, int64_t start) {
  const C *k = static_cast<const C*>(w.g.k_cache), *v = static_cast<const C*>(w.g.v_cache);
  int64_t at[2 * KEYS], count = locate(w.g, w.pages, w.length, start, 2 * KEYS, at), dim = w.g.dim;
  k += w.head * w.g.head_stride;
  v += w.head * w.g.head_stride;
  for (int64_t j0 = 0; j0 < KEYS; j0 += W) {
    float* keys = w.keys + j0 / NR * w.s.depth * NR + j0 % NR;
    float* values = w.values + j0 * NR;
    for (int64_t j = j0 + KEYS; j < j0 + KEYS + W && j < count; ++j) {
      fetch(k + at[j], dim * sizeof(C));
      fetch(v + at[j], dim * sizeof(C));
    }
    V k_scale[W], v_scale[W];
    for (int j = 0; SCALED<C> && j < W && j0 + j < count; ++j) {
      k_scale[j] = vset(scale_of(k + at[j0 + j], dim));
      v_scale[j] = vset(scale_of(v + at[j0 + j], dim));
    }
    for (int64_t d = 0; d < w.s.depth; d += W) {
      V x[W];
      for (int j = 0; j < W; ++j) {
        bool there = j0 + j < count;
        x[j] = there ? load_part(k + at[j0 + j] + d, dim - d) : vzero();
        if (SCALED<C> && there) x[j] = vmul(x[j], k_scale[j]);
        if (d >= w.s.width) continue;
        bool valued = there && d < w.g.value_dim;
        V y = valued ? load_part(v + at[j0 + j] + d, w.g.value_dim - d) : vzero();
        if (SCALED<C> && valued) y = vmul(y, v_scale[j]);
        vstore(values + d / NR * KEYS * NR + j * NR + d % NR, y);
      }
      transpose(x);
      for (int j = 0; j < W; ++j) vstore(keys + (d + j) * NR, x[j]);
    }
  }
}

// Scores of one row become weights. low, high: visible keys of the block. Returns the factor that
// rescales what the row has gathered so far.
float soften(const Work& w, int64_t row, float* scores, int64_t low, int64_t high) {
  V top = vset(-INF), scale = vset(static_cast<float>(w.g.scale));
  for (int64_t j = 0; j < KEYS; j += W) {
    V x = vmul(vload(scores + j), scale);
    if (w.g.softcap > 0.0) x = vsoftcap(x, static_cast<float>(w.g.softcap));
    if (j < low || j + W > high) {
      V at = vadd(vlanes(), vset(static_cast<float>(j)));
      x = vpick_lt(at, vset(static_cast<float>(low)), vset(-INF), x);
      x = vpick_lt(at, vset(static_cast<float>(high)), x, vset(-INF));
    }
    vstore(scores + j, x);
    top = vmax(x, top);
  }
  float m = hmax(top), before = w.now.m[row];
  if (before > m) m = before;
  V base = vset(m == -INF ? 0.0f : m), sum = vzero();
  for (int64_t j = 0; j < KEYS; j += W) {
    V p = vexp(vsub(vload(scores + j), base));
    vstore(scores + j, p);
    sum = vadd(sum, p);
  }
  float factor = before == m ? 1.0f : exp1(before - m);
  float l[W];
  vstore(l, vfma(vset(w.now.l[row]), vset(factor), vset(hsum(sum))));
  w.now.m[row] = m;
  w.now.l[row] = l[0];
  return factor;
}

void rescale(float* o, int64_t width, float factor) {
  if (factor == 1.0f) return;
  for (int64_t i = 0; i < width; i += W) vstore(o + i, vmul(vload(o + i), vset(factor)));
}

// Scores of rows become weights, and what the rows have gathered is rescaled.
void soften_rows(Work& w, int64_t r0, int rows, int64_t start) {
  int64_t width = w.s.width;
  for (int m = 0; m < rows; ++m) {
    int64_t token = (r0 + m) / w.s.group;
    int64_t low = w.first_of(token) - start, high = w.last_of(token) - start;
    if (low < 0) low = 0;
    if (high > KEYS) high = KEYS;
    if (low >= high) {
      std::memset(w.scores + m * KEYS, 0, KEYS * sizeof(float));
      continue;
    }
    rescale(w.now.o + (r0 + m) * width, width, soften(w, r0 + m, w.scores + m * KEYS, low, high));
  }
}

// One register tile of rows against one block of keys.
template <int M>
void tile_block(Work& w, int64_t r0, int64_t start) {
  int64_t width = w.s.width;
  for (int64_t j = 0; j < KEYS / NR; ++j) {
    tile<Fma, M, 1, M>(w.g.dim, w.q + r0 * w.g.dim, w.keys + j * w.s.depth * NR, w.scores + j * NR, KEYS, false);
  }
  soften_rows(w, r0, M, start);
  for (int64_t d = 0; d < width; d += NR) {
    tile<Fma, M, KEYS, 1>(KEYS, w.scores, w.values + d * KEYS, w.now.o + r0 * width + d, width, true);
  }
}

#ifdef ANYCHIP_ROWS_IN_PLACE
// All rows of a tile against one block of the cache.
template <int M>
void rows_block(Work& w, int64_t start) {
  int64_t at[2 * KEYS], known = locate(w.g, w.pages, w.length, start, 2 * KEYS, at);
  int64_t head = w.head * w.g.head_stride, count = known < KEYS ? known : KEYS;
  Vectors keys{static_cast<const bf16*>(w.g.k_cache) + head, at, count, KEYS, known, w.g.dim};
  Vectors values{static_cast<const bf16*>(w.g.v_cache) + head, at, count, KEYS, known, w.g.value_dim};
  keys.ask(w.asks * w.g.dim);
  score_keys<M>(keys, w.q, w.scores);
  soften_rows(w, 0, M, start);
  values.ask(w.asks * w.g.value_dim);
  gather_values<M>(values, w.scores, w.now.o);
}

void meet_in_place(Work& w, int64_t start) {
  with_rows<ROWS_IN_PLACE>(static_cast<int>(w.rows()), [&](auto r) { rows_block<decltype(r)::value>(w, start); });
}

// Whether the rows of a tile are so few that they meet the cache where it lies.
bool in_place(const Work& w) {
  return w.g.cache_type == 1 && w.rows() <= ROWS_IN_PLACE && w.g.dim % NR == 0 && w.g.value_dim % NR == 0;
}
#endif

// Whether a token of these rows sees a key of the block.
bool block_seen(const Work& w, int64_t r0, int64_t rows, int64_t start) {
  bool seen = false;
  for (int64_t t = r0 / w.s.group; t <= (r0 + rows - 1) / w.s.group; ++t) {
    seen |= w.first_of(t) < start + KEYS && w.last_of(t) > start && w.first_of(t) < w.last_of(t);
  }
  return seen;
}

// Visible positions of the tile within [from, to): its union over tokens; empty where low >= high.
void run_segment(Work& w, int64_t from, int64_t to, void (*load)(Work&, int64_t)) {
  clear(w.now, w.rows(), w.s.width);
  for (int64_t start = from; start < to; start += KEYS) {
    bool loaded = false;
    for (int64_t r0 = 0; r0 < w.rows(); r0 += MR) {
      int64_t n = w.rows() - r0 < MR ? w.rows() - r0 : MR;
      if (!block_seen(w, r0, n, start)) continue;
#ifdef ANYCHIP_ROWS_IN_PLACE
      if (in_place(w)) {
        meet_in_place(w, start);
        continue;
      }
#endif
      if (!loaded) load(w, start);
      loaded = true;
      with_rows<MR>(static_cast<int>(n), [&](auto r) { tile_block<decltype(r)::value>(w, r0, start); });
    }
  }
}

template <class X>
void write_rows(const Work& w, State s) {
  for (int64_t r = 0; r < w.rows(); ++r) {
    int64_t head = w.head * w.s.group + r % w.s.group, dim = w.g.value_dim;
    X* y = static_cast<X*>(w.g.y) + ((w.tile.first + r / w.s.group) * w.g.heads + head) * dim;
    float l = s.l[r];
    if (w.g.sinks && s.m[r] != -INF) l += exp1(w.g.sinks[head] - s.m[r]);
    V whole = vset(l > 0.0f ? l : 1.0f);
    if (l != l) whole = vset(l);
    for (int64_t d = 0; d < dim; d += W) {
      store_part(y + d, vdiv(vload(s.o + r * w.s.width + d), whole), dim - d);
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
    Cut cut = cut_tiles(g, s.tokens, tiles);
    if (cut.status) return cut.status;
    count = cut.count, longest = cut.longest;
    with_cache(g.cache_type, [&](auto* c) { load = load_block<std::remove_pointer_t<decltype(c)>>; });
    with_activation(g.type, [&](auto* x) { run_typed<std::remove_pointer_t<decltype(x)>>(); });
    return OK;
  }

 private:
  Work work(int64_t tile, int64_t head, int thread) {
    int32_t row = g.token_rows[tiles[tile].first];
    float* q = scratch + thread * s.scratch();
    float* keys = q + s.rows * s.depth;
    float* values = keys + KEYS * s.depth;
    float* scores = values + KEYS * s.width;
    int64_t length = g.kv_lens[row] > 0 ? g.kv_lens[row] : 0;
    return {g, s, tiles[tile], head, length, g.page_table + row * g.table_width, q, keys, values, scores,
            state_at(scores + MR * KEYS, s.rows), 1};
  }

  template <class X>
  void run_typed() {
    if (g.tokens <= SPLIT_TOKENS && longest > SEGMENT && count * g.kv_heads < 4 * g.pool->threads()) {
      return run_split<X>();
    }
    g.pool->run(count * g.kv_heads, [&](int64_t task, int thread) {
      Work w = work(task / g.kv_heads, task % g.kv_heads, thread);
#ifdef ANYCHIP_ROWS_IN_PLACE
      if (count >= 2 * g.pool->threads() && in_place(w) && g.kv_heads * w.rows() <= s.rows) {
        if (w.head == 0) all_heads<X>(task / g.kv_heads, thread);
        return;
      }
#endif
      State all = state_at(w.now.m + s.state(), s.rows);
      clear(all, w.rows(), s.width);
      load_queries<X>(w);
      for (int64_t from = 0; from < w.length; from += SEGMENT) {
        run_segment(w, from, from + SEGMENT < w.length ? from + SEGMENT : w.length, load);
        merge(all, w.now, w.rows(), s.width);
      }
      write_rows<X>(w, all);
    });
  }

#ifdef ANYCHIP_ROWS_IN_PLACE
  // One KV head of a tile of few rows, in its share of the room that a large tile has.
  Work share_of(int64_t tile, int64_t head, int thread) {
    Work w = work(tile, head, thread);
    w.q += head * w.rows() * g.dim;
    w.now = state_at(w.now.m + head * w.rows() * (s.width + 2), w.rows());
    bool adjacent = g.head_stride == g.dim && g.dim == g.value_dim;
    w.asks = !adjacent ? 1 : (head == 0 ? g.kv_heads : 0);
    return w;
  }

  // All heads of a tile, a block after the other: heads lie side by side in the cache, and memory is slow to
  // come back for each.
  template <class X>
  void all_heads(int64_t tile, int thread) {
    auto each = [&](auto body) {
      for (int64_t head = 0; head < g.kv_heads; ++head) {
        Work w = share_of(tile, head, thread);
        body(w, state_at(w.now.m + s.state(), w.rows()));
      }
    };
    Work one = work(tile, 0, thread);
    each([&](Work& w, State all) {
      load_queries<X>(w);
      clear(all, w.rows(), s.width);
    });
    for (int64_t from = 0; from < one.length; from += SEGMENT) {
      each([&](Work& w, State) { clear(w.now, w.rows(), s.width); });
      for (int64_t start = from; start < from + SEGMENT && start < one.length; start += KEYS) {
        if (block_seen(one, 0, one.rows(), start)) each([&](Work& w, State) { meet_in_place(w, start); });
      }
      each([&](Work& w, State all) { merge(all, w.now, w.rows(), s.width); });
    }
    each([&](Work& w, State all) { write_rows<X>(w, all); });
  }
#endif

  // Few tokens, each its own tile: a task a segment, then the merge.
  template <class X>
  void run_split() {
    int64_t segments = (longest + SEGMENT - 1) / SEGMENT;
    g.pool->run(count * g.kv_heads * segments, [&](int64_t task, int thread) {
      int64_t from = task % segments * SEGMENT, pair = task / segments;
      Work w = work(pair / g.kv_heads, pair % g.kv_heads, thread);
      w.now = state_at(parts + task * s.part(), s.group);
      load_queries<X>(w);
      run_segment(w, from, from + SEGMENT < w.length ? from + SEGMENT : w.length, load);
    });
    for (int64_t pair = 0; pair < count * g.kv_heads; ++pair) {
      Work w = work(pair / g.kv_heads, pair % g.kv_heads, 0);
      State all = state_at(w.now.m + s.state(), s.group);
      clear(all, s.group, s.width);
      for (int64_t i = 0; i < segments; ++i) {
        merge(all, state_at(parts + (pair * segments + i) * s.part(), s.group), s.group, s.width);
      }
      write_rows<X>(w, all);
    }
  }

  const AttentionArgs& g;
  Sizes s;
  Tile* tiles;
  float *scratch, *parts;
  int64_t count = 0, longest = 0;
  void (*load)(Work&, int64_t) = nullptr;
};

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int64_t anychip_attention_workspace(const AttentionArgs* args, int64_t threads) {
  Sizes s(*args);
  // Not 0 above SPLIT_TOKENS: what is asked for never shrinks when a size grows.
  int64_t most = args->tokens < SPLIT_TOKENS ? args->tokens : SPLIT_TOKENS;
  int64_t split = most * args->kv_heads * s.segments * s.part();
  int64_t floats = round_up(2 * args->tokens, 16) + threads * s.scratch() + split;
#ifdef ANYCHIP_AMX
  int64_t tiled = amx::typed(*args) ? amx::attention_workspace(*args, threads) : 0;
  floats = tiled > floats ? tiled : floats;
#endif
  return floats * static_cast<int64_t>(sizeof(float));
}

EXPORT int32_t anychip_attention(const AttentionArgs* args) {
  if (args->tokens == 0) return OK;
#ifdef ANYCHIP_AMX
  if (amx::takes(*args)) return amx::Attention(*args).run();
#endif
  return Attention(*args).run();
}

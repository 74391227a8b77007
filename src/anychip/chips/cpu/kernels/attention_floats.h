// Attention in float32: queries, keys and values of any type are widened, products are fused multiply-adds.
#pragma once
#include "attention_rows.h"
#include "attention_softmax.h"
#include "micro.h"
#include "scaled.h"

namespace anychip {
namespace attention {

struct FloatWork : Work {
  void (*load)(Work&, int64_t);  // a block of keys and values of the cache's type
};

// Queries as register tiles, [depth][rows of the tile].
template <class X>
inline void load_queries(Work& w) {
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
// the sequence's end is zeros; vectors that have scales are multiplied by them. Asks for the next block on
// the way: pages lie anywhere.
template <class C>
inline void load_block(Work& w, int64_t start) {
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

// One register tile of rows against one block of keys.
template <int M>
inline void tile_block(Work& w, int64_t r0, int64_t start) {
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
inline void rows_block(Work& w, int64_t start) {
  int64_t at[2 * KEYS], known = locate(w.g, w.pages, w.length, start, 2 * KEYS, at);
  int64_t head = w.head * w.g.head_stride, count = known < KEYS ? known : KEYS;
  Vectors keys{static_cast<const bf16*>(w.g.k_cache) + head, at, count, KEYS, known, w.g.dim};
  Vectors values{static_cast<const bf16*>(w.g.v_cache) + head, at, count, KEYS, known, w.g.value_dim};
  int64_t asks = w.asks > 1 && w.head > 0 ? 0 : w.asks;  // the first head for all
  keys.ask(asks * w.g.dim);
  score_keys<M>(keys, w.q, w.scores);
  soften_rows(w, 0, M, start);
  values.ask(asks * w.g.value_dim);
  gather_values<M>(values, w.scores, w.now.o);
}

inline void meet_in_place(Work& w, int64_t start) {
  with_rows<ROWS_IN_PLACE>(static_cast<int>(w.rows()), [&](auto r) { rows_block<decltype(r)::value>(w, start); });
}

// Whether the rows of a tile are so few that they meet the cache where it lies.
inline bool in_place(const Work& w) {
  return w.g.cache_type == 1 && w.rows() <= ROWS_IN_PLACE && w.g.dim % NR == 0 && w.g.value_dim % NR == 0;
}
#endif

// Visible positions of the tile within [from, to): its union over tokens; empty where low >= high.
inline void run_segment(FloatWork& w, int64_t from, int64_t to) {
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
      if (!loaded) w.load(w, start);
      loaded = true;
      with_rows<MR>(static_cast<int>(n), [&](auto r) { tile_block<decltype(r)::value>(w, r0, start); });
    }
  }
}

template <class X>
inline void write_rows(const Work& w, State s) {
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

// What attention_flow.h asks of a way to compute. X: type of the activations.
template <class X>
struct Floats {
  using Task = FloatWork;
  static Sizes sizes(const AttentionArgs& g) { return {g, {8 * MR, 1, W, NR}}; }
  static int64_t height(const AttentionArgs&, const Sizes& s) { return s.tokens; }  // tokens of a tile
  // For as many rows as a tile of any group: what is asked for never shrinks when a size grows.
  static int64_t scratch(const Sizes& s) {
    int64_t most = s.group > 8 * MR ? s.group : 8 * MR;
    return round_up(most * s.depth + KEYS * (s.depth + s.width) + MR * KEYS + 2 * most * (s.width + 2), 16);
  }
  static Task task(const Work& work, float* room) {
    Task w{work, nullptr};
    w.q = room;
    w.keys = w.q + w.s.rows * w.s.depth;
    w.values = w.keys + KEYS * w.s.depth;
    w.scores = w.values + KEYS * w.s.width;
    w.now = state_at(w.scores + MR * KEYS, w.s.rows);
    with_cache(w.g.cache_type, [&](auto* c) { w.load = load_block<std::remove_pointer_t<decltype(c)>>; });
    return w;
  }
  static void load(Task& w) { load_queries<X>(w); }
  static void clear(const Task& w, State s) { attention::clear(s, w.rows(), w.s.width); }
  static void run(Task& w, int64_t from, int64_t to) { run_segment(w, from, to); }
  static void merge(const Task& w, State into, State s) { attention::merge(into, s, w.rows(), w.s.width); }
  static void write(const Task& w, State s) { write_rows<X>(w, s); }
#ifdef ANYCHIP_ROWS_IN_PLACE
  static bool direct(const Task& w) { return in_place(w); }
  static void meet(Task& w, int64_t start) { meet_in_place(w, start); }
#else
  static bool direct(const Task&) { return false; }
  static void meet(Task&, int64_t) {}
#endif
};

}  // namespace attention
}  // namespace anychip

// Attention by dot products of bfloat16, where queries and cache are of it and the processor has them.
#pragma once
#include <algorithm>

#include "attention_dots_columns.h"
#include "attention_dots_rows.h"

#ifdef ANYCHIP_DOT_BF16
namespace anychip {
namespace attention {

// What attention_flow.h asks of a way to compute.
struct Dots {
  using Task = DotWork;
  static bool typed(const AttentionArgs& g) { return g.type == 1 && g.cache_type == 1; }
  static bool takes(const AttentionArgs& g) { return typed(g) && g.scale > 0.0 && g.heads / g.kv_heads <= DOT_ROWS; }

  static Sizes sizes(const AttentionArgs& g) { return {g, {DOT_ROWS, LANES, 2 * LANES, 2 * LANES}}; }
  static constexpr int64_t LOOKS = DOT_ROWS / COLUMN * sizeof(Seen) / sizeof(float);
  static int64_t scratch(const Sizes& s) {
    int64_t most = std::max(s.group, DOT_ROWS);
    int64_t block = KEYS * s.depth / 2 + PAIRS * s.width + (KEYS + PAIRS) * COLUMN;
    return round_up(LOOKS, 16) + round_up(most * s.depth + block + 2 * most * (s.width + 2), 16);
  }

  // Tokens of a tile: as many as share a block of keys well, as few as keep all threads at work.
  static int64_t height(const AttentionArgs& g, const Sizes& s) {
    int64_t tasks = 4 * g.pool->threads(), even = (g.tokens * g.kv_heads + tasks - 1) / tasks;
    return std::clamp(even, std::clamp(LEAST_ROWS / s.group, int64_t{1}, s.tokens), s.tokens);
  }

  static Task task(const Work& work, float* room) {
    Task w{work, reinterpret_cast<Seen*>(room), nullptr};
    w.q = room + round_up(LOOKS, 16);
    w.keys = w.q + w.s.rows * w.s.depth;
    w.values = w.keys + KEYS * w.s.depth / 2;
    w.scores = w.values + PAIRS * w.s.width;
    w.weights = w.scores + KEYS * COLUMN;
    w.now = state_at(w.weights + PAIRS * COLUMN, w.s.rows);
    return w;
  }

  // Whether the rows of a tile are so few that they meet the cache where it lies.
  static bool direct(const Task& w) {
    return w.rows() <= ROWS_IN_PLACE && w.g.dim % (2 * LANES) == 0 && w.g.value_dim % (2 * LANES) == 0;
  }

  static void load(Task& w) {
    if (direct(w)) return load_rows(w);
    each_column(w, [&](int64_t row, int64_t i, auto n) {
      look(w, row, w.seen[i]);
      load_column<decltype(n)::value>(w, row, w.q + row * w.s.depth / 2);
    });
  }

  static void clear(const Task& w, State s) {
    int64_t rows = direct(w) ? w.rows() : round_up(w.rows(), LANES);
    std::fill_n(s.m, rows, -INF);
    std::fill_n(s.l, rows, 0.0f);
    std::fill_n(s.o, rows * w.s.width, 0.0f);
  }

  static void meet(Task& w, int64_t start) {
    with_rows<ROWS_IN_PLACE>(static_cast<int>(w.rows()), [&](auto m) { rows_of_dots<decltype(m)::value>(w, start); });
  }

  static void run(Task& w, int64_t from, int64_t to) {
    clear(w, w.now);
    bool met = false;
    for (int64_t start = from; start < to; start += KEYS) {
      if (direct(w)) {
        if (!block_seen(w, 0, w.rows(), start)) continue;
        if (!met) ask_first(w, start);
        met = true;
        meet(w, start);
        continue;
      }
      bool loaded = false;
      each_column(w, [&](int64_t row, int64_t i, auto n) {
        const Seen& seen = w.seen[i];
        if (seen.to <= start || seen.from >= start + KEYS) return;
        if (!loaded) load_pairs(w, start);
        loaded = true;
        column_block<decltype(n)::value>(w, row, seen, start);
      });
    }
  }

  static void merge(const Task& w, State into, State s) {
    if (direct(w)) return merge_rows(w, into, s);
    each_column(w, [&](int64_t row, int64_t, auto n) { merge_column<decltype(n)::value>(into, s, row, w.s.width); });
  }

  static void write(const Task& w, State s) {
    if (direct(w)) return write_few(w, s);
    each_column(w, [&](int64_t row, int64_t, auto n) { write_column<decltype(n)::value>(w, s, row); });
  }
};

}  // namespace attention
}  // namespace anychip
#endif

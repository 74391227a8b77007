// A task of attention in float32: its sizes, its tile of query rows, and what they have gathered.
#pragma once
#include "abi.h"
#include "attention_tiles.h"
#include "simd.h"

namespace anychip {
namespace attention {

constexpr int KEYS = 64;
constexpr int64_t SEGMENT = 256;

struct State {  // online softmax of the rows of a tile
  float *m, *l, *o;
};

inline State state_at(float* at, int64_t rows) { return {at, at + rows, at + 2 * rows}; }

struct Form {  // of tiles: rows at most, rows that a state has room for at once, elements to round a vector up to
  int64_t rows, lanes, depth, width;
};

struct Sizes {
  int64_t group, tokens, rows, lanes, depth, width, segments;
  Sizes(const AttentionArgs& g, Form form)
      : group(g.heads / g.kv_heads),
        tokens(form.rows / group > 0 ? form.rows / group : 1),
        rows(round_up(tokens * group, form.lanes)),
        lanes(form.lanes),
        depth(round_up(g.dim, form.depth)),
        width(round_up(g.value_dim, form.width)),
        segments((g.table_width * g.page_size + SEGMENT - 1) / SEGMENT) {}
  int64_t state() const { return rows * (width + 2); }
  int64_t part() const { return round_up(group, lanes) * (width + 2); }
};

struct Work {  // one tile of one KV head
  const AttentionArgs& g;
  const Sizes& s;
  Tile tile;
  int64_t head, length;       // KV head; visible positions end here (kv_len)
  const int32_t* pages;       // this sequence's row of the page table
  float *q, *keys, *values, *scores;
  State now;                  // of the running segment
  int64_t asks;               // heads whose lines are asked for together, each for a share: all, or its own alone

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

// Whether a token of these rows sees a key of the block.
inline bool block_seen(const Work& w, int64_t r0, int64_t rows, int64_t start) {
  bool seen = false;
  for (int64_t t = r0 / w.s.group; t <= (r0 + rows - 1) / w.s.group; ++t) {
    seen |= w.first_of(t) < start + KEYS && w.last_of(t) > start && w.first_of(t) < w.last_of(t);
  }
  return seen;
}

// Asks for the first block of a head in a cache of bfloat16, which no block before it has asked for.
inline void ask_first(const Work& w, int64_t start) {
  int64_t at[KEYS], count = locate(w.g, w.pages, w.length, start, KEYS, at), head = w.head * w.g.head_stride;
  for (int64_t j = 0; j < count; ++j) {
    fetch(static_cast<const bf16*>(w.g.k_cache) + at[j] + head, w.g.dim * sizeof(bf16));
    fetch(static_cast<const bf16*>(w.g.v_cache) + at[j] + head, w.g.value_dim * sizeof(bf16));
  }
}

// Scores of the keys from j on, those outside of low .. high - 1 hidden.
inline V only_visible(V x, int64_t j, int64_t low, int64_t high) {
  V at = vadd(vlanes(), vset(static_cast<float>(j)));
  x = vpick_lt(at, vset(static_cast<float>(low)), vset(-INF), x);
  return vpick_lt(at, vset(static_cast<float>(high)), x, vset(-INF));
}

}  // namespace attention
}  // namespace anychip

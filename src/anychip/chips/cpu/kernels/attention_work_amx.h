// A task of attention in tiles of AMX: the query rows of a tile of tokens and some KV heads, and how
// they meet a span of positions, block by block.
#pragma once
#include "attention_block_amx.h"
#include "attention_shared_amx.h"

#ifdef ANYCHIP_AMX
namespace anychip {
namespace amx {

constexpr int64_t SPAN = 1024;      // positions
constexpr int64_t TILE_LANES = 384; // query rows of a task at most
constexpr int64_t COLUMNS = TILE_LANES / LANES;

struct Shape {
  int64_t group, tokens, dim, spans;
  explicit Shape(const AttentionArgs& g)
      : group(g.heads / g.kv_heads),
        tokens(TILE_LANES / group > 0 ? TILE_LANES / group : 1),
        dim(g.dim),
        spans((g.table_width * g.page_size + SPAN - 1) / SPAN) {}
  int64_t state() const { return (dim + 2) * LANES; }             // floats of one column's state
  int64_t alone() const { return (group + LANES - 1) / LANES; }   // columns of one token and KV head
  int64_t part() const { return alone() * state(); }
  int64_t scratch() const {                                       // floats of a thread
    return COLUMNS * (dim / 2 * LANES + 2 * state()) + 2 * BLOCK * dim + 3 * BLOCK * LANES;
  }
  static int64_t lists(int64_t tokens) { return round_up(4 * tokens, 16); }  // tiles and members
  int64_t split(const AttentionArgs& g) const {  // parts of all heads
    return std::min(g.tokens, SPLIT_TOKENS) * g.kv_heads * spans * part();
  }
  int64_t room(const AttentionArgs& g) const {  // states of groups
    return std::min(g.tokens, ROOM_TOKENS) * g.kv_heads * spans * (part() + LANES);
  }
};

// A tile of tokens and the query rows of some KV heads. Columns are counted head by head. The tokens
// lie side by side, or are the `members` of a group.
struct Work {
  const AttentionArgs& g;
  const Shape& s;
  Tile tile;
  int64_t head, heads, length;
  const int32_t *pages, *members;
  float *q, *all, *now;      // queries and states of the columns
  uint16_t *keys, *values;   // two times [64][dim]; two times tiles, see Turn
  float *scores, *weights;   // two times each, see Turn
  Visible seen_by[COLUMNS];  // by the columns of any one head

  int64_t rows() const { return tile.count * s.group; }  // of a head
  int64_t height() const { return (rows() + LANES - 1) / LANES; }
  int64_t columns() const { return heads * height(); }
  int64_t token(int64_t i) const { return members ? members[i] : tile.first + i; }
};

// column: of a head.
inline Visible visible(const Work& w, int64_t column) {
  alignas(64) int32_t first[LANES] = {}, last[LANES] = {};
  Visible v{};
  v.from = v.all_to = w.length;
  int64_t left = w.rows() - column * LANES, token = column * LANES / w.s.group, member = column * LANES % w.s.group;
  for (int64_t i = 0; i < LANES && i < left; ++i) {
    int64_t position = w.g.positions[w.token(token)];
    if (++member == w.s.group) {
      member = 0;
      ++token;
    }
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

// Where the query rows of a column lie, in elements of q and of y; `count` of 16 exist.
struct Rows {
  int64_t count, q[LANES], y[LANES];
};

inline Rows rows_of(const Work& w, int64_t column) {
  int64_t first = column % w.height() * LANES, head = w.head + column / w.height(), left = w.rows() - first;
  int64_t token = first / w.s.group, member = first % w.s.group;
  Rows rows{left < LANES ? left : LANES, {}, {}};
  for (int64_t i = 0; i < rows.count; ++i) {
    int64_t at = (head * w.s.group + member) * w.s.dim;
    rows.q[i] = w.token(token) * w.g.q_stride + at;
    rows.y[i] = w.token(token) * w.g.heads * w.s.dim + at;
    if (++member < w.s.group) continue;
    member = 0;
    ++token;
  }
  return rows;
}

// Queries of the tile: column by column, [dim / 2][16] pairs.
inline void load_queries(Work& w) {
  const uint16_t* q = static_cast<const uint16_t*>(w.g.q);
  for (int64_t column = 0; column < w.columns(); ++column) {
    Rows rows = rows_of(w, column);
    for (int64_t d = 0; d < w.s.dim; d += 32) {
      V x[W];
      for (int64_t i = 0; i < LANES; ++i) {
        x[i] = i < rows.count ? vload(reinterpret_cast<const float*>(q + rows.q[i] + d)) : vzero();
      }
      transpose(x);
      float* out = w.q + (column * w.s.dim + d) / 2 * LANES;
      for (int i = 0; i < W; ++i) vstore(out + i * LANES, x[i]);
    }
  }
}

// What a head asks for of `count` positions: whole ones, a share of them, where their heads lie side by
// side, since memory is fastest in sequence; otherwise its own lines of all of them.
inline Ahead lines(const Work& w, int64_t head, const int64_t* at, int64_t count) {
  bool whole = w.g.head_stride == w.s.dim;
  int64_t i = head - w.head, offset = whole ? w.head * w.s.dim : head * w.g.head_stride;
  int64_t first = whole ? count * i / w.heads : 0, last = whole ? count * (i + 1) / w.heads : count;
  return {static_cast<const uint16_t*>(w.g.k_cache) + offset, static_cast<const uint16_t*>(w.g.v_cache) + offset,
          at + first, last - first, (whole ? w.heads : 1) * w.s.dim * 2};
}

// One block of keys for the columns that see some of it, in turns.
class Turns {
 public:
  Turns(Work& work, float* states, int64_t start) : w(work), states_(states) {
    for (int64_t c = 0; c < w.columns(); ++c) {
      const Visible& v = w.seen_by[c % w.height()];
      if (v.to > start && v.from < start + BLOCK) columns_[count_++] = c;
    }
    if (count_ == 0) return;
    block_.start = start;
    block_.count = locate(w.g, w.pages, w.length, start, 2 * BLOCK, block_.at);
  }

  void run() {
    if (count_ == 0) return;
    Turn turns[3];
    turns[0] = begin(0);
    score(turns[0], w.s.dim);
    for (int64_t i = 0; i < count_; ++i) {
      Turn &now = turns[i % 3], &next = turns[(i + 1) % 3], &last = turns[(i + 2) % 3];
      if (i + 1 < count_) next = begin(i + 1, &now);
      bool fresh = i == 0 || last.column.head != now.column.head;
      Ahead next_block = ahead(now, fresh);
      if (fresh) load_values(values() + now.column.head * w.g.head_stride, block_, w.s.dim, next_block, now.values);
      const Visible& v = *now.column.seen;
      auto turn = v.all_from <= block_.start && v.all_to >= block_.start + BLOCK ? take_turn<false> : take_turn<true>;
      turn(w.g, block_.start, now, i + 1 < count_ ? &next : nullptr, i > 0 ? &last : nullptr, next_block);
    }
    gather_all(turns[(count_ - 1) % 3], w.s.dim);
  }

 private:
  const uint16_t* keys() const { return static_cast<const uint16_t*>(w.g.k_cache); }
  const uint16_t* values() const { return static_cast<const uint16_t*>(w.g.v_cache); }

  Turn begin(int64_t i, const Turn* before = nullptr) {
    int64_t c = columns_[i], head = w.head + c / w.height(), side = head % 2 * BLOCK * w.s.dim;
    Column column{w.q + c * w.s.dim / 2 * LANES, state_at(states_ + c * w.s.state()), w.seen_by + c % w.height(), head};
    bool again = before && before->column.head == head;
    return {column, again ? before->keys : find_keys(head, w.keys + side), w.values + side,
            w.scores + i % 2 * BLOCK * LANES, w.weights + i % 2 * BLOCK / 2 * LANES};
  }

  Keys find_keys(int64_t head, uint16_t* copy) const {
    const uint16_t* k = keys() + head * w.g.head_stride;
    bool where_they_lie = w.g.page_size % 16 == 0 && w.height() <= 2;
    return where_they_lie ? point_at_keys(k, block_, w.g.slot_stride) : copy_keys(k, block_, w.s.dim, copy);
  }

  // Lines of the next block, for the first turn of a head.
  Ahead ahead(const Turn& t, bool fresh) const {
    return lines(w, t.column.head, block_.at + BLOCK, fresh && block_.count > BLOCK ? block_.count - BLOCK : 0);
  }

  Work& w;
  float* states_;
  int64_t columns_[COLUMNS], count_ = 0;
  Block block_;
};

// Asks for the first block, which no block before it has asked for.
inline void ask_first(const Work& w, int64_t start) {
  int64_t at[BLOCK], count = locate(w.g, w.pages, w.length, start, BLOCK, at);
  for (int64_t head = w.head; head < w.head + w.heads; ++head) lines(w, head, at, count > 0 ? count : 0).ask(0, 1);
}

inline void run_blocks(Work& w, float* states, int64_t from, int64_t to) {
  for (int64_t start = from; start < to; start += BLOCK) Turns(w, states, start).run();
}

inline void run_span(Work& w, float* states, int64_t from, int64_t to) {
  if ((w.members || w.tile.count == 1) && w.g.window == 0) ask_first(w, from);
  for (int64_t column = 0; column < w.columns(); ++column) clear(state_at(states + column * w.s.state()), w.s.dim);
  run_blocks(w, states, from, to);
}

inline void merge_all(const Work& w, float* into, float* states) {
  for (int64_t c = 0; c < w.columns(); ++c) {
    merge(state_at(into + c * w.s.state()), state_at(states + c * w.s.state()), w.s.dim);
  }
}

inline void write_rows(const Work& w, float* states) {
  bf16* y = static_cast<bf16*>(w.g.y);
  for (int64_t column = 0; column < w.columns(); ++column) {
    Rows rows = rows_of(w, column);
    State s = state_at(states + column * w.s.state());
    V l = vload(s.l), whole = _mm512_mask_mov_ps(vset(1.0f), _mm512_cmp_ps_mask(l, vzero(), _CMP_NEQ_UQ), l);
    V part = vdiv(vset(1.0f), whole);
    for (int64_t d = 0; d < w.s.dim; d += LANES) {
      V x[W];
      for (int i = 0; i < W; ++i) x[i] = vmul(vload(s.o + (d + i) * LANES), part);
      transpose(x);
      for (int64_t i = 0; i < rows.count; ++i) store_part(y + rows.y[i] + d, x[i], LANES);
    }
  }
}

}  // namespace amx
}  // namespace anychip
#endif

// Attention in tiles of AMX, for bfloat16 queries over a bfloat16 cache.
//
// Scores are computed transposed, keys down and query rows (token * group + head) across: a lane of
// a vector is a query row, so that maxima and sums need no step between lanes, and two score rows
// beside each other are already what the second product takes. Outputs are transposed too:
// [head dim][16 rows]. Keys are taken in blocks of 64 and spans of SPAN positions counted from
// position 0; within a span runs the online softmax, spans are merged in order. So what a row
// gets depends on positions alone: not on pages, chunks or its batch. What several tokens share is read
// by tasks of its own, which come first.
#pragma once
#include "amx.h"
#include "attention_block_amx.h"
#include "attention_shared_amx.h"
#include "pool.h"

#ifdef ANYCHIP_AMX
namespace anychip {
namespace amx {

constexpr int64_t SPAN = 1024;      // positions
constexpr int64_t TILE_LANES = 384; // query rows of a task at most
constexpr int64_t COLUMNS = TILE_LANES / LANES;

inline bool typed(const AttentionArgs& g) { return g.type == 1 && g.cache_type == 1; }

inline bool takes(const AttentionArgs& g) {
  return typed(g) && g.dim % TILE_STEPS == 0 && g.scale > 0.0 && g.heads / g.kv_heads <= TILE_LANES;
}

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

class Attention {
 public:
  explicit Attention(const AttentionArgs& args)
      : g(args),
        s(args),
        tiles(static_cast<Tile*>(g.workspace)),
        scratch(static_cast<float*>(g.workspace) + Shape::lists(g.tokens)),
        parts(scratch + g.pool->threads() * s.scratch()),
        sharing(g, {s.group, s.dim, BLOCK, SPAN, s.tokens}, parts + s.split(g), s.room(g)) {}

  int32_t run() {
    Cut cut = cut_tiles(g, height(), tiles);
    if (cut.status) return cut.status;
    sharing.find(tiles, cut.count, reinterpret_cast<Member*>(tiles + g.tokens));
    few_shared = std::min(heads_of_task(sharing.pieces()), COLUMNS / sharing.widest());
    shared_tasks = sharing.pieces() * ((g.kv_heads + few_shared - 1) / few_shared);
    if (g.tokens <= SPLIT_TOKENS && cut.longest > SPAN && cut.count < 4 * g.pool->threads()) {
      run_split(cut);
      return OK;
    }
    few = heads_of_task(cut.count);
    g.pool->run(shared_tasks + cut.count * g.kv_heads, [&](int64_t task, int thread) {
      if (task < shared_tasks) return run_shared(task, thread);
      task -= shared_tasks;
      run_tile(task % cut.count, task / cut.count, thread);
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

  // KV heads of a task of one token: as many as leave enough tasks, so that memory, where a position's
  // heads mostly lie side by side, is read in sequence.
  int64_t heads_of_task(int64_t tasks) const {
    int64_t most = COLUMNS / s.alone() < g.kv_heads ? COLUMNS / s.alone() : g.kv_heads;
    int64_t heads = tasks * g.kv_heads / (4 * g.pool->threads());
    return heads < 1 ? 1 : heads < most ? heads : most;
  }

  // A span of what a group shares.
  void run_shared(int64_t task, int thread) {
    int64_t span = task % sharing.pieces(), head = task / sharing.pieces() * few_shared;
    int64_t group = sharing.group_of(&span), from = span * SPAN, to = std::min(from + SPAN, sharing.shared(group));
    const int32_t* tokens = sharing.tokens_of(group);
    Work w = place({tokens[0], static_cast<int32_t>(sharing.tokens(group))}, head, few_shared, thread);
    w.length = sharing.shared(group);
    w.members = tokens;
    load(w);
    AttentionTiles amx;
    run_span(w, w.all, from, to);
    for (int64_t i = 0; i < w.heads; ++i) {
      float* states = w.all + i * w.height() * s.state();
      std::copy_n(states, w.height() * s.state(), sharing.states(group, span, head + i));
      sharing.done(group, span, head + i);
    }
  }

  // A span of a tile, from where the group that it may belong to has come.
  void run_rest(Work& w, float* states, int64_t from, int64_t to) {
    Member member = w.tile.count == 1 ? sharing.member(w.tile.first) : Member{-1, 0};
    if (member.group < 0 || from >= sharing.shared(member.group)) return run_span(w, states, from, to);
    int64_t start = std::min(to, sharing.shared(member.group));
    if (start < to) ask_first(w, start);
    for (int64_t i = 0; i < w.heads; ++i) {
      sharing.take(member, from / SPAN, w.head + i, states + i * w.height() * s.state());
    }
    run_blocks(w, states, start, to);
  }

  void run_tile(int64_t tile, int64_t head, int thread) {
    bool alone = tiles[tile].count == 1, member = alone && sharing.member(tiles[tile].first).group >= 0;
    int64_t heads = member ? few_shared : alone ? few : 1;
    if (head % heads) return;
    Work w = work(tile, head, heads, thread);
    AttentionTiles amx;
    run_rest(w, w.all, 0, std::min(SPAN, w.length));
    for (int64_t from = SPAN; from < w.length; from += SPAN) {
      run_rest(w, w.now, from, std::min(from + SPAN, w.length));
      merge_all(w, w.all, w.now);
    }
    write_rows(w, w.all);
  }

  // Few tokens, each its own tile: a task a span, then the merge, as above.
  void run_split(const Cut& cut) {
    int64_t spans = (cut.longest + SPAN - 1) / SPAN, heads = heads_of_task(cut.count * spans);
    int64_t cuts = (g.kv_heads + heads - 1) / heads, part = s.part();  // a tile's: [head][span] of parts
    auto part_at = [&](int64_t tile, int64_t span, int64_t head) {
      return parts + ((tile * spans + span) * g.kv_heads + head) * part;
    };
    g.pool->run(shared_tasks + cut.count * spans * cuts, [&](int64_t task, int thread) {
      if (task < shared_tasks) return run_shared(task, thread);
      task -= shared_tasks;
      int64_t head = task % cuts * heads, span = task / cuts % spans, tile = task / cuts / spans, from = span * SPAN;
      Work w = work(tile, head, heads, thread);
      AttentionTiles amx;
      run_rest(w, part_at(tile, span, head), from, std::min(from + SPAN, w.length));
    });
    for (int64_t task = 0; task < cut.count * cuts; ++task) {
      int64_t tile = task / cuts, head = task % cuts * heads;
      Work w = work(tile, head, heads, 0);
      for (int64_t i = 1; i < spans && i * SPAN < w.length; ++i) {
        merge_all(w, part_at(tile, 0, head), part_at(tile, i, head));
      }
      write_rows(w, part_at(tile, 0, head));
    }
  }

  Work work(int64_t tile, int64_t head, int64_t heads, int thread) {
    Work w = place(tiles[tile], head, heads, thread);
    load(w);
    return w;
  }

  Work place(Tile tile, int64_t head, int64_t heads, int thread) {
    int32_t row = g.token_rows[tile.first];
    float* q = scratch + thread * s.scratch();
    float* all = q + COLUMNS * s.dim / 2 * LANES;
    float* now = all + COLUMNS * s.state();
    float* keys = now + COLUMNS * s.state();
    float* values = keys + BLOCK * s.dim;
    float* scores = values + BLOCK * s.dim;
    heads = head + heads < g.kv_heads ? heads : g.kv_heads - head;
    return {g, s, tile, head, heads, g.kv_lens[row] > 0 ? g.kv_lens[row] : 0, g.page_table + row * g.table_width,
            nullptr, q, all, now, reinterpret_cast<uint16_t*>(keys), reinterpret_cast<uint16_t*>(values), scores,
            scores + 2 * BLOCK * LANES, {}};
  }

  static void load(Work& w) {
    load_queries(w);
    for (int64_t c = 0; c < w.height(); ++c) w.seen_by[c] = visible(w, c);
  }

  const AttentionArgs& g;
  Shape s;
  Tile* tiles;
  float *scratch, *parts;
  Sharing sharing;
  int64_t few = 1, few_shared = 1, shared_tasks = 0;  // KV heads of a task; tasks of groups
};

// Floats, also for sizes that the tiles do not take: what is asked for never shrinks when one grows.
inline int64_t attention_workspace(AttentionArgs g, int64_t threads) {
  g.dim = round_up(g.dim, TILE_STEPS);
  Shape s(g);
  return Shape::lists(g.tokens) + threads * s.scratch() + s.split(g) + s.room(g);
}

}  // namespace amx
}  // namespace anychip
#endif

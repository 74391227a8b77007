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
#include "attention_work_amx.h"

#ifdef ANYCHIP_AMX
namespace anychip {
namespace amx {

inline bool typed(const AttentionArgs& g) { return g.type == 1 && g.cache_type == 1; }

inline bool takes(const AttentionArgs& g) {
  if (g.sinks || g.value_dim != g.dim) return false;
  return typed(g) && g.dim % TILE_STEPS == 0 && g.scale > 0.0 && g.heads / g.kv_heads <= TILE_LANES;
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

// How the tiles of a call become tasks of the threads, whatever way their products are computed.
//
// A task is a tile of consecutive tokens of one sequence, for one KV head and its query heads
// (rows of the tile: token * group + head), over all segments; or, when there are few tiles, over
// one segment, and the partial results are merged afterwards in the same way; or, where a tile has few
// rows that meet the cache where it lies, all its KV heads.
#pragma once
#include "attention_work.h"
#include "pool.h"

namespace anychip {
namespace attention {

template <class Way>
class Attention {
 public:
  explicit Attention(const AttentionArgs& args) : g(args), s(Way::sizes(args)) {
    tiles = static_cast<Tile*>(g.workspace);
    scratch = static_cast<float*>(g.workspace) + lists(g.tokens);
    parts = scratch + g.pool->threads() * Way::scratch(s);
  }

  // Floats of the workspace. Not 0 above SPLIT_TOKENS: what is asked for never shrinks when a size grows.
  static int64_t workspace(const AttentionArgs& g, int64_t threads) {
    Sizes s = Way::sizes(g);
    int64_t most = g.tokens < SPLIT_TOKENS ? g.tokens : SPLIT_TOKENS;
    return lists(g.tokens) + threads * Way::scratch(s) + most * g.kv_heads * s.segments * s.part();
  }

  int32_t run() {
    Cut cut = cut_tiles(g, Way::height(g, s), tiles);
    if (cut.status) return cut.status;
    count = cut.count, longest = cut.longest;
    if (g.tokens <= SPLIT_TOKENS && longest > SEGMENT && count * g.kv_heads < 4 * g.pool->threads()) {
      run_split();
    } else {
      g.pool->run(count * g.kv_heads, [&](int64_t task, int thread) { run_tile(task, thread); });
    }
    return OK;
  }

 private:
  using Task = typename Way::Task;

  static int64_t lists(int64_t tokens) { return round_up(2 * tokens, 16); }

  Task task_of(int64_t tile, int64_t head, int thread) {
    int32_t row = g.token_rows[tiles[tile].first];
    int64_t length = g.kv_lens[row] > 0 ? g.kv_lens[row] : 0;
    const int32_t* pages = g.page_table + row * g.table_width;
    Work w{g, s, tiles[tile], head, length, pages, nullptr, nullptr, nullptr, nullptr, {}, 1};
    return Way::task(w, scratch + thread * Way::scratch(s));
  }

  // Where what a task has gathered over all segments is kept: behind the running segment's.
  State all_of(const Task& w) const { return state_at(w.now.m + s.state(), w.now.l - w.now.m); }

  // The last tile first: it mostly sees most, and what is left at the end should be short.
  void run_tile(int64_t task, int thread) {
    int64_t tile = count - 1 - task / g.kv_heads;
    Task w = task_of(tile, task % g.kv_heads, thread);
    if (count >= 2 * g.pool->threads() && Way::direct(w) && g.kv_heads * w.rows() <= s.rows) {
      if (w.head == 0) all_heads(tile, thread);
      return;
    }
    State all = all_of(w);
    Way::clear(w, all);
    Way::load(w);
    for (int64_t from = 0; from < w.length; from += SEGMENT) {
      Way::run(w, from, from + SEGMENT < w.length ? from + SEGMENT : w.length);
      Way::merge(w, all, w.now);
    }
    Way::write(w, all);
  }

  // One KV head of a tile of few rows, in its share of the room that a large tile has.
  Task share_of(int64_t tile, int64_t head, int thread) {
    Task w = task_of(tile, head, thread);
    w.q += head * w.rows() * s.depth;
    w.now = state_at(w.now.m + head * w.rows() * (s.width + 2), w.rows());
    bool adjacent = g.head_stride == g.dim && g.dim == g.value_dim;
    w.asks = adjacent ? g.kv_heads : 1;
    return w;
  }

  // All heads of a tile, a block after the other: heads lie side by side in the cache, and memory is slow to
  // come back for each.
  void all_heads(int64_t tile, int thread) {
    auto each = [&](auto body) {
      for (int64_t head = 0; head < g.kv_heads; ++head) {
        Task w = share_of(tile, head, thread);
        body(w, all_of(w));
      }
    };
    Task one = task_of(tile, 0, thread);
    each([&](Task& w, State all) {
      Way::load(w);
      Way::clear(w, all);
    });
    bool met = false;
    for (int64_t from = 0; from < one.length; from += SEGMENT) {
      each([&](Task& w, State) { Way::clear(w, w.now); });
      for (int64_t start = from; start < from + SEGMENT && start < one.length; start += KEYS) {
        if (!block_seen(one, 0, one.rows(), start)) continue;
        if (!met) each([&](Task& w, State) { ask_first(w, start); });
        met = true;
        each([&](Task& w, State) { Way::meet(w, start); });
      }
      each([&](Task& w, State all) { Way::merge(w, all, w.now); });
    }
    each([&](Task& w, State all) { Way::write(w, all); });
  }

  // Few tokens, each its own tile: a task a segment, then the merge. Heads of a segment, which lie side by side
  // in the cache, come one after the other.
  void run_split() {
    int64_t segments = (longest + SEGMENT - 1) / SEGMENT;
    auto part_of = [&](int64_t task) { return state_at(parts + task * s.part(), round_up(s.group, s.lanes)); };
    int64_t pairs = count * g.kv_heads;
    g.pool->run(pairs * segments, [&](int64_t task, int thread) {
      int64_t from = task / pairs * SEGMENT, pair = task % pairs;
      Task w = task_of(pair / g.kv_heads, pair % g.kv_heads, thread);
      w.now = part_of(pair * segments + task / pairs);
      Way::load(w);
      Way::run(w, from, from + SEGMENT < w.length ? from + SEGMENT : w.length);
    });
    for (int64_t pair = 0; pair < pairs; ++pair) {
      Task w = task_of(pair / g.kv_heads, pair % g.kv_heads, 0);
      State all = all_of(w);
      Way::clear(w, all);
      for (int64_t i = 0; i < segments; ++i) Way::merge(w, all, part_of(pair * segments + i));
      Way::write(w, all);
    }
  }

  const AttentionArgs& g;
  Sizes s;
  Tile* tiles;
  float *scratch, *parts;
  int64_t count = 0, longest = 0;
};

}  // namespace attention
}  // namespace anychip

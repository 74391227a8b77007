// Which sequences of a call begin with the same pages of the cache, as they do where they share a prompt.
#pragma once
#include <algorithm>
#include <cstring>
#include "abi.h"
#include "attention_tiles.h"

namespace anychip {

constexpr int64_t MOST_SHARING = 128;  // tokens of a call that are looked at
constexpr int64_t LEAST_SHARED = 128;  // positions

struct Group {  // of tokens, which lie at `first` in Groups::tokens; positions that all of them see
  int64_t first, count, shared;
};

// Tokens that are alone in their tile, sorted by their pages: who shares much lies side by side. The
// sorted ones are cut so that most positions need not be read again.
class Groups {
 public:
  int64_t count;
  Group groups[MOST_SHARING / 2];
  int32_t tokens[MOST_SHARING];

  // Groups of `most` tokens at most, their positions in whole blocks. Of sequences that share nothing
  // little more than the first page is looked at.
  void find(const AttentionArgs& g, const Tile* tiles, int64_t tile_count, int64_t block, int64_t most) {
    count = n_ = 0;
    if (g.window > 0) return;
    for (int64_t i = 0; i < tile_count && n_ < MOST_SHARING; ++i) {
      if (tiles[i].count == 1) look_at(g, tiles[i].first);
    }
    if (n_ < 2) return;
    std::sort(all_, all_ + n_, [](const One& a, const One& b) { return before(a, b); });
    for (int64_t i = 1; i < n_; ++i) {
      int64_t least = std::min(all_[i - 1].sees, all_[i].sees), same = alike(all_[i - 1], all_[i]) * g.page_size;
      shared_[i] = std::min(least, same) / block * block;
    }
    for (int64_t i = 0; i < n_; ++i) tokens[i] = all_[i].token;
    cut(most);
  }

 private:
  struct One {
    const int32_t* pages;
    int64_t count, sees;  // pages; positions
    int32_t token;
  };

  void look_at(const AttentionArgs& g, int32_t token) {
    int32_t row = g.token_rows[token];
    int64_t sees = g.kv_lens[row], position = g.positions[token];
    if (g.causal && position + 1 < sees) sees = position + 1;
    if (sees < LEAST_SHARED) return;
    all_[n_++] = {g.page_table + row * g.table_width, (sees + g.page_size - 1) / g.page_size, sees, token};
  }

  // Pages that two begin with alike.
  static int64_t alike(const One& a, const One& b) {
    int64_t i = 0, n = std::min(a.count, b.count);
    if (a.pages == b.pages) return n;
    while (i + 16 <= n && std::memcmp(a.pages + i, b.pages + i, 64) == 0) i += 16;
    while (i < n && a.pages[i] == b.pages[i]) ++i;
    return i;
  }

  static bool before(const One& a, const One& b) {
    if (*a.pages != *b.pages) return *a.pages < *b.pages;
    int64_t i = alike(a, b);
    if (i < a.count && i < b.count) return a.pages[i] < b.pages[i];
    return a.count != b.count ? a.count < b.count : a.token < b.token;
  }

  // The best cut of the first j tokens ends with the best of the first i, and a group of the rest.
  void cut(int64_t most) {
    int64_t spared[MOST_SHARING + 1] = {}, start[MOST_SHARING + 1] = {};
    for (int64_t j = 1; j <= n_; ++j) {
      spared[j] = spared[j - 1];
      start[j] = j - 1;
      int64_t low = INT64_MAX;
      for (int64_t i = j - 2; i >= 0 && j - i <= most; --i) {
        low = std::min(low, shared_[i + 1]);
        if (low < LEAST_SHARED) break;
        int64_t now = spared[i] + (j - i - 1) * low;
        if (now <= spared[j]) continue;
        spared[j] = now;
        start[j] = i;
      }
    }
    for (int64_t j = n_; j > 0; j = start[j]) {
      if (j - start[j] < 2) continue;
      int64_t low = *std::min_element(shared_ + start[j] + 1, shared_ + j);
      groups[count++] = {start[j], j - start[j], low};
    }
  }

  int64_t n_, shared_[MOST_SHARING];  // shared_: positions with the one before
  One all_[MOST_SHARING];
};

}  // namespace anychip

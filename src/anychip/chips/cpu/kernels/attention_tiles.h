// How the tokens of a call are cut into tiles, and where a sequence's positions lie in the cache.
#pragma once
#include "abi.h"

namespace anychip {

constexpr int64_t SPLIT_TOKENS = 16;  // up to so many tokens, long contexts are split by position

struct Tile {  // consecutive tokens of one sequence
  int32_t first, count;
};

struct Cut {
  int32_t status;
  int64_t count = 0, longest = 0;  // tiles; positions of the longest sequence
};

inline int32_t check_pages(const AttentionArgs& g, int32_t row) {
  int64_t pages = (g.kv_lens[row] + g.page_size - 1) / g.page_size;
  for (int64_t p = 0; p < pages; ++p) {
    int32_t page = g.page_table[row * g.table_width + p];
    if (page < 0 || page >= g.pages) return BAD_PAGE;
  }
  return OK;
}

// Tiles of at most `most` tokens; of one where there are few tokens. Checks what is read from the
// device's indices on the way.
inline Cut cut_tiles(const AttentionArgs& g, int64_t most, Tile* tiles) {
  Cut cut{OK};
  bool alone = g.tokens <= SPLIT_TOKENS;
  for (int64_t t = 0; t < g.tokens; ++t) {
    int32_t row = g.token_rows[t];
    if (row < 0 || row >= g.rows) return {BAD_ROW};
    if (g.kv_lens[row] > g.table_width * g.page_size) return {BAD_POSITION};
    bool other = t == 0 || g.token_rows[t - 1] != row;
    if (!other && !alone && tiles[cut.count - 1].count < most) {
      ++tiles[cut.count - 1].count;
      continue;
    }
    tiles[cut.count++] = {static_cast<int32_t>(t), 1};
    if (!other) continue;
    cut.longest = g.kv_lens[row] > cut.longest ? g.kv_lens[row] : cut.longest;
    if (int32_t status = check_pages(g, row)) return {status};
  }
  return cut;
}

// Where the positions from `start` on lie in the cache for KV head 0, up to the sequence's end.
// Returns how many.
inline int64_t locate(const AttentionArgs& g, const int32_t* pages, int64_t length, int64_t start, int64_t count,
                      int64_t* at) {
  int64_t page = start / g.page_size, offset = start % g.page_size;
  if (count > length - start) count = length - start;
  for (int64_t i = 0; i < count; offset = 0) {
    int64_t slot = pages[page++] * g.page_stride + offset * g.slot_stride;
    for (; offset < g.page_size && i < count; ++offset, slot += g.slot_stride) at[i++] = slot;
  }
  return count;
}

// Asks for lines. gcc 12 drops calls of a function that does nothing but __builtin_prefetch.
inline void fetch(const void* p, int64_t bytes) {
  const char* line = static_cast<const char*>(p);
  for (int64_t i = 0; i < bytes; i += 64) {
#if defined(__x86_64__)
    asm volatile("prefetcht1 %0" ::"m"(line[i]));
#else
    __builtin_prefetch(line + i, 0, 2);
#endif
  }
}

}  // namespace anychip

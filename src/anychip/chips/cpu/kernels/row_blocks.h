// How a product cuts its rows, and what each thread keeps while it works on a panel.
#pragma once
#include "micro.h"
#include "pool.h"

namespace anychip {

constexpr int DIRECT_ROWS = REGISTERS == 32 ? 8 : 4;  // up to here straight from packed weights
constexpr int ROW_BLOCK = 16 * MR;                    // rows that share a panel in a core's cache
constexpr int64_t K_BLOCK = 2048;                     // elements of K in a scratch panel
constexpr int64_t SCALES = K_BLOCK / 16 * 2 * NR;     // of the shortest runs
constexpr int64_t SCRATCH = K_BLOCK * NR + SCALES + ROW_BLOCK * NR;  // floats a thread

struct Blocks {  // how rows are cut into row blocks of nearly equal height
  int64_t rows, count, size;
  explicit Blocks(int64_t all) : rows(all), count((all + ROW_BLOCK - 1) / ROW_BLOCK) {
    size = round_up((all + count - 1) / (count ? count : 1), MR);
  }
  int64_t first(int64_t block) const { return block * size < rows ? block * size : rows; }
};

// body(first row, rows) over the tiles of a block, nearly equal in height.
template <int MOST = MR, class F>
void for_tiles(int64_t first, int64_t rows, F body) {
  int64_t tiles = (rows + MOST - 1) / MOST;
  for (int64_t t = 0; t < tiles; ++t) {
    int64_t from = rows * t / tiles, to = rows * (t + 1) / tiles;
    body(first + from, static_cast<int>(to - from));
  }
}

// The same over all blocks, shared among the threads.
template <int MOST = MR, class F>
void each_tile(Pool* pool, const Blocks& cut, F body) {
  constexpr int64_t TILES = ROW_BLOCK / MOST;
  pool->run(cut.count * TILES, [&](int64_t i, int) {
    int64_t first = cut.first(i / TILES), last = cut.first(i / TILES + 1), tile = 0;
    for_tiles<MOST>(first, last - first, [&](int64_t row, int count) {
      if (tile++ == i % TILES) body(row, count);
    });
  });
}

}  // namespace anychip

// Tiles of AMX: 16 rows of 64 bytes. A product of two meets pairs of bfloat16 and adds in float32, or
// four signed bytes and adds in 32 bits.
#pragma once
#if defined(ANYCHIP_TILES_EMULATED) || (defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__))
#define ANYCHIP_AMX 1
#include <immintrin.h>
#include <cstdint>
#include <cstring>
#ifdef ANYCHIP_TILES_EMULATED
#include "tiles_emulated.h"
#endif

namespace anychip {

constexpr int TILE_ROWS_AMX = 16;
constexpr int TILE_STEPS = 32;  // bfloat16 elements of K in a tile

// Tiles 0..3 hold sums, [upper, lower rows][left, right columns]; 4 and 5 rows of x; 6 and 7 weights.
struct TileShape {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
  TileShape(int upper, int lower) {
    for (int i = 0; i < 8; ++i) bytes[i] = 64;
    rows[0] = rows[1] = rows[4] = static_cast<uint8_t>(upper);
    rows[2] = rows[3] = rows[5] = static_cast<uint8_t>(lower);
    rows[6] = rows[7] = TILE_ROWS_AMX;
  }
};

// Tiles while it lives, of the rows that were asked for last, then none: idle tiles would be saved at
// every switch of threads. A shape is kept for as long as the next is the same: taking one costs as much as
// a dozen products.
class Tiles {
 public:
  Tiles() = default;
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  bool have(int upper, int lower) const { return upper == upper_ && lower == lower_; }
  void take(int upper, int lower) {
    if (have(upper, lower)) return;
    upper_ = upper, lower_ = lower;
    TileShape shape(upper, lower);
    asm volatile("" ::"m"(shape) : "memory");  // gcc 12 does not know that all of it is read
    _tile_loadconfig(&shape);
  }

 private:
  int upper_ = 0, lower_ = 0;
};

// Tiles of x and of a weight. What is read once goes past the first cache, where the other stays.
enum class Keep { X, WEIGHT };

// What a pair of tiles multiplies: pairs of bfloat16, or four bytes.
enum class Meet { PAIRS, BYTES };

// gcc spells the number of a tile into the instruction, so that it cannot be a template's.
#define LOAD_TILE(tile, passes, from, stride)      \
  if constexpr (passes) {                          \
    _tile_stream_loadd(tile, from, stride);        \
  } else {                                         \
    _tile_loadd(tile, from, stride);               \
  }

#define MULTIPLY_TILES(bytes, to, left, right) \
  if constexpr (bytes) {                       \
    _tile_dpbssd(to, left, right);             \
  } else {                                     \
    _tile_dpbf16ps(to, left, right);           \
  }

// gcc 12 does not know that loading a tile reads memory: call between an ordinary store and that.
inline void stores_are_read() { asm volatile("" ::: "memory"); }

// c[upper + lower][32] (+)= a[rows][steps * 64 bytes] b, where b is a panel, [words][32 columns] of two
// bfloat16 or four bytes; left and right: where its halves of 16 columns begin. c is float32 or int32. Strides
// in bytes. One chain a row: its sum does not depend on the rows beside it. between.step() is called once a
// step, for work that the tiles leave room for; between.settle() before c is written.
template <Meet MEET, bool TWO, Keep KEEP, class Between>
inline void multiply_tiles(int64_t steps, const uint8_t* a, int64_t a_stride, const uint8_t* left, const uint8_t* right,
                           float* c, bool add, Between& between) {
  constexpr int64_t C = 128, B = 128;
  constexpr bool BYTES = MEET == Meet::BYTES;
  constexpr bool X_PASSES = KEEP == Keep::WEIGHT, WEIGHT_PASSES = KEEP == Keep::X;
  stores_are_read();
  if (add) {
    _tile_loadd(0, c, C);
    _tile_loadd(1, c + 16, C);
    if (TWO) _tile_loadd(2, c + 16 * 32, C);
    if (TWO) _tile_loadd(3, c + 16 * 32 + 16, C);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (TWO) _tile_zero(2);
    if (TWO) _tile_zero(3);
  }
  const uint8_t* lower = a + 16 * a_stride;
  for (int64_t i = 0; i < steps; ++i, a += 64, lower += 64, left += 16 * B, right += 16 * B) {
    LOAD_TILE(4, X_PASSES, a, a_stride);
    LOAD_TILE(6, WEIGHT_PASSES, left, B);
    MULTIPLY_TILES(BYTES, 0, 4, 6);
    LOAD_TILE(7, WEIGHT_PASSES, right, B);
    MULTIPLY_TILES(BYTES, 1, 4, 7);
    if (TWO) {
      LOAD_TILE(5, X_PASSES, lower, a_stride);
      MULTIPLY_TILES(BYTES, 2, 5, 6);
      MULTIPLY_TILES(BYTES, 3, 5, 7);
    }
    between.step();
  }
  between.settle();
  _tile_stored(0, c, C);
  _tile_stored(1, c + 16, C);
  if (TWO) _tile_stored(2, c + 16 * 32, C);
  if (TWO) _tile_stored(3, c + 16 * 32 + 16, C);
}
#undef LOAD_TILE
#undef MULTIPLY_TILES

}  // namespace anychip
#endif

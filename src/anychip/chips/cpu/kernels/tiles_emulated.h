// A tile unit in software, for work on the AMX kernels on a processor that has none: eight tiles a
// thread, by Intel's names. It rounds as Intel's manual says, refuses what the unit would fault on, and
// counts what it is asked for. Included by amx.h alone, where ANYCHIP_TILES_EMULATED is defined.
//
// What it cannot show: how long anything takes, and a store that the compiler left out because it does not
// know that a tile is read from there (stores_are_read(), in amx.h): loads are ordinary reads here.
#pragma once
#include <immintrin.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace anychip {
namespace emulated {

constexpr int TILES = 8, ROWS = 16, ROW_BYTES = 64;

// In the order of build_tiles.py. Loads that pass the first cache are counted apart.
enum Counted { CONFIGURATIONS, ZEROS, LOADS, PASSING_LOADS, STORES, PRODUCTS, KINDS };

struct Unit {
  alignas(64) uint8_t data[TILES][ROWS][ROW_BYTES];
  int rows[TILES], bytes[TILES];  // 0: not configured
  int64_t counts[KINDS];
};
inline thread_local Unit unit{};

[[noreturn]] inline void fault(const char* what, int tile) {
  std::fprintf(stderr, "emulated tiles: %s (tile %d)\n", what, tile);
  std::abort();
}

inline void configured(int tile) {
  if (!unit.rows[tile] || !unit.bytes[tile]) fault("a tile is used that is not configured", tile);
}

inline void release() {
  std::memset(unit.data, 0, sizeof unit.data);
  std::memset(unit.rows, 0, sizeof unit.rows);
  std::memset(unit.bytes, 0, sizeof unit.bytes);
}

inline void configure(const void* shape) {
  uint8_t raw[64];
  std::memcpy(raw, shape, sizeof raw);
  if (raw[0] != 1 || raw[1] != 0) fault("a configuration of no known palette, or begun before", 0);
  release();
  ++unit.counts[CONFIGURATIONS];
  for (int t = 0; t < TILES; ++t) {
    uint16_t bytes;
    std::memcpy(&bytes, raw + 16 + 2 * t, 2);
    if (bytes > ROW_BYTES || raw[48 + t] > ROWS || !bytes != !raw[48 + t]) fault("a shape that no tile has", t);
    unit.rows[t] = raw[48 + t], unit.bytes[t] = bytes;
  }
}

inline void zero(int tile) {
  configured(tile);
  ++unit.counts[ZEROS];
  std::memset(unit.data[tile], 0, sizeof unit.data[tile]);
}

inline void load(int tile, const void* from, int64_t stride, Counted as) {
  configured(tile);
  ++unit.counts[as];
  std::memset(unit.data[tile], 0, sizeof unit.data[tile]);
  for (int r = 0; r < unit.rows[tile]; ++r) {
    std::memcpy(unit.data[tile][r], static_cast<const uint8_t*>(from) + r * stride, unit.bytes[tile]);
  }
}

inline void store(int tile, void* to, int64_t stride) {
  configured(tile);
  ++unit.counts[STORES];
  for (int r = 0; r < unit.rows[tile]; ++r) {
    std::memcpy(static_cast<uint8_t*>(to) + r * stride, unit.data[tile][r], unit.bytes[tile]);
  }
}

// Words of K in a row of `left`. The unit faults on shapes that do not meet, and so does this.
inline int words_of(int to, int left, int right) {
  configured(to), configured(left), configured(right);
  if (to == left || to == right || left == right) fault("a product of a tile with itself", to);
  if (unit.rows[to] != unit.rows[left] || unit.bytes[to] != unit.bytes[right] ||
      unit.bytes[left] != 4 * unit.rows[right] || unit.bytes[to] % 4) {
    fault("a product of shapes that do not meet", to);
  }
  ++unit.counts[PRODUCTS];
  return unit.rows[right];
}

// Rounding of float32: to nearest, tiny numbers are zero, whatever the thread has set.
class TileRounding {
 public:
  TileRounding() : before_(_mm_getcsr()) { set(0x1f80 | 0x8040); }
  ~TileRounding() { set(before_); }
  TileRounding(const TileRounding&) = delete;
  TileRounding& operator=(const TileRounding&) = delete;

 private:
  static void set(uint32_t to) { asm volatile("ldmxcsr %0" ::"m"(to) : "memory"); }
  uint32_t before_;
};

// Even elements of K and odd ones are two chains of fused multiply-adds; both are added, then to the tile.
inline __attribute__((noinline)) void multiply_pairs(int to, int left, int right) {
  int words = words_of(to, left, right);
  TileRounding rounding;
  const __m512i odd_half = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
  for (int m = 0; m < unit.rows[to]; ++m) {
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int k = 0; k < words; ++k) {
      uint32_t pair;
      std::memcpy(&pair, unit.data[left][m] + 4 * k, 4);
      __m512i x = _mm512_set1_epi32(static_cast<int32_t>(pair)), w = _mm512_load_si512(unit.data[right][k]);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                             _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), even);
      odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, odd_half)),
                            _mm512_castsi512_ps(_mm512_and_si512(w, odd_half)), odd);
    }
    auto* row = reinterpret_cast<float*>(unit.data[to][m]);
    _mm512_store_ps(row, _mm512_add_ps(_mm512_load_ps(row), _mm512_add_ps(even, odd)));
  }
}

// Signed bytes times signed bytes, four a word, in 32 bits.
inline __attribute__((noinline)) void multiply_bytes(int to, int left, int right) {
  int words = words_of(to, left, right);
  auto even_of = [](__m512i x) { return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8); };
  auto odd_of = [](__m512i x) { return _mm512_srai_epi16(x, 8); };
  for (int m = 0; m < unit.rows[to]; ++m) {
    __m512i sum = _mm512_load_si512(unit.data[to][m]);
    for (int k = 0; k < words; ++k) {
      int32_t four;
      std::memcpy(&four, unit.data[left][m] + 4 * k, 4);
      __m512i x = _mm512_set1_epi32(four), w = _mm512_load_si512(unit.data[right][k]);
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(even_of(x), even_of(w)));
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(odd_of(x), odd_of(w)));
    }
    _mm512_store_si512(unit.data[to][m], sum);
  }
}

}  // namespace emulated
}  // namespace anychip

// Intel's names are macros in gcc, or functions that need the unit.
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig(shape) anychip::emulated::configure(shape)
#define _tile_release() anychip::emulated::release()
#define _tile_loadd(tile, from, stride) anychip::emulated::load(tile, from, stride, anychip::emulated::LOADS)
#define _tile_stream_loadd(tile, from, stride) \
  anychip::emulated::load(tile, from, stride, anychip::emulated::PASSING_LOADS)
#define _tile_stored(tile, to, stride) anychip::emulated::store(tile, to, stride)
#define _tile_zero(tile) anychip::emulated::zero(tile)
#define _tile_dpbf16ps(to, left, right) anychip::emulated::multiply_pairs(to, left, right)
#define _tile_dpbssd(to, left, right) anychip::emulated::multiply_bytes(to, left, right)

// y = x @ weight.T in tiles of AMX: bfloat16 rows, read where they lie.
//
// A bfloat16 weight's panel is what the tiles want: every number of rows goes through them, with the
// same bits for the same row. A quantized panel is widened to bfloat16 first, its scales multiplied in
// (rounding each weight once more, by up to 2**-9, where a result is rounded by as much); that pays from some
// rows on, below which linear.cpp reads the packed numbers exactly, as it does for float32 results.
#pragma once
#include "amx.h"
#include "finish.h"
#include "pool.h"

#ifdef ANYCHIP_AMX
namespace anychip {

constexpr int64_t TILED_K = 640;       // elements of K whose weights stay in the first cache
constexpr int64_t TILED_ROWS = 512;    // rows that share a panel
constexpr int64_t WIDENED_ROWS = 16;   // a quantized weight is widened from here on

template <class Format>
inline bool tiles_take(const LinearArgs& g) {
  if (g.x_type != 1 || g.k % TILE_STEPS || std::is_same_v<Format, FormatF32> || std::is_same_v<Format, FormatF16>) return false;
  return !Format::SCALED || (g.rows >= WIDENED_ROWS && g.y_type == 1);
}

// Rounded pairs: a word holds an element of `even` and, above it, one of `odd`.
inline __m512i side_by_side(V even, V odd) {
  __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
  __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Steps [first, first + count) of a quantized panel as bfloat16 pairs, scales multiplied in.
template <class Format>
inline void widen_scaled(const uint8_t* w, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count / QUANTIZED; ++i, w += Format::BYTES) {
    V d[2], low[2];
    load_scales<Format>(w, d, low);
    for (int group = 0; group < Format::BLOCK / Format::GROUP; ++group) {
      typename Format::Steps steps(w, group);
      for (int k = 0; k < Format::GROUP; k += 2) {
        V even[2], odd[2];
        steps.get(k, even[0], even[1]);
        steps.get(k + 1, odd[0], odd[1]);
        for (int h = 0; h < 2; ++h, out += 64) {
          V a = Format::OFFSET ? vfma(d[h], even[h], low[h]) : vmul(d[h], even[h]);
          V b = Format::OFFSET ? vfma(d[h], odd[h], low[h]) : vmul(d[h], odd[h]);
          _mm512_storeu_si512(out, side_by_side(a, b));
        }
      }
    }
  }
}

// A quantized or bfloat16 panel from element k on as bfloat16 pairs.
template <class Format>
inline const uint8_t* tiled_panel(const uint8_t* panel, int64_t k, int64_t count, uint8_t* out) {
  const uint8_t* from = panel + k / Format::BLOCK * Format::BYTES;
  if constexpr (!Format::SCALED) return from;
  if constexpr (Format::SCALED) widen_scaled<Format>(from, count, out);
  return out;
}

// Rows of sums to bfloat16 results, nothing else to be done.
inline void round_rows(const LinearArgs& g, int64_t row, int rows, int64_t n0, const float* c) {
  uint16_t* y = static_cast<uint16_t*>(g.y) + row * g.n + n0;
  for (int m = 0; m < rows; ++m, y += g.n, c += NR) {
    V low = vload(c), high = vload(c + W);
    if (g.bias) low = vadd(low, vload(g.bias + n0)), high = vadd(high, vload(g.bias + n0 + W));
    _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

inline void finish_tiles(const LinearArgs& g, int64_t row, int rows, int64_t n0, const float* c) {
  bool plain = g.y_type == 1 && g.scale == 1.0 && g.cap == 0.0 && n0 + NR <= g.n;
  plain ? round_rows(g, row, rows, n0, c) : finish_rows(g, row, rows, n0, NR, c);
}

struct RowBlock {  // rows of x that meet one panel after another
  int64_t first, last;
  int64_t whole() const { return first + (last - first) / 32 * 32; }
  int64_t turns() const { return (last - first + 31) / 32; }
};

// A part of K for all rows: sums go on in c, and are finished where it is the last part. `ahead` is the
// panel that comes next: it is asked for on the way, since memory takes as long as the sums.
inline void multiply_rows(const LinearArgs& g, RowBlock rows, int64_t panel, const uint8_t* b, int64_t k, int64_t count,
                          float* c, const uint8_t* ahead, int64_t ahead_bytes) {
  int64_t stride = g.x_stride * 2, steps = count / TILE_STEPS, whole = rows.whole();
  const uint8_t* x = static_cast<const uint8_t*>(g.x) + k * 2;
  bool add = k > 0, last = k + count == g.k, alone = last && !add;  // alone: c holds one turn at a time
  int64_t slice = ahead ? (ahead_bytes / rows.turns() + 63) / 64 * 64 : 0;
  {
    Tiles tiles(16, 16);
    for (int64_t r = rows.first; r < whole; r += 32, ahead += slice) {
      for (int64_t i = 0; i < slice; i += 64) __builtin_prefetch(ahead + i, 0, 2);
      float* to = alone ? c : c + (r - rows.first) * NR;
      multiply_tiles<true>(steps, x + r * stride, stride, b, to, add);
      if (last) finish_tiles(g, r, 32, panel * NR, to);
    }
  }
  int rest = static_cast<int>(rows.last - whole), upper = rest < 16 ? rest : 16;
  if (rest == 0) return;
  Tiles tiles(upper, rest - upper);
  float* to = alone ? c : c + (whole - rows.first) * NR;
  if (rest > 16) multiply_tiles<true>(steps, x + whole * stride, stride, b, to, add);
  if (rest <= 16) multiply_tiles<false>(steps, x + whole * stride, stride, b, to, add);
  if (last) finish_tiles(g, whole, rest, panel * NR, to);
}

// All rows against one panel, K in equal parts. Few rows take it in one: their weights come from memory anyway.
template <class Format>
void tiled_panel_task(const LinearArgs& g, RowBlock rows, int64_t panel, bool more) {
  alignas(64) float c[TILED_ROWS * NR];
  alignas(64) uint8_t widened[Format::SCALED ? TILED_K * NR * 2 : 64];
  int64_t bytes = blocks_of<Format>(g.k) * Format::BYTES;
  const uint8_t *w = g.weight + panel * bytes, *ahead = more ? w + bytes : nullptr;
  bool few = !Format::SCALED && rows.last - rows.first <= 32;
  int64_t parts = few ? 1 : (g.k + TILED_K - 1) / TILED_K, most = round_up((g.k + parts - 1) / parts, TILE_STEPS);
  for (int64_t k = 0; k < g.k; k += most) {
    int64_t count = g.k - k < most ? g.k - k : most;
    const uint8_t* b = tiled_panel<Format>(w, k, count, widened);
    multiply_rows(g, rows, panel, b, k, count, c, k == 0 ? ahead : nullptr, bytes);
  }
}

template <class Format>
void tile_product(const LinearArgs& g) {
  int64_t panels = (g.n + NR - 1) / NR, blocks = (g.rows + TILED_ROWS - 1) / TILED_ROWS;
  int64_t height = round_up((g.rows + blocks - 1) / blocks, 32);
  int64_t each = panels / (8 * g.pool->threads()) + 1, groups = (panels + each - 1) / each;
  g.pool->run(blocks * groups, [&](int64_t task, int) {
    int64_t first = task / groups * height, last = first + height < g.rows ? first + height : g.rows;
    int64_t from = task % groups * each, to = from + each < panels ? from + each : panels;
    for (int64_t p = from; p < to && first < last; ++p) {
      tiled_panel_task<Format>(g, {first, last}, p, p + 1 < to);
    }
  });
}

}  // namespace anychip
#endif

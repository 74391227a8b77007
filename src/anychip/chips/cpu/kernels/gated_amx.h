// y = act(x @ gate.T) * (x @ up.T) in tiles of AMX: gate and up are the halves of one weight. 16 columns
// of gate and the same of up make one panel, so that their sums meet where they are finished, in float32.
#pragma once
#include "activations.h"
#include "linear_amx.h"
#include "with_format.h"

#ifdef ANYCHIP_AMX
namespace anychip {

constexpr int64_t JOINED_ROWS = 128;  // above, halves of two panels are copied side by side, to fit the first cache

struct Gated {  // product: n is the rows of both halves; its y is not used
  const LinearArgs& product;
  bf16* y;        // [rows][inner]
  int64_t inner, kind;
};

template <class Format>
inline bool gate_takes(const LinearArgs& g, int64_t inner) {
  return !g.bias && inner % NR == 0 && g.y_type == 1 && tiles_take<Format>(g);
}

// A row of sums, 16 of gate and 16 of up, becomes 16 results. Panels are counted in halves.
struct GateRow {
  const Gated& g;
  bf16* y = nullptr;
  void start(int64_t first, int64_t half) { y = g.y + first * g.inner + half * W; }
  void next(const float* c) {
    __m256i rounded = (__m256i)_mm512_cvtneps_pbh(vmul(activate(g.kind, vload(c)), vload(c + W)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), rounded);
    y += g.inner;
  }
};

// `count` elements of K of one half of two panels, side by side.
inline void join(const uint8_t* gate, const uint8_t* up, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count / 2; ++i, gate += 128, up += 128, out += 128) {
    _mm512_store_si512(out, _mm512_loadu_si512(gate));
    _mm512_store_si512(out + 64, _mm512_loadu_si512(up));
  }
}

// All rows against panel p of gate and that of up.
template <class Format>
void gated_panel(const LinearArgs& g, RowBlock rows, int64_t p, int64_t up, float* c, Between<GateRow>& between) {
  alignas(64) uint8_t joined[TILED_K * NR * 2], widened[2][Format::SCALED ? TILED_K * NR * 2 : 64];
  int64_t bytes = blocks_of<Format>(g.k) * Format::BYTES;
  bool join_them = rows.last - rows.first > JOINED_ROWS;
  for_parts<Format>(g, rows, [&](int64_t k, int64_t count) {
    const uint8_t* a = tiled_panel<Format>(g.weight + p * bytes, k, count, widened[0]);
    const uint8_t* b = tiled_panel<Format>(g.weight + (p + up) * bytes, k, count, widened[1]);
    for (int64_t h = 0; h < 2; ++h) {
      if (join_them) join(a + h * 64, b + h * 64, count, joined);
      Part part{2 * p + h, k, count, join_them ? joined : a + h * 64, join_them ? joined + 64 : b + h * 64};
      multiply_rows(g, rows, part, c + h * MOST_ROWS * NR, between);
    }
  });
}

template <class Format>
void gated_panels(const Gated& gated) {
  const LinearArgs& g = gated.product;
  int64_t half = gated.inner / NR, bytes = blocks_of<Format>(g.k) * Format::BYTES;
  TileTasks cut(g, half);
  g.pool->run(cut.blocks * cut.groups, [&](int64_t task, int) {
    alignas(64) float c[2 * MOST_ROWS * NR];
    RowBlock rows = cut.block(task);
    if (rows.first >= rows.last) return;
    Between<GateRow> between{GateRow{gated}};
    for (int64_t p = cut.from(task); p < cut.to(task); ++p) {
      bool more = p + 1 < cut.to(task);
      const uint8_t* next = g.weight + (p + 1) * bytes;
      int64_t steps = 2 * g.k / TILE_STEPS * rows.turns();
      between.ask(more ? next : nullptr, more ? next + half * bytes : nullptr, bytes, steps);
      gated_panel<Format>(g, rows, p, half, c, between);
    }
    between.settle();
  });
}

// False where the tiles do not take it.
inline bool gated_product(const Gated& gated) {
  bool taken = false;
  if (gated.product.format >= FIRST_APART) return taken;
  with_format(gated.product.format, [&](auto* format) {
    using Format = std::remove_pointer_t<decltype(format)>;
    taken = gate_takes<Format>(gated.product, gated.inner);
    if (taken) gated_panels<Format>(gated);
  });
  return taken;
}

}  // namespace anychip
#endif

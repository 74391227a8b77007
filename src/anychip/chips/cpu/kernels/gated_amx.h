// y = act(x @ gate.T) * (x @ up.T) in tiles of AMX: gate and up are the halves of one weight. 16 columns
// of gate and the same of up make one panel, so that their sums meet where they are finished, in float32.
#pragma once
#include "activations.h"
#include "linear_amx.h"
#include "linear_int8_amx.h"
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
template <class Panels, class Turn>
void gated_panel(const LinearArgs& g, const Panels& panels, RowBlock rows, int64_t p, int64_t up, float* c,
                 Tiles& tiles, Turn& between) {
  alignas(64) uint8_t joined[TILED_K * NR * 2], scratch[2][Panels::SCRATCH];
  int64_t bytes = panels.bytes();
  bool join_them = rows.last - rows.first > JOINED_ROWS;
  panels.parts(rows.last - rows.first, [&](int64_t k, int64_t count) {
    const uint8_t* a = panels.part(g.weight + p * bytes, k, count, scratch[0]);
    const uint8_t* b = panels.part(g.weight + (p + up) * bytes, k, count, scratch[1]);
    for (int64_t h = 0; h < 2; ++h) {
      if (join_them) join(a + h * 64, b + h * 64, count, joined);
      Part part{2 * p + h, k, count, join_them ? joined : a + h * 64, join_them ? joined + 64 : b + h * 64};
      multiply_rows<Panels::MEET>(g, rows, part, c + h * MOST_ROWS * NR, tiles, between);
    }
  });
}

// g: of both halves, `half` panels each. The sums go to copies of `finish`, a task one.
template <class Panels, class Finish>
void gated_panels(const LinearArgs& g, const Panels& panels, int64_t half, const Finish& finish) {
  TileTasks cut(g, half);
  g.pool->run_streams(cut.blocks * cut.groups, [&](int64_t task, int) {
    alignas(64) float c[2 * MOST_ROWS * NR];
    RowBlock rows = cut.block(task);
    if (rows.first >= rows.last) return;
    Between<Finish> between{finish};
    Tiles tiles;
    for (int64_t p = cut.from(task); p < cut.to(task); ++p) {
      bool more = p + 1 < cut.to(task);
      const uint8_t* next = g.weight + (p + 1) * panels.bytes();
      int64_t steps = 2 * g.k / TILE_STEPS * rows.turns();
      between.ask(more ? next : nullptr, more ? next + half * panels.bytes() : nullptr, panels.bytes(), steps);
      gated_panel(g, panels, rows, p, half, c, tiles, between);
    }
    between.settle();
  });
}

// GateRow's of int8 by int8. Gate and up are rounded as where they leave the core: the same bits, however
// many rows there are.
struct ByteGateRow {
  const Gated& g;
  const ByteProduct& product;
  int64_t row = 0;
  const uint8_t *gate = nullptr, *up = nullptr;  // heads of their panels, from the half's columns on
  bf16* y = nullptr;
  void start(int64_t first, int64_t half) {
    row = first, y = g.y + first * g.inner + half * W;
    gate = product.g.weight + half / 2 * product.panels.bytes() + half % 2 * W * 4;
    up = gate + g.inner / NR * product.panels.bytes();
  }
  void next(const float* c) {
    bf16 both[2][W];
    store(both[0], product.scaled(row, gate, c));
    store(both[1], product.scaled(row++, up, c + W));
    store(y, vmul(activate(g.kind, load(both[0])), load(both[1])));
    y += g.inner;
  }
};

inline bool gated_int8(const Gated& gated) {
  const LinearArgs& g = gated.product;
  if (g.bias || gated.inner % NR || g.x_type != 1 || g.y_type != 1 || !byte_tiles_take(g)) return false;
  ByteProduct product(g, Rounding{});
  gated_panels(product.tiled, product.panels, gated.inner / NR, ByteGateRow{gated, product});
  return true;
}

// False where the tiles do not take it.
inline bool gated_product(const Gated& gated) {
  bool taken = false;
  if (gated.product.format == INT8) return gated_int8(gated);
  if (gated.product.format >= FIRST_APART) return taken;
  with_format(gated.product.format, [&](auto* format) {
    using Format = std::remove_pointer_t<decltype(format)>;
    taken = gate_takes<Format>(gated.product, gated.inner);
    if (taken) gated_panels(gated.product, FormatPanels<Format>{gated.product.k}, gated.inner / NR, GateRow{gated});
  });
  return taken;
}

}  // namespace anychip
#endif

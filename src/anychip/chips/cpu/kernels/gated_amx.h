// y = act(x @ gate.T) * (x @ up.T) in tiles of AMX: gate and up are the halves of one weight, and
// what lies between the two products never leaves the core, in float32.
#pragma once
#include "activations.h"
#include "linear_amx.h"

#ifdef ANYCHIP_AMX
namespace anychip {

struct Gated {  // product: n is the rows of both halves; its y is not used
  const LinearArgs& product;
  bf16* y;        // [rows][inner]
  int64_t inner, kind;
};

template <class Format>
inline bool gate_takes(const LinearArgs& g, int64_t inner) {
  return !g.bias && inner % NR == 0 && g.y_type == 1 && tiles_take<Format>(g);
}

// A row of up's sums meets the row of gate's that waits in `gates`.
struct GateRow {
  const Gated& g;
  const float* gates;
  int64_t base;  // row of the first of gates
  const float* gate = nullptr;
  bf16* y = nullptr;
  void start(int64_t first, int64_t panel) {
    gate = gates + (first - base) * NR;
    y = g.y + first * g.inner + (panel * NR - g.inner);
  }
  void next(const float* up) {
    V low = vmul(activate(g.kind, vload(gate)), vload(up));
    V high = vmul(activate(g.kind, vload(gate + W)), vload(up + W));
    _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    gate += NR, y += g.inner;
  }
};

template <class Format>
void gated_panels(const Gated& gated) {
  const LinearArgs& g = gated.product;
  int64_t half = gated.inner / NR, bytes = blocks_of<Format>(g.k) * Format::BYTES;
  Cut cut(g, half);
  g.pool->run(cut.blocks * cut.groups, [&](int64_t task, int) {
    alignas(64) float gates[MOST_ROWS * NR], sums[MOST_ROWS * NR];
    RowBlock rows = cut.block(task);
    if (rows.first >= rows.last) return;
    Between<GateRow> between{GateRow{gated, gates, rows.first}};
    for (int64_t p = cut.from(task); p < cut.to(task); ++p) {
      const uint8_t* next = p + 1 < cut.to(task) ? g.weight + (p + 1) * bytes : nullptr;
      tiled_panel_task<Format>(g, rows, p, g.weight + (p + half) * bytes, gates, false, between);
      tiled_panel_task<Format>(g, rows, p + half, next, sums, true, between);
    }
    between.settle();
  });
}

// False where the tiles do not take it.
inline bool gated_product(const Gated& gated) {
  bool taken = false;
  with_format(gated.product.format, [&](auto* format) {
    using Format = std::remove_pointer_t<decltype(format)>;
    taken = gate_takes<Format>(gated.product, gated.inner);
    if (taken) gated_panels<Format>(gated);
  });
  return taken;
}

}  // namespace anychip
#endif

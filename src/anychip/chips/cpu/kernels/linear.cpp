// y = x @ weight.T: whose product it is, and those of plain and of ggml's small blocks.
#include "int8.h"
#include "linear_product.h"
#include "room.h"
#include "segments.h"
#include "with_format.h"

namespace anychip {
namespace {

// how: activations of int8 by int8.
void panels_product(const LinearArgs& g, const Rounding& how) {
  if (g.format == INT8) return linear_int8(g, how);
  if (g.format >= FIRST_GROUPED) return linear_grouped(g);
  if (g.format >= FIRST_K) return linear_k(g);
  with_block_format(g.format, [&](auto* format) { linear_of<std::remove_pointer_t<decltype(format)>>(g); });
}

// Rows of x with their columns in another order.
template <class T>
void gather(const LinearArgs& g, const int32_t* order, T* out) {
  for_rows(g.pool, g.rows, g.k * 4, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const T* row = static_cast<const T*>(g.x) + r * g.x_stride;
      for (int64_t i = 0; i < g.k; ++i) out[r * g.k + i] = row[order[i]];
    }
  });
}

int64_t gathered_bytes(int64_t rows, int64_t k) { return round_up(rows * k * 4, 64); }

// A part at a time, each into its own columns of y.
void segments_product(const LinearArgs& g) {
  const Segments& table = segments_of(g.weight);
  void* gathered = g.workspace;
  int64_t first = 0, order = 0;  // what is gathered now
  for (const Segment& s : table) {
    LinearArgs part = g;
    part.weight = table.at(s.panels), part.n = s.rows, part.format = s.format;
    part.y = static_cast<uint8_t*>(g.y) + first * size_of(g.y_type);
    part.bias = g.bias ? g.bias + first : nullptr;
    part.workspace = static_cast<uint8_t*>(g.workspace) + gathered_bytes(g.rows, g.k);
    if (s.order) {
      if (s.order != order) with_activation(g.x_type, [&](auto* x) {
        gather(g, table.order_of(s), static_cast<decltype(x)>(gathered));
      });
      order = s.order, part.x = gathered, part.x_stride = g.k;
    }
    panels_product(part, {s.scale, s.zero});
    first += s.rows;
  }
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int64_t anychip_linear_workspace(int64_t rows, int64_t k, int64_t threads) {
  int64_t length = round_up(k, QUANTIZED);
  int64_t tiles = round_up(rows * length, 16) + round_up(rows * length / QUANTIZED, 16);
  int64_t scratch = rows > DIRECT_ROWS ? threads * SCRATCH : 0;
  return (tiles + scratch) * static_cast<int64_t>(sizeof(float));
}

EXPORT int64_t anychip_linear_workspace_of(int64_t format, int64_t rows, int64_t k, int64_t threads) {
  int64_t bytes = anychip_linear_workspace(rows, k, threads);
  return format == SEGMENTS ? bytes + gathered_bytes(rows, k) : bytes;
}

EXPORT int32_t anychip_linear(const LinearArgs* args) {
  if (args->rows == 0) return OK;
  args->format == SEGMENTS ? segments_product(*args) : panels_product(*args, {});
  return OK;
}

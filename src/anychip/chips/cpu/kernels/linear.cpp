// y = x @ weight.T: whose product it is, and those of plain and of ggml's small blocks.
#include "linear_product.h"
#include "with_format.h"

using namespace anychip;

EXPORT int64_t anychip_linear_workspace(int64_t rows, int64_t k, int64_t threads) {
  int64_t length = round_up(k, QUANTIZED);
  int64_t tiles = round_up(rows * length, 16) + round_up(rows * length / QUANTIZED, 16);
  int64_t scratch = rows > DIRECT_ROWS ? threads * SCRATCH : 0;
  return (tiles + scratch) * static_cast<int64_t>(sizeof(float));
}

EXPORT int32_t anychip_linear(const LinearArgs* args) {
  const LinearArgs& g = *args;
  if (g.rows == 0) return OK;
  if (g.format >= FIRST_K) {
    linear_k(g);
  } else {
    with_block_format(g.format, [&](auto* format) { linear_of<std::remove_pointer_t<decltype(format)>>(g); });
  }
  return OK;
}

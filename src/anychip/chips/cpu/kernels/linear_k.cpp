// y = x @ weight.T of ggml's super-blocks, and of its blocks of 5 bits.
#include "linear_product.h"
#include "with_format.h"

namespace anychip {

void linear_k(const LinearArgs& g) {
  with_k_format(g.format, [&](auto* format) { linear_of<std::remove_pointer_t<decltype(format)>>(g); });
}

}  // namespace anychip

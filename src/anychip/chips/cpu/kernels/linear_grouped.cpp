// y = x @ weight.T of codes in groups.
#include "linear_product.h"
#include "with_format.h"

namespace anychip {

void linear_grouped(const LinearArgs& g) {
  with_grouped_format(g.format, [&](auto* format) { linear_of<std::remove_pointer_t<decltype(format)>>(g); });
}

}  // namespace anychip

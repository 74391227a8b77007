// What every product ends with: scale, soft cap, bias, rounding.
#pragma once
#include <type_traits>

#include "abi.h"
#include "formats.h"
#include "simd.h"

namespace anychip {

// Scale, soft cap, bias, rounding: columns n0 .. of one row, `columns` values in c.
template <class Y>
inline void finish(const LinearArgs& g, int64_t row, int64_t n0, int64_t columns, const float* c) {
  Y* y = static_cast<Y*>(g.y) + row * g.y_stride;
  int64_t end = n0 + columns < g.n ? n0 + columns : g.n;
  for (int64_t n = n0; n < end; n += W, c += W) {
    int64_t left = end - n;
    V v = vload(c);
    if (g.scale != 1.0) v = vmul(v, vset(static_cast<float>(g.scale)));
    if (g.cap > 0.0) v = vsoftcap(v, static_cast<float>(g.cap));
    if (g.bias) v = vadd(v, load_part(g.bias + n, left));
    store_part(y + n, v, left);
  }
}

inline void finish_rows(const LinearArgs& g, int64_t row, int rows, int64_t n0, int64_t columns, const float* c) {
  with_activation(g.y_type, [&](auto* y) {
    for (int m = 0; m < rows; ++m) {
      finish<std::remove_pointer_t<decltype(y)>>(g, row + m, n0, columns, c + m * columns);
    }
  });
}

}  // namespace anychip

// Rows of activations as whole numbers of a scale, for int8 by int8.
#pragma once
#include <limits>

#include "int8.h"

namespace anychip {

// A row's whole numbers, zero taken off again, in `q`; its scale, NaN where one number is not finite.
template <class X>
float whole_row(const X* x, int64_t k, const Rounding& how, float* q) {
  V most = vzero(), odd = vzero();
  for (int64_t i = 0; i < k; i += W) {
    V v = load_part(x + i, k - i);
    most = vmax(most, vmax(v, vsub(vzero(), v)));
    odd = vadd(odd, vmul(v, vzero()));  // 0 unless a number is infinite or none
  }
  float scale = how.scale > 0.0f ? how.scale : hmax(most) / 127.0f;
  V zero = vset(static_cast<float>(how.zero)), low = vset(how.scale > 0.0f ? -128.0f : -127.0f);
  for (int64_t i = 0; i < k; i += W) {
    V v = vadd(vround(vdiv(load_part(x + i, k - i), vset(scale))), zero);
    v = vsub(vmin(vset(127.0f), vmax(low, v)), zero);
    vstore_n(q + i, scale > 0.0f ? v : vzero(), k - i < W ? k - i : W);
  }
  return hsum(odd) == 0.0f ? scale : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace anychip

// The largest number of a row; NaN is none.
#pragma once
#include "simd.h"

namespace anychip {

// vmax gives its second argument where one is NaN, so `top` never becomes NaN.
inline float largest(const float* x, int64_t n) {
  V top = vset(-INF);
  int64_t i = 0;
  for (; i + W <= n; i += W) top = vmax(vload(x + i), top);
  float m = hmax(top);
  for (; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

}  // namespace anychip

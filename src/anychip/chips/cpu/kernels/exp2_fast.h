// Powers of two for weights of attention, which are rounded to bfloat16.
#pragma once
#include "formats.h"

#ifdef ANYCHIP_DOT_BF16
namespace anychip {

constexpr float LOG2E = 1.44269504f;
constexpr float C0 = 0.99992783f, C1 = 0.69577710f, C2 = 0.22623319f, C3 = 0.07790716f;  // 2**f on [0, 1)

// 2**x, to 1e-4 and so well within a weight's rounding, plus `more` * 2**floor(x); 0 where x is -infinite.
inline V exp2_plus(V x, float more) {
  V f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  V y = vfma(vset(C3), f, vset(C2));
  y = vfma(y, f, vset(C1));
  return _mm512_scalef_ps(vfma(y, f, vset(C0 + more)), x);
}

inline V exp2_fast(V x) { return exp2_plus(x, 0.0f); }

// Half a unit of bfloat16 larger: cut off after 16 bits, it is rounded.
inline V exp2_up(V x) { return exp2_plus(x, 1.0f / 256); }

}  // namespace anychip
#endif

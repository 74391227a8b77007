// Online softmax of 16 query rows side by side: a lane is a row, so nothing crosses lanes.
#pragma once
#include "amx.h"
#include "micro.h"

#ifdef ANYCHIP_AMX
namespace anychip {
namespace amx {

constexpr int LANES = 16;
constexpr float LOG2E = 1.44269504f;
constexpr float C0 = 0.99992783f, C1 = 0.69577710f, C2 = 0.22623319f, C3 = 0.07790716f;  // 2**f on [0, 1)

// Online softmax of 16 query rows.
struct State {
  float *m, *l, *o;  // [16], [16], [dim][16]; m in units of log 2
};

inline State state_at(float* at) { return {at, at + LANES, at + 2 * LANES}; }

inline void clear(State s, int64_t dim) {
  vstore(s.m, vset(-INF));
  std::memset(s.l, 0, (dim + 1) * LANES * sizeof(float));
}

// 2**x, to 1e-4 and so well within a weight's rounding, plus `more` * 2**floor(x); NaN where x is infinite.
inline V exp2_plus(V x, float more) {
  V f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  V y = vfma(vset(C3), f, vset(C2));
  y = vfma(y, f, vset(C1));
  return _mm512_scalef_ps(vfma(y, f, vset(C0 + more)), x);
}

inline V exp2_fast(V x) { return exp2_plus(x, 0.0f); }

// Half a unit of bfloat16 larger: cut off after 16 bits, it is rounded.
inline V exp2_up(V x) { return exp2_plus(x, 1.0f / 256); }

// The factor that takes values relative to `from` to values relative to `to`; 0 where nothing was seen.
inline V factor_of(V from, V to) {
  __mmask16 some = _mm512_cmp_ps_mask(from, vset(-INF), _CMP_NEQ_UQ);
  return _mm512_maskz_mov_ps(some, exp2_fast(vsub(from, to)));
}

inline void scale_rows(float* o, int64_t dim, V factor) {
  for (int64_t d = 0; d < dim; ++d) vstore(o + d * LANES, vmul(vload(o + d * LANES), factor));
}

// into = into merged with s.
inline void merge(State into, State s, int64_t dim) {
  V m = vmax(vload(into.m), vload(s.m));
  V a = factor_of(vload(into.m), m), b = factor_of(vload(s.m), m);
  vstore(into.m, m);
  vstore(into.l, vfma(vload(into.l), a, vmul(vload(s.l), b)));
  for (int64_t i = 0; i < dim * LANES; i += LANES) {
    vstore(into.o + i, vfma(vload(into.o + i), a, vmul(vload(s.o + i), b)));
  }
}

}  // namespace amx
}  // namespace anychip
#endif

// Online softmax of 16 query rows side by side: a lane is a row, so nothing crosses lanes.
#pragma once
#include "amx.h"
#include "exp2_fast.h"
#include "micro.h"

#ifdef ANYCHIP_AMX
namespace anychip {
namespace amx {

constexpr int LANES = 16;
// Online softmax of 16 query rows.
struct State {
  float *m, *l, *o;  // [16], [16], [dim][16]; m in units of log 2
};

inline State state_at(float* at) { return {at, at + LANES, at + 2 * LANES}; }

inline void clear(State s, int64_t dim) {
  vstore(s.m, vset(-INF));
  std::memset(s.l, 0, (dim + 1) * LANES * sizeof(float));
}

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

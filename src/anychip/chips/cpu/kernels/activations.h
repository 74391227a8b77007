// Activations of gated networks.
#pragma once
#include "simd.h"

namespace anychip {

inline V silu(V x) { return vdiv(x, vadd(vset(1.0f), vexp(vsub(vzero(), x)))); }

inline V gelu_tanh(V x) {
  V inner = vmul(vset(0.7978845608f), vfma(vmul(vset(0.044715f), x), vmul(x, x), x));
  return vmul(vmul(vset(0.5f), x), vadd(vset(1.0f), vtanh(inner)));
}

// kind: 0 silu, 1 gelu_tanh, as in abi.h.
inline V activate(int64_t kind, V x) { return kind == 0 ? silu(x) : gelu_tanh(x); }

}  // namespace anychip

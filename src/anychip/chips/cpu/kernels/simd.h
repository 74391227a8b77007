// Vectors of floats, the storage types, and the functions that every kernel shares.
//
// Everything is computed in float32. A result depends on its own row alone: reductions run in lanes
// and are folded in one fixed order, tails are filled with zeros and take the same path.
#pragma once
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "simd_avx2.h"
#elif defined(ANYCHIP_NEON)  // what aarch64's compiler may use anyway, so it is asked for by name
#include "simd_neon.h"
#else
#include "simd_portable.h"
#endif

namespace anychip {

constexpr float INF = std::numeric_limits<float>::infinity();

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline V load(const float* p) { return vload(p); }
inline V load(const bf16* p) { return load_bf16(&p->bits); }
inline V load(const f16* p) { return load_f16(&p->bits); }
inline void store(float* p, V x) { vstore(p, x); }
inline void store(bf16* p, V x) { store_bf16(&p->bits, x); }
inline void store(f16* p, V x) { store_f16(&p->bits, x); }

// The first n < W elements, zeros after them.
inline V load_n(const float* p, int64_t n) { return vload_n(p, n); }
template <class T>
inline V load_n(const T* p, int64_t n) {
  T t[W] = {};
  std::memcpy(t, p, n * sizeof(T));
  return load(t);
}
inline void store_n(float* p, V x, int64_t n) { vstore_n(p, x, n); }
template <class T>
inline void store_n(T* p, V x, int64_t n) {
  T t[W];
  store(t, x);
  std::memcpy(p, t, n * sizeof(T));
}

inline float widen(float x) { return x; }
inline float widen(bf16 x) {
  uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
inline float widen(f16 x) {
  float t[W];
  vstore(t, load_n(&x, 1));
  return t[0];
}

// body(i, n): vectors of W elements, then the rest; n is W or smaller.
template <class T>
inline V load_part(const T* p, int64_t n) {
  return n >= W ? load(p) : load_n(p, n);
}
template <class T>
inline void store_part(T* p, V x, int64_t n) {
  if (n >= W) {
    store(p, x);
  } else {
    store_n(p, x, n);
  }
}

// e**x within 2 ulp; 0 below -87.3365 (2**-126), 2.4e38 above 88.376, NaN stays.
// x = n ln 2 + r with |r| <= ln 2 / 2; Taylor's polynomial of degree 7 in r errs by 5e-9.
inline V vexp(V x) {
  const V low = vset(-87.3365f), high = vset(88.376f);
  V c = vmin(high, vmax(low, x));
  V n = vround(vmul(c, vset(1.44269504f)));
  V r = vfma(n, vset(-0.693359375f), c);
  r = vfma(n, vset(2.12194440e-4f), r);
  V p = vset(1.0f / 5040);
  p = vfma(p, r, vset(1.0f / 720));
  p = vfma(p, r, vset(1.0f / 120));
  p = vfma(p, r, vset(1.0f / 24));
  p = vfma(p, r, vset(1.0f / 6));
  p = vfma(p, r, vset(0.5f));
  p = vfma(p, r, vset(1.0f));
  p = vfma(p, r, vset(1.0f));
  return vpick_lt(x, low, vzero(), vmul(p, vpow2(n)));
}

inline float exp1(float x) {
  float t[W];
  vstore(t, vexp(vset(x)));
  return t[0];
}

// Taylor below 0.25 where 1 - 2 / (e**2x + 1) would cancel.
inline V vtanh(V x) {
  V s = vmul(x, x);
  V p = vfma(s, vset(62.0f / 2835), vset(-17.0f / 315));
  p = vfma(s, p, vset(2.0f / 15));
  p = vfma(s, p, vset(-1.0f / 3));
  V near = vfma(vmul(x, s), p, x);
  V far = vsub(vset(1.0f), vdiv(vset(2.0f), vadd(vexp(vadd(x, x)), vset(1.0f))));
  return vpick_lt(s, vset(0.0625f), near, far);
}

inline V vsoftcap(V x, float cap) { return vmul(vset(cap), vtanh(vdiv(x, vset(cap)))); }

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Calls f with a null pointer of the storage type that a code of abi.h stands for.
template <class F>
inline void with_activation(int64_t type, F f) {
  if (type == 0) {
    f(static_cast<float*>(nullptr));
  } else {
    f(static_cast<bf16*>(nullptr));
  }
}
template <class F>
inline void with_storage(int64_t type, F f) {
  if (type == 2) {
    f(static_cast<f16*>(nullptr));
  } else {
    with_activation(type, f);
  }
}

}  // namespace anychip

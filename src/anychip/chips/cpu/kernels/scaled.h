// Vectors of a cache in one byte an element, each followed by its own float32 scale.
//
// scale = largest magnitude / largest number of the type; an element is x / scale to the nearest
// number, ties to even. Both are divisions, so that every instruction set writes the same bytes.
#pragma once
#include <type_traits>

#include "simd.h"

namespace anychip {

struct s8 {
  static constexpr float MOST = 127.0f;
  int8_t value;
};
struct e4m3 {  // sign, 4 bits of exponent with bias 7, 3 of mantissa; 448 is the largest
  static constexpr float MOST = 448.0f;
  uint8_t bits;
};

template <class C>
constexpr bool SCALED = std::is_same<C, s8>::value || std::is_same<C, e4m3>::value;
constexpr int64_t SCALE_BYTES = sizeof(float);

inline V load(const s8* p) {
  float t[W];
  for (int i = 0; i < W; ++i) t[i] = static_cast<float>(p[i].value);
  return vload(t);
}
// As float16 each is 2**-8 of itself, small ones too.
inline V load(const e4m3* p) {
  uint16_t t[W];
  for (int i = 0; i < W; ++i) t[i] = static_cast<uint16_t>((p[i].bits & 0x80) << 8 | (p[i].bits & 0x7f) << 7);
  return vmul(load_f16(t), vset(256.0f));
}

inline void store(s8* p, V x) {
  float t[W];
  vstore(t, vround(x));
  for (int i = 0; i < W; ++i) p[i].value = static_cast<int8_t>(t[i]);
}
inline uint8_t narrow_e4m3(float x) {  // no further than MOST from 0
  uint32_t u, low;
  std::memcpy(&u, &x, 4);
  uint32_t sign = u >> 24 & 0x80;
  u &= 0x7fffffffu;
  if (u < 0x3c800000u) {  // below 2**-6 the step is 2**-9: adding 2**14 leaves the rounded result in the low bits
    float big;
    std::memcpy(&big, &u, 4);
    big += 16384.0f;
    std::memcpy(&low, &big, 4);
    return static_cast<uint8_t>(sign | (low - 0x46800000u));
  }
  return static_cast<uint8_t>(sign | ((u - 0x3c000000u + 0x7ffffu + (u >> 20 & 1)) >> 20));
}
inline void store(e4m3* p, V x) {
  float t[W];
  vstore(t, x);
  for (int i = 0; i < W; ++i) p[i].bits = narrow_e4m3(t[i]);
}

// The scale behind a vector of dim elements.
template <class C>
inline float scale_of(const C* vector, int64_t dim) {
  float scale;
  std::memcpy(&scale, vector + dim, sizeof scale);
  return scale;
}

// One vector with its scale. 0 for zeros; what holds an infinity or a NaN has the scale NaN.
template <class X, class C>
inline void store_scaled(C* to, const X* from, int64_t dim) {
  V top = vzero(), strange = vzero();
  for (int64_t d = 0; d < dim; d += W) {
    V x = load_part(from + d, dim - d);
    strange = vfma(x, vzero(), strange);
    top = vmax(vmax(x, vsub(vzero(), x)), top);
  }
  V most = vset(C::MOST), least = vset(-C::MOST);
  float quotient[W];
  vstore(quotient, vdiv(vset(hmax(top)), most));
  float scale = quotient[0];
  if (hsum(strange) != 0.0f) scale = std::numeric_limits<float>::quiet_NaN();
  bool any = scale > 0.0f;
  for (int64_t d = 0; d < dim; d += W) {
    int64_t left = dim - d;
    V x = any ? vdiv(load_part(from + d, left), vset(scale)) : vzero();
    store_part(to + d, vmin(most, vmax(least, x)), left);
  }
  std::memcpy(to + dim, &scale, sizeof scale);
}

// Calls f with a null pointer of the type that a cache is held in, by its code in abi.h.
template <class F>
inline void with_cache(int64_t type, F f) {
  if (type == 32) {
    f(static_cast<s8*>(nullptr));
  } else if (type == 33) {
    f(static_cast<e4m3*>(nullptr));
  } else {
    with_storage(type, f);
  }
}

}  // namespace anychip

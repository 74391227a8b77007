// Any processor: the compiler's own vectors of 4 floats (NEON on aarch64, SSE2 on x86-64).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace anychip {

constexpr int W = 4;
constexpr int REGISTERS = 16;
typedef float V __attribute__((vector_size(16)));
typedef int32_t VI __attribute__((vector_size(16)));

inline V vset(float x) { return V{x, x, x, x}; }
inline V vzero() { return vset(0.0f); }
inline V vload(const float* p) {
  V x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void vstore(float* p, V x) { std::memcpy(p, &x, sizeof x); }
inline V vadd(V a, V b) { return a + b; }
inline V vsub(V a, V b) { return a - b; }
inline V vmul(V a, V b) { return a * b; }
inline V vdiv(V a, V b) { return a / b; }
inline V vmax(V a, V b) { return a > b ? a : b; }
inline V vmin(V a, V b) { return a < b ? a : b; }
inline V vfma(V a, V b, V c) { return a * b + c; }  // fused where the target has it
inline V vpick_lt(V a, V b, V yes, V no) { return a < b ? yes : no; }
inline V vround(V x) { return V{nearbyintf(x[0]), nearbyintf(x[1]), nearbyintf(x[2]), nearbyintf(x[3])}; }
inline V vlanes() { return V{0, 1, 2, 3}; }

inline V as_floats(VI x) {
  V y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
inline V vpow2(V n) { return as_floats((__builtin_convertvector(n, VI) + 127) << 23); }

inline V vload_n(const float* p, int64_t n) {
  float t[W] = {};
  std::memcpy(t, p, n * sizeof(float));
  return vload(t);
}
inline void vstore_n(float* p, V x, int64_t n) {
  float t[W];
  vstore(t, x);
  std::memcpy(p, t, n * sizeof(float));
}

inline float from_bits(uint32_t u) {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}
inline uint32_t to_bits(float x) {
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}

inline float widen_f16(uint16_t h) {
  uint32_t sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
  if (rest >= 0x7c00u) return from_bits(sign | (rest << 13) | 0x7f800000u);
  float x = from_bits(rest << 13) * from_bits(0x77800000u);  // times 2**112, denormals too
  return from_bits(to_bits(x) | sign);
}

inline uint16_t narrow_f16(float x) {
  uint32_t u = to_bits(x), sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (u >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (u < 0x38800000u) {  // denormal: adding 0.5 leaves the rounded result in the low bits
    return static_cast<uint16_t>(sign | (to_bits(from_bits(u) + 0.5f) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13));
}

inline uint16_t narrow_bf16(float x) {
  uint32_t u = to_bits(x);
  if (x != x) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float widen_bf16(uint16_t b) { return from_bits(static_cast<uint32_t>(b) << 16); }
inline V load_bf16(const uint16_t* p) {
  return V{widen_bf16(p[0]), widen_bf16(p[1]), widen_bf16(p[2]), widen_bf16(p[3])};
}
inline V load_f16(const uint16_t* p) {
  return V{widen_f16(p[0]), widen_f16(p[1]), widen_f16(p[2]), widen_f16(p[3])};
}
inline void store_bf16(uint16_t* p, V x) {
  for (int i = 0; i < W; ++i) p[i] = narrow_bf16(x[i]);
}
inline void store_f16(uint16_t* p, V x) {
  for (int i = 0; i < W; ++i) p[i] = narrow_f16(x[i]);
}

inline VI load_pairs(const uint8_t* p) {
  uint16_t h[2 * W];
  std::memcpy(h, p, sizeof h);
  return VI{h[0] | h[1] << 16, h[2] | h[3] << 16, h[4] | h[5] << 16, h[6] | h[7] << 16};
}
inline V bf16_first(const uint8_t* p) {
  return as_floats(load_pairs(p) << 16);
}
inline V bf16_second(const uint8_t* p) {
  return as_floats(load_pairs(p) & -65536);
}

inline VI load_words(const uint8_t* p) {
  VI x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
// Byte k of each word, a signed number.
inline V signed_byte(VI words, int k) {
  return __builtin_convertvector((words << (24 - 8 * k)) >> 24, V);
}
inline V nibble(VI words, int shift, int subtract) {
  return __builtin_convertvector(((words >> shift) & 15) - subtract, V);
}

// Zeros come in from the left.
inline VI shift_right(VI words, int by) {
  typedef uint32_t Words __attribute__((vector_size(16)));
  return (VI)((Words)words >> static_cast<uint32_t>(by));
}
// Some bits of each word, where `mask` wants them; a negative shift goes left.
inline VI field(VI words, int shift, int mask) {
  return (shift < 0 ? words << -shift : words >> shift) & mask;
}
inline V joined(VI a, VI b, int subtract) { return __builtin_convertvector((a | b) - subtract, V); }

inline VI no_words() { return VI{0, 0, 0, 0}; }
inline V floats_of(VI words) { return __builtin_convertvector(words, V); }
inline VI whole_of(V x) { return __builtin_convertvector(x, VI); }
inline VI add_whole(VI a, VI b) { return a + b; }

inline float hsum(V x) { return (x[0] + x[2]) + (x[1] + x[3]); }
inline float hmax(V x) {
  float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
  return a > b ? a : b;
}

inline void transpose(V (&r)[W]) {
  V t[W] = {r[0], r[1], r[2], r[3]};
  for (int i = 0; i < W; ++i) r[i] = V{t[0][i], t[1][i], t[2][i], t[3][i]};
}

}  // namespace anychip

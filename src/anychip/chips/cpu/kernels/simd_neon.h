// NEON of any aarch64: 4 lanes, 32 registers. Maxima and minima treat NaN as the other sets do.
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace anychip {

using V = float32x4_t;
using VI = int32x4_t;
constexpr int W = 4;
constexpr int REGISTERS = 32;

inline V vset(float x) { return vdupq_n_f32(x); }
inline V vzero() { return vdupq_n_f32(0.0f); }
inline V vload(const float* p) { return vld1q_f32(p); }
inline void vstore(float* p, V x) { vst1q_f32(p, x); }
inline V vadd(V a, V b) { return vaddq_f32(a, b); }
inline V vsub(V a, V b) { return vsubq_f32(a, b); }
inline V vmul(V a, V b) { return vmulq_f32(a, b); }
inline V vdiv(V a, V b) { return vdivq_f32(a, b); }
inline V vmax(V a, V b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline V vmin(V a, V b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline V vfma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
inline V vround(V x) { return vrndnq_f32(x); }
inline V vpick_lt(V a, V b, V yes, V no) { return vbslq_f32(vcltq_f32(a, b), yes, no); }
inline V vlanes() { return V{0, 1, 2, 3}; }

inline V vpow2(V n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}

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

inline V load_bf16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
inline void store_bf16(uint16_t* p, V x) {
  uint32x4_t u = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
  uint32x4_t rounded = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
  vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16));
}
inline V load_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline void store_f16(uint16_t* p, V x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }

inline VI load_words(const uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
inline V bf16_first(const uint8_t* p) { return vreinterpretq_f32_s32(vshlq_n_s32(load_words(p), 16)); }
inline V bf16_second(const uint8_t* p) {
  return vreinterpretq_f32_s32(vandq_s32(load_words(p), vdupq_n_s32(-65536)));
}

// Zeros come in from the left.
inline VI shift_right(VI words, int by) {
  return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(words), vdupq_n_s32(-by)));
}
// Byte k of each word, a signed number.
inline V signed_byte(VI words, int k) {
  return vcvtq_f32_s32(vshrq_n_s32(vshlq_s32(words, vdupq_n_s32(24 - 8 * k)), 24));
}
inline V nibble(VI words, int shift, int subtract) {
  VI q = vandq_s32(shift_right(words, shift), vdupq_n_s32(15));
  return vcvtq_f32_s32(vsubq_s32(q, vdupq_n_s32(subtract)));
}
// Some bits of each word, where `mask` wants them; a negative shift goes left.
inline VI field(VI words, int shift, int mask) {
  return vandq_s32(vshlq_s32(words, vdupq_n_s32(-shift)), vdupq_n_s32(mask));
}
inline V joined(VI a, VI b, int subtract) {
  return vcvtq_f32_s32(vsubq_s32(vorrq_s32(a, b), vdupq_n_s32(subtract)));
}

inline VI no_words() { return vdupq_n_s32(0); }
inline V floats_of(VI words) { return vcvtq_f32_s32(words); }

// Dot products of bytes: the even or odd ones of each word as 16 bits, times a pair of 16 bits.
#define ANYCHIP_BYTE_DOTS 1
inline VI even_bytes(VI words) {
  return vreinterpretq_s32_s16(vshrq_n_s16(vshlq_n_s16(vreinterpretq_s16_s32(words), 8), 8));
}
inline VI odd_bytes(VI words) { return vreinterpretq_s32_s16(vshrq_n_s16(vreinterpretq_s16_s32(words), 8)); }
inline VI add_dots(VI sum, VI bytes, int32_t pair) {
  int16x8_t a = vreinterpretq_s16_s32(bytes), b = vreinterpretq_s16_s32(vdupq_n_s32(pair));
  VI low = vmull_s16(vget_low_s16(a), vget_low_s16(b)), high = vmull_high_s16(a, b);
  return vaddq_s32(sum, vpaddq_s32(low, high));
}

inline float hsum(V x) {
  float32x2_t a = vadd_f32(vget_low_f32(x), vget_high_f32(x));
  return vget_lane_f32(a, 0) + vget_lane_f32(a, 1);
}
inline float hmax(V x) {
  float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
  return a > b ? a : b;
}

inline void transpose(V (&r)[W]) {
  V a = vtrn1q_f32(r[0], r[1]), b = vtrn2q_f32(r[0], r[1]);
  V c = vtrn1q_f32(r[2], r[3]), d = vtrn2q_f32(r[2], r[3]);
  r[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(c));
  r[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(d));
  r[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(c));
  r[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(d));
}

}  // namespace anychip

// AVX2 with FMA and F16C: 8 lanes.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace anychip {

using V = __m256;
constexpr int W = 8;
constexpr int REGISTERS = 16;

inline V vset(float x) { return _mm256_set1_ps(x); }
inline V vzero() { return _mm256_setzero_ps(); }
inline V vload(const float* p) { return _mm256_loadu_ps(p); }
inline void vstore(float* p, V x) { _mm256_storeu_ps(p, x); }
inline V vadd(V a, V b) { return _mm256_add_ps(a, b); }
inline V vsub(V a, V b) { return _mm256_sub_ps(a, b); }
inline V vmul(V a, V b) { return _mm256_mul_ps(a, b); }
inline V vdiv(V a, V b) { return _mm256_div_ps(a, b); }
inline V vmax(V a, V b) { return _mm256_max_ps(a, b); }
inline V vmin(V a, V b) { return _mm256_min_ps(a, b); }
inline V vfma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
inline V vround(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline V vpick_lt(V a, V b, V yes, V no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

inline V vpow2(V n) {
  __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}

inline V vlanes() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

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

inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store128(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }

inline V load_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

inline void store_bf16(uint16_t* p, V x) {
  __m256i u = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  r = _mm256_srli_epi32(_mm256_blendv_epi8(r, quiet, nan), 16);
  __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
  store128(p, _mm256_castsi256_si128(packed));
}

inline V load_f16(const uint16_t* p) { return _mm256_cvtph_ps(load128(p)); }
inline void store_f16(uint16_t* p, V x) {
  store128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline V bf16_first(const uint8_t* p) { return _mm256_castsi256_ps(_mm256_slli_epi32(load256(p), 16)); }
inline V bf16_second(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_and_si256(load256(p), _mm256_set1_epi32(-65536)));
}

inline __m128i load64(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
using VI = __m256i;
inline VI load_words(const uint8_t* p) { return load256(p); }
// Byte k of each word, a signed number.
inline V signed_byte(VI words, int k) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * k), 24));
}
inline V nibble(VI words, int shift, int subtract) {
  __m256i q = _mm256_and_si256(_mm256_srli_epi32(words, shift), _mm256_set1_epi32(15));
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(subtract)));
}

inline VI shift_right(VI words, int by) { return _mm256_srli_epi32(words, by); }
// Some bits of each word, where `mask` wants them; a negative shift goes left.
inline VI field(VI words, int shift, int mask) {
  VI moved = shift < 0 ? _mm256_slli_epi32(words, -shift) : _mm256_srli_epi32(words, shift);
  return _mm256_and_si256(moved, _mm256_set1_epi32(mask));
}
inline V joined(VI a, VI b, int subtract) {
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_or_si256(a, b), _mm256_set1_epi32(subtract)));
}

inline VI no_words() { return _mm256_setzero_si256(); }
inline V floats_of(VI words) { return _mm256_cvtepi32_ps(words); }

// Dot products of bytes: the even or odd ones of each word as 16 bits, times a pair of 16 bits.
#define ANYCHIP_BYTE_DOTS 1
inline VI even_bytes(VI words) { return _mm256_srai_epi16(_mm256_slli_epi16(words, 8), 8); }
inline VI odd_bytes(VI words) { return _mm256_srai_epi16(words, 8); }
inline VI add_dots(VI sum, VI bytes, int32_t pair) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(bytes, _mm256_set1_epi32(pair)));
}

inline float hsum(V x) {
  __m128 a = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  a = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}
inline float hmax(V x) {
  __m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  a = _mm_max_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

inline void transpose(V (&r)[W]) {
  V t[W];
  for (int i = 0; i < W; i += 4) {
    V a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    V c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x20);
    r[4 + j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x31);
  }
}

}  // namespace anychip

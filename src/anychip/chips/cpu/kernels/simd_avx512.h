// AVX-512 (F, BW, DQ, VL): 16 lanes.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace anychip {

using V = __m512;
constexpr int W = 16;            // float lanes of a vector
constexpr int REGISTERS = 32;

inline V vset(float x) { return _mm512_set1_ps(x); }
inline V vzero() { return _mm512_setzero_ps(); }
inline V vload(const float* p) { return _mm512_loadu_ps(p); }
inline void vstore(float* p, V x) { _mm512_storeu_ps(p, x); }
inline V vadd(V a, V b) { return _mm512_add_ps(a, b); }
inline V vsub(V a, V b) { return _mm512_sub_ps(a, b); }
inline V vmul(V a, V b) { return _mm512_mul_ps(a, b); }
inline V vdiv(V a, V b) { return _mm512_div_ps(a, b); }
inline V vmax(V a, V b) { return _mm512_max_ps(a, b); }  // b where one is NaN
inline V vmin(V a, V b) { return _mm512_min_ps(a, b); }
inline V vfma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }  // a * b + c, rounded once
inline V vround(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline V vpick_lt(V a, V b, V yes, V no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

// 2**n for integral n in -126 .. 127.
inline V vpow2(V n) {
  __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}

inline V vlanes() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

inline __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
inline V vload_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void vstore_n(float* p, V x, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }

inline V load_bf16(const uint16_t* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

// Round to nearest even; NaN stays NaN. The instruction of AVX512_BF16 would flush denormals.
inline void store_bf16(uint16_t* p, V x) {
  __m512i u = _mm512_castps_si512(x);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
  __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
}

inline V load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

inline void store_f16(uint16_t* p, V x) {
  __m256i h = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
}

// W pairs of bfloat16, as lie side by side: their first and their second elements.
inline V bf16_first(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
inline V bf16_second(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(-65536)));
}

#define ANYCHIP_PAIRS_IN_REGISTERS 1
inline V bf16_first(V pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16)); }
inline V bf16_second(V pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
}

// W words of eight 4-bit numbers; number r of each, looked up in a table of 16.
using VI = __m512i;
inline VI load_words(const uint8_t* p) { return _mm512_loadu_si512(p); }
// Byte k of each word, a signed number.
inline V signed_byte(VI words, int k) {
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 24 - 8 * k), 24));
}
inline V nibble(VI words, int shift, int subtract) {
  V table = _mm512_sub_ps(vlanes(), _mm512_set1_ps(static_cast<float>(subtract)));
  return _mm512_permutexvar_ps(_mm512_srli_epi32(words, shift), table);
}

inline VI shift_right(VI words, int by) { return _mm512_srli_epi32(words, static_cast<unsigned>(by)); }
// Some bits of each word, where `mask` wants them; a negative shift goes left.
inline VI field(VI words, int shift, int mask) {
  VI moved = shift < 0 ? _mm512_slli_epi32(words, static_cast<unsigned>(-shift)) : shift_right(words, shift);
  return _mm512_and_si512(moved, _mm512_set1_epi32(mask));
}
inline V joined(VI a, VI b, int subtract) {
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_or_si512(a, b), _mm512_set1_epi32(subtract)));
}

inline VI no_words() { return _mm512_setzero_si512(); }
inline V floats_of(VI words) { return _mm512_cvtepi32_ps(words); }
inline VI whole_of(V x) { return _mm512_cvtps_epi32(x); }
inline VI add_whole(VI a, VI b) { return _mm512_add_epi32(a, b); }

#ifdef __AVX512VNNI__
// Dot products of bytes, four unsigned ones of a word times four signed ones, added without saturation.
// Spelled out: with the intrinsic gcc 12 keeps part of a tile's sums in memory.
#define ANYCHIP_BYTE_QUADS 1
inline VI add_quads(VI sum, VI positive, VI either) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(positive), "v"(either));
  return sum;
}
inline VI less_times(VI sum, VI of, int32_t times) {
  return _mm512_sub_epi32(sum, _mm512_mullo_epi32(of, _mm512_set1_epi32(times)));
}
// W floats, whole numbers and `more` added, as unsigned bytes; they lie in 0 .. 255.
inline void store_unsigned(uint8_t* p, V x, int32_t more) {
  __m512i whole = _mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(more));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(whole));
}
#else
// As simd_avx2.h has them: the even or odd bytes of each word as 16 bits, times a pair of 16 bits.
#define ANYCHIP_BYTE_DOTS 1
inline VI even_bytes(VI words) { return _mm512_srai_epi16(_mm512_slli_epi16(words, 8), 8); }
inline VI odd_bytes(VI words) { return _mm512_srai_epi16(words, 8); }
inline VI add_dots(VI sum, VI bytes, int32_t pair) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(bytes, _mm512_set1_epi32(pair)));
}
#endif

inline float hsum(V x) { return _mm512_reduce_add_ps(x); }
inline float hmax(V x) { return _mm512_reduce_max_ps(x); }

// Rows become columns, in registers: pairs, then quads, then 128-bit lanes. Called, it would go through memory.
__attribute__((always_inline)) inline void transpose(V (&r)[W]) {
  __m512d t[W];
  for (int i = 0; i < W; i += 4) {
    V a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
    V c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
    __m512d ad = _mm512_castps_pd(a), bd = _mm512_castps_pd(b);
    __m512d cd = _mm512_castps_pd(c), dd = _mm512_castps_pd(d);
    t[i] = _mm512_unpacklo_pd(ad, cd);
    t[i + 1] = _mm512_unpackhi_pd(ad, cd);
    t[i + 2] = _mm512_unpacklo_pd(bd, dd);
    t[i + 3] = _mm512_unpackhi_pd(bd, dd);
  }
  for (int j = 0; j < 4; ++j) {
    V a = _mm512_castpd_ps(t[j]), b = _mm512_castpd_ps(t[4 + j]);
    V c = _mm512_castpd_ps(t[8 + j]), d = _mm512_castpd_ps(t[12 + j]);
    V ab0 = _mm512_shuffle_f32x4(a, b, 0x88), ab1 = _mm512_shuffle_f32x4(a, b, 0xdd);
    V cd0 = _mm512_shuffle_f32x4(c, d, 0x88), cd1 = _mm512_shuffle_f32x4(c, d, 0xdd);
    r[j] = _mm512_shuffle_f32x4(ab0, cd0, 0x88);
    r[4 + j] = _mm512_shuffle_f32x4(ab1, cd1, 0x88);
    r[8 + j] = _mm512_shuffle_f32x4(ab0, cd0, 0xdd);
    r[12 + j] = _mm512_shuffle_f32x4(ab1, cd1, 0xdd);
  }
}

}  // namespace anychip

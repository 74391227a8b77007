// y = x @ weight.T for bfloat16 rows and a quantized weight, in whole numbers.
//
// A block of 32 numbers of a row becomes whole numbers of 16 bits and one scale, a power of two: a
// bfloat16 number of 1/128 of the block's largest or more is kept exactly, a smaller one within 2**-15
// of the largest. A whole number is two bytes, x = 256 * high + low, and a weight's numbers are bytes
// already: their products are added exactly, four at a time, and meet the scales once a block.
#pragma once
#include <atomic>

#include "finish.h"
#include "micro.h"
#include "pool.h"

#if defined(__AVX512VNNI__) && defined(ANYCHIP_DOT_BF16)
#define ANYCHIP_VNNI 1

namespace anychip {

constexpr int WHOLE_ROWS = 4;            // rows at once
constexpr int LARGEST_WHOLE = 32639;     // its upper byte is 127; one number in 128 would be 32,640

struct WholeBlock {  // 32 numbers of a row
  int8_t high[QUANTIZED], low[QUANTIZED];
};
struct WholeScale {
  float scale;
  int32_t sum;  // of the whole numbers
};

struct WholeRows {  // [block][row]
  WholeBlock* blocks;
  WholeScale* scales;
};

// False where a number is infinite or none at all.
inline bool whole_block(const bf16* x, WholeBlock& block, WholeScale& scale) {
  constexpr int NOT_FINITE = 0x99;
  V a = load(x), b = load(x + W);
  if (_mm512_fpclass_ps_mask(a, NOT_FINITE) | _mm512_fpclass_ps_mask(b, NOT_FINITE)) return false;
  float most = hmax(vmax(_mm512_abs_ps(a), _mm512_abs_ps(b))), power = 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &most, 4);
  bits &= 0x7f800000;
  std::memcpy(&power, &bits, 4);  // the largest power of two in it; 0 for what is smaller than 2**-126
  scale.scale = power * 0x1p-14f;
  V back = vset(power > 0.0f ? 0x1p14f / power : 0.0f);
  __m512i limit = _mm512_set1_epi32(LARGEST_WHOLE), least = _mm512_set1_epi32(-LARGEST_WHOLE);
  __m512i all = _mm512_setzero_si512();
  for (int h = 0; h < 2; ++h) {
    __m512i q = _mm512_max_epi32(_mm512_min_epi32(_mm512_cvtps_epi32(vmul(h ? b : a, back)), limit), least);
    __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
    __m512i low = _mm512_sub_epi32(q, _mm512_slli_epi32(high, 8));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block.high + h * W), _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block.low + h * W), _mm512_cvtepi32_epi8(low));
    all = _mm512_add_epi32(all, q);
  }
  scale.sum = _mm512_reduce_add_epi32(all);
  return true;
}

// All rows. False where a number is not finite: a product of floats says what becomes of it.
inline bool whole_rows(const LinearArgs& g, int64_t blocks, const WholeRows& to) {
  std::atomic<bool> finite{true};
  for_rows(g.pool, g.rows, g.k * 2, [&](int64_t first, int64_t last) {
    bool mine = true;
    for (int64_t r = first; r < last; ++r) {
      const bf16* row = static_cast<const bf16*>(g.x) + r * g.x_stride;
      for (int64_t i = 0; i < blocks; ++i) {
        mine &= whole_block(row + i * QUANTIZED, to.blocks[i * g.rows + r], to.scales[i * g.rows + r]);
      }
    }
    if (!mine) finite = false;
  });
  return finite;
}

// How a format's numbers meet bytes: as unsigned ones, `ZERO` above themselves.
template <class Format>
struct Bytes;
template <>
struct Bytes<FormatQ8> {
  static constexpr int ZERO = 128, EACH = 1;  // EACH: words of four steps that one word of the format gives
  static VI word(VI packed, int) { return _mm512_xor_si512(packed, _mm512_set1_epi8(-128)); }
};
template <bool MINIMUM>
struct Bytes<FormatQ4<MINIMUM>> {
  static constexpr int ZERO = FormatQ4<MINIMUM>::ZERO, EACH = 2;
  static VI word(VI packed, int i) { return _mm512_and_si512(_mm512_srli_epi32(packed, 4 * i), _mm512_set1_epi8(15)); }
};

inline VI four_of(const int8_t* x) {
  int32_t word;
  std::memcpy(&word, x, 4);
  return _mm512_set1_epi32(word);
}

// sums[M][2] of one block of NR columns: exact.
template <class Format, int M>
inline void whole_sums(const uint8_t* w, const WholeBlock* x, VI (&sums)[M][2]) {
  using Words = Bytes<Format>;
  VI high[M][2], low[M][2];
  for (int m = 0; m < M; ++m) {
    for (int h = 0; h < 2; ++h) high[m][h] = low[m][h] = _mm512_setzero_si512();
  }
#pragma GCC unroll 8
  for (int group = 0; group < QUANTIZED / 4 / Words::EACH; ++group) {
    VI packed[2] = {load_words(w + group * NR * 4), load_words(w + group * NR * 4 + W * 4)};
#pragma GCC unroll 2
    for (int i = 0; i < Words::EACH; ++i) {
      int k = (group * Words::EACH + i) * 4;
      VI word[2] = {Words::word(packed[0], i), Words::word(packed[1], i)};
      for (int m = 0; m < M; ++m) {
        VI a = four_of(x[m].high + k), b = four_of(x[m].low + k);
        for (int h = 0; h < 2; ++h) {
          high[m][h] = _mm512_dpbusd_epi32(high[m][h], word[h], a);
          low[m][h] = _mm512_dpbusd_epi32(low[m][h], word[h], b);
        }
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int h = 0; h < 2; ++h) sums[m][h] = _mm512_add_epi32(_mm512_slli_epi32(high[m][h], 8), low[m][h]);
  }
}

// c[M][NR] of one panel; `stride` rows lie between the blocks of x.
template <class Format, int M>
void whole_panel(const WholeRows& x, int64_t stride, const uint8_t* w, int64_t blocks, float* c) {
  V sum[M][2];
  for (auto& row : sum) row[0] = row[1] = vzero();
  for (int64_t i = 0; i < blocks; ++i, w += Format::BYTES) {
    VI whole[M][2];
    whole_sums<Format, M>(w + Format::HEAD, x.blocks + i * stride, whole);
    V d[2], low[2];
    Format::scales(w, 0, d, low);
    for (int m = 0; m < M; ++m) {
      const WholeScale& s = x.scales[i * stride + m];
      V scale = vset(s.scale), all = vset(s.scale * static_cast<float>(s.sum));
      VI zero = _mm512_set1_epi32(Bytes<Format>::ZERO * s.sum);
      for (int h = 0; h < 2; ++h) {
        V product = _mm512_cvtepi32_ps(_mm512_sub_epi32(whole[m][h], zero));
        sum[m][h] = vfma(vmul(d[h], scale), product, sum[m][h]);
        if (Format::OFFSET) sum[m][h] = vfma(low[h], all, sum[m][h]);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    vstore(c + m * NR, sum[m][0]);
    vstore(c + m * NR + W, sum[m][1]);
  }
}

template <class Format>
void whole_panels(const LinearArgs& g, int64_t blocks, const WholeRows& x, int64_t from, int64_t to) {
  float c[WHOLE_ROWS * NR];
  for (int64_t p = from; p < to; ++p) {
    const uint8_t* w = g.weight + p * blocks * Format::BYTES;
    for (int64_t r = 0; r < g.rows; r += WHOLE_ROWS) {
      int rows = static_cast<int>(g.rows - r < WHOLE_ROWS ? g.rows - r : WHOLE_ROWS);
      with_rows<WHOLE_ROWS>(rows, [&](auto m) {
        whole_panel<Format, decltype(m)::value>({x.blocks + r, x.scales + r}, g.rows, w, blocks, c);
      });
      finish_rows(g, r, rows, p * NR, NR, c);
    }
  }
}

// False where it does not take the call. Needs less workspace than any other path.
template <class Format>
bool whole_product(const LinearArgs& g) {
  if (g.x_type != 1) return false;
  int64_t blocks = blocks_of<Format>(g.k), panels = (g.n + NR - 1) / NR;
  WholeBlock* at = static_cast<WholeBlock*>(g.workspace);
  WholeRows x{at, reinterpret_cast<WholeScale*>(at + g.rows * blocks)};
  if (!whole_rows(g, blocks, x)) return false;
  int64_t each = panels / (8 * g.pool->threads()) + 1;
  g.pool->run((panels + each - 1) / each, [&](int64_t task, int) {
    int64_t last = (task + 1) * each;
    whole_panels<Format>(g, blocks, x, task * each, last < panels ? last : panels);
  });
  return true;
}

}  // namespace anychip
#endif

// y = x @ weight.T for bfloat16 rows and a quantized weight, in whole numbers.
//
// A block of 32 numbers of a row becomes whole numbers of 16 bits and one scale, a power of two: a
// bfloat16 number of 1/128 of the block's largest or more is kept exactly, a smaller one within 2**-15
// of the largest. Their products with a weight's numbers are added exactly and meet the scales once a
// block, so a row has the same bits whatever the rows beside it, and however it is added: by bytes,
// where memory binds, or by pairs of 16 bits, where a tile of rows shares what widening a weight costs.
#pragma once
#include <atomic>

#include "finish.h"
#include "micro.h"
#include "pool.h"
#include "row_blocks.h"

#if defined(__AVX512VNNI__) && defined(ANYCHIP_DOT_BF16)
#define ANYCHIP_VNNI 1

namespace anychip {

constexpr int BYTE_ROWS = 4;          // up to here by bytes
constexpr int WHOLE_ROWS = 8;         // of a tile
constexpr int LARGEST_WHOLE = 32639;  // its upper byte is 127; one number in 128 would be 32,640
constexpr int WORDS = QUANTIZED / 2;  // of a block of a row

// Tiles of rows, M high: words [block][M][WORDS], and scales [block][M][3], which are a block's scale, that
// times the sum of its numbers, and what its products are too large by, a whole number.
struct WholeTiles {
  int32_t* words;
  float* scales;
  int64_t blocks;
  WholeTiles at(int64_t row) const { return {words + row * blocks * WORDS, scales + row * blocks * 3, blocks}; }
};

// Spelled out: with the intrinsic gcc 12 keeps part of a tile's sums in memory.
inline VI add_pairs(VI sum, VI a, VI b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}

// A whole number as two bytes, x = 256 * high + low, which meet a weight's as unsigned ones, `ZERO` above
// themselves. Words: 32 high bytes, then the low ones. EACH: words of four steps that one of the format gives.
template <class Format>
struct ByBytes {
  static constexpr bool EIGHT = std::is_same_v<Format, FormatQ8>;
  static constexpr int ZERO = EIGHT ? 128 : Format::ZERO, EACH = EIGHT ? 1 : 2;
  static VI word(VI packed, int i) {
    if (EIGHT) return _mm512_xor_si512(packed, _mm512_set1_epi8(-128));
    return _mm512_and_si512(_mm512_srli_epi32(packed, 4 * i), _mm512_set1_epi8(15));
  }
  static void put(VI whole, int32_t* words) {
    VI high = _mm512_srai_epi16(_mm512_add_epi16(whole, _mm512_set1_epi16(128)), 8);
    VI low = _mm512_sub_epi16(whole, _mm512_slli_epi16(high, 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm512_cvtepi16_epi8(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + WORDS / 2), _mm512_cvtepi16_epi8(low));
  }
  // sums[M][2] of one block of NR columns: exact.
  template <int M>
  static void add(const uint8_t* w, const int32_t* x, VI (&sums)[M][2]) {
    VI low[M][2];
    for (int m = 0; m < M; ++m) {
      for (int h = 0; h < 2; ++h) sums[m][h] = low[m][h] = _mm512_setzero_si512();
    }
#pragma GCC unroll 8
    for (int group = 0; group < WORDS / 2 / EACH; ++group) {
      VI packed[2] = {load_words(w + group * NR * 4), load_words(w + group * NR * 4 + W * 4)};
#pragma GCC unroll 2
      for (int i = 0; i < EACH; ++i) {
        int k = group * EACH + i;
        VI each[2] = {word(packed[0], i), word(packed[1], i)};
        for (int m = 0; m < M; ++m) {
          VI a = _mm512_set1_epi32(x[m * WORDS + k]), b = _mm512_set1_epi32(x[m * WORDS + WORDS / 2 + k]);
          for (int h = 0; h < 2; ++h) {
            sums[m][h] = _mm512_dpbusd_epi32(sums[m][h], each[h], a);
            low[m][h] = _mm512_dpbusd_epi32(low[m][h], each[h], b);
          }
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int h = 0; h < 2; ++h) sums[m][h] = _mm512_add_epi32(_mm512_slli_epi32(sums[m][h], 8), low[m][h]);
    }
  }
};

// Pairs of 16 bits, of steps k and k + 2, k = p / 2 * 4 + p % 2: those of a packed word that a shift or two
// give. EACH: pairs of a word of the format.
template <class Format>
struct ByPairs {
  static constexpr bool EIGHT = std::is_same_v<Format, FormatQ8>;
  static constexpr int ZERO = EIGHT ? 0 : Format::ZERO, EACH = EIGHT ? 2 : 4;
  static VI pair(VI packed, int i) {
    if (EIGHT) return _mm512_srai_epi16(i ? packed : _mm512_slli_epi16(packed, 8), 8);
    constexpr int SHIFT[] = {0, 8, 4, 12};
    VI moved = i ? _mm512_srli_epi16(packed, SHIFT[i & 3]) : packed;
    return i == 3 ? moved : _mm512_and_si512(moved, _mm512_set1_epi16(15));
  }
  static void put(VI whole, int32_t* words) {
    alignas(16) static constexpr int8_t ORDER[] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(ORDER));
    _mm512_storeu_si512(words, _mm512_shuffle_epi8(whole, _mm512_broadcast_i32x4(order)));
  }
  template <int M>
  static void add(const uint8_t* w, const int32_t* x, VI (&sums)[M][2]) {
    for (auto& row : sums) row[0] = row[1] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int group = 0; group < WORDS / EACH; ++group, w += NR * 4) {
      VI left = load_words(w), right = load_words(w + W * 4);
#pragma GCC unroll 4
      for (int j = 0; j < EACH; ++j) {
        VI b0 = pair(left, j), b1 = pair(right, j);
        for (int m = 0; m < M; ++m) {
          VI a = _mm512_set1_epi32(x[m * WORDS + group * EACH + j]);
          sums[m][0] = add_pairs(sums[m][0], a, b0);
          sums[m][1] = add_pairs(sums[m][1], a, b1);
        }
      }
    }
  }
};

// The largest of 32 numbers, as the bits of its size.
inline uint32_t largest_bits(const bf16* x) {
  __m512i all = _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi16(0x7fff));
  __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  __m128i part = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  __m128i least = _mm_minpos_epu16(_mm_xor_si128(part, _mm_set1_epi16(-1)));
  return ~static_cast<uint32_t>(_mm_cvtsi128_si32(least)) & 0xffff;
}

// 32 numbers, `times` as large, as whole ones.
inline VI whole_numbers(const bf16* x, float times) {
  VI first = _mm512_cvtps_epi32(vmul(load(x), vset(times)));
  VI second = _mm512_cvtps_epi32(vmul(load(x + W), vset(times)));
  VI all = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(first)), _mm512_cvtepi32_epi16(second), 1);
  return _mm512_max_epi16(_mm512_min_epi16(all, _mm512_set1_epi16(LARGEST_WHOLE)), _mm512_set1_epi16(-LARGEST_WHOLE));
}

// A block of a row. False where a number is infinite or none at all.
template <class How, bool OFFSET>
inline bool whole_block(const bf16* x, int32_t* words, float* scales) {
  constexpr uint32_t EXPONENT = 0x7f80, BACK = (254 + 14) << 7;  // less an exponent: of 2**14 by that power
  constexpr uint32_t LEAST = 15 << 7;                           // of 2**-112: a smaller block counts as nothing
  uint32_t most = largest_bits(x) & EXPONENT, power = most << 16, inverse = (BACK - most) << 16;
  if (most == EXPONENT) return false;
  if (most < LEAST) power = inverse = 0;
  float scale, times;
  std::memcpy(&scale, &power, 4);
  std::memcpy(&times, &inverse, 4);
  scale *= 0x1p-14f;
  VI whole = whole_numbers(x, times);
  How::put(whole, words);
  scales[0] = scale;
  if constexpr (OFFSET || How::ZERO) {
    VI pairs = add_pairs(_mm512_setzero_si512(), whole, _mm512_set1_epi16(1));
    int32_t sum = _mm512_reduce_add_epi32(pairs), zero = sum * How::ZERO;
    scales[1] = scale * static_cast<float>(sum);
    std::memcpy(scales + 2, &zero, 4);
  }
  return true;
}

// A tile of rows; false where a number is not finite.
template <class How, bool OFFSET>
bool whole_tile(const LinearArgs& g, const WholeTiles& x, int64_t row, int count) {
  const bf16* from = static_cast<const bf16*>(g.x) + row * g.x_stride;
  WholeTiles to = x.at(row);
  for (int64_t i = 0; i < x.blocks; ++i, from += QUANTIZED) {
    for (int m = 0; m < count; ++m, to.words += WORDS, to.scales += 3) {
      if (!whole_block<How, OFFSET>(from + m * g.x_stride, to.words, to.scales)) return false;
    }
  }
  return true;
}

// c[M][NR] of one panel.
template <class How, class Format, int M>
void whole_panel(const WholeTiles& x, const uint8_t* w, float* c) {
  V sum[M][2];
  for (auto& row : sum) row[0] = row[1] = vzero();
  const int32_t* words = x.words;
  const float* scales = x.scales;
  for (int64_t i = 0; i < x.blocks; ++i, w += Format::BYTES, words += M * WORDS, scales += M * 3) {
    VI whole[M][2];
    How::template add<M>(w + Format::HEAD, words, whole);
    V d[2], low[2];
    Format::scales(w, 0, d, low);
    for (int m = 0; m < M; ++m) {
      const float* s = scales + m * 3;
      for (int h = 0; h < 2; ++h) {
        VI exact = How::ZERO ? _mm512_sub_epi32(whole[m][h], _mm512_castps_si512(vset(s[2]))) : whole[m][h];
        sum[m][h] = vfma(vmul(d[h], vset(s[0])), _mm512_cvtepi32_ps(exact), sum[m][h]);
        if (Format::OFFSET) sum[m][h] = vfma(low[h], vset(s[1]), sum[m][h]);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    vstore(c + m * NR, sum[m][0]);
    vstore(c + m * NR + W, sum[m][1]);
  }
}

// body(block of rows, panel), shared among the threads.
template <class F>
void panel_tasks(const LinearArgs& g, int64_t row_blocks, F body) {
  int64_t panels = (g.n + NR - 1) / NR;
  g.pool->run_streams(row_blocks * panels, [&](int64_t i, int) { body(i / panels, i % panels); });
}

// A few rows, which are one tile.
template <class Format, int M>
bool few_whole(const LinearArgs& g, const WholeTiles& x) {
  if (!whole_tile<ByBytes<Format>, Format::OFFSET>(g, x, 0, M)) return false;
  panel_tasks(g, 1, [&](int64_t, int64_t p) {
    float c[M * NR];
    whole_panel<ByBytes<Format>, Format, M>(x, g.weight + p * x.blocks * Format::BYTES, c);
    finish_rows(g, 0, M, p * NR, NR, c);
  });
  return true;
}

// A block of rows stays in a core's second cache, and a panel in the first while its tiles take turns.
template <class Format>
bool many_whole(const LinearArgs& g, const WholeTiles& x) {
  using How = ByPairs<Format>;
  Blocks cut(g.rows);
  std::atomic<bool> finite{true};
  each_tile<WHOLE_ROWS>(g.pool, cut, [&](int64_t row, int count) {
    if (!whole_tile<How, Format::OFFSET>(g, x, row, count)) finite = false;
  });
  if (!finite) return false;
  panel_tasks(g, cut.count, [&](int64_t block, int64_t p) {
    int64_t first = cut.first(block), rows = cut.first(block + 1) - first;
    const uint8_t* w = g.weight + p * x.blocks * Format::BYTES;
    float c[WHOLE_ROWS * NR];
    for_tiles<WHOLE_ROWS>(first, rows, [&](int64_t row, int count) {
      with_rows<WHOLE_ROWS>(count, [&](auto m) { whole_panel<How, Format, decltype(m)::value>(x.at(row), w, c); });
      finish_rows(g, row, count, p * NR, NR, c);
    });
  });
  return true;
}

// False where it does not take the call: a product of floats says what becomes of a number that is not
// finite. Needs less workspace than any other path.
template <class Format>
bool whole_product(const LinearArgs& g) {
  if (g.x_type != 1) return false;
  int64_t blocks = blocks_of<Format>(g.k);
  int32_t* words = static_cast<int32_t*>(g.workspace);
  WholeTiles x{words, reinterpret_cast<float*>(words + g.rows * blocks * WORDS), blocks};
  if (g.rows > BYTE_ROWS) return many_whole<Format>(g, x);
  bool taken = false;
  with_rows<BYTE_ROWS>(static_cast<int>(g.rows), [&](auto m) { taken = few_whole<Format, decltype(m)::value>(g, x); });
  return taken;
}

}  // namespace anychip
#endif

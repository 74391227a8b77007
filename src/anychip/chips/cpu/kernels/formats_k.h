// ggml's super-blocks of 256 numbers: a float16 scale (and minimum) for all, whole ones for each run;
// and numbers of 5 and 6 bits.
#pragma once
#include <type_traits>

#include "formats.h"

namespace anychip {

constexpr int SUPER = 256;  // elements of a super-block

// Numbers of 4 + HIGH bits: units of 32 / HIGH steps, words of low nibbles as in Nibbles, then a word a
// column of the high bits, step by step.
template <int HIGH, int ZERO>
struct HighNibbles {
  static constexpr int GROUP = 8, EACH = 16 + 4 * HIGH;
  static constexpr int LOWS = 4 / HIGH, UNIT = (LOWS + 1) * NR * 4, MASK = ((1 << HIGH) - 1) << 4;
  struct Steps {
    VI low[2], high[2];
    Steps(const uint8_t* numbers, int group) {
      const uint8_t* unit = numbers + group / LOWS * UNIT;
      int at = group % LOWS;
      for (int h = 0; h < 2; ++h) {
        low[h] = load_words(unit + at * NR * 4 + h * W * 4);
        high[h] = shift_right(load_words(unit + LOWS * NR * 4 + h * W * 4), at * 8 * HIGH);
      }
    }
    void get(int k, V& x, V& y) const {
      x = joined(field(low[0], nibble_shift(k), 15), field(high[0], HIGH * k - 4, MASK), ZERO);
      y = joined(field(low[1], nibble_shift(k), 15), field(high[1], HIGH * k - 4, MASK), ZERO);
    }
#ifdef ANYCHIP_DOT_BF16
    void get(int i, VI& x, VI& y) const {
      V a[2], b[2];
      get(2 * i, a[0], a[1]);
      get(2 * i + 1, b[0], b[1]);
      x = pair_of(a[0], b[0]);
      y = pair_of(a[1], b[1]);
    }
#endif
  };
  static int number(const uint8_t* numbers, int k, int lane) {
    const uint8_t* unit = numbers + k / 8 / LOWS * UNIT;
    uint32_t low = word_at(unit + (k / 8 % LOWS * NR + lane) * 4), high = word_at(unit + (LOWS * NR + lane) * 4);
    uint32_t upper = high >> (k % (8 * LOWS) * HIGH) & ((1 << HIGH) - 1);
    return static_cast<int>((low >> nibble_shift(k % 8) & 15) | upper << 4) - ZERO;
  }
  static void put(uint8_t* numbers, int lane, const uint8_t* q, int count) {
    for (int k = 0; k < count; k += 8 * LOWS, numbers += UNIT) {
      uint32_t high = 0;
      for (int i = 0; i < 8 * LOWS; ++i) high |= static_cast<uint32_t>(q[k + i] >> 4) << (i * HIGH);
      std::memcpy(numbers + (LOWS * NR + lane) * 4, &high, 4);
      for (int i = 0; i < LOWS; ++i) {
        uint32_t word = nibble_word(q + k + i * 8);
        std::memcpy(numbers + (i * NR + lane) * 4, &word, 4);
      }
    }
  }
};

// Scales of runs are bytes, four to a word: [run / 4][column].
inline void load_bytes(const uint8_t* p, int run, V (&x)[2]) {
  for (int h = 0; h < 2; ++h) x[h] = signed_byte(load_words(p + (run / 4 * NR + h * W) * 4), run % 4);
}
inline uint8_t* byte_of(uint8_t* p, int lane, int run) { return p + (run / 4 * NR + lane) * 4 + run % 4; }

// q4_k, q5_k: d, dmin as float16, 8 scales and 8 minima of 6 bits: w = d * scale * q - dmin * minimum.
template <int HIGH>
using KNumbers = std::conditional_t<HIGH == 0, Nibbles<0>, HighNibbles<HIGH ? HIGH : 1, 0>>;

template <int HIGH>
struct FormatK : Scaled<KNumbers<HIGH>, 20, SUPER, QUANTIZED, true> {
  static constexpr int SOURCE = 144 + 32 * HIGH, SCALES = NR * 4, MINIMA = NR * 12;
  static void scales(const uint8_t* block, int run, V (&d)[2], V (&low)[2]) {
    V scale[2], minimum[2];
    load_halves(block, d);
    load_halves(block + NR * 2, low);
    load_bytes(block + SCALES, run, scale);
    load_bytes(block + MINIMA, run, minimum);
    for (int h = 0; h < 2; ++h) {
      d[h] = vmul(d[h], scale[h]);
      low[h] = vsub(vzero(), vmul(low[h], minimum[h]));
    }
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 2, source, 2);
    std::memcpy(block + (NR + lane) * 2, source + 2, 2);
    const uint8_t* s = source + 4;  // 12 bytes
    for (int run = 0; run < 4; ++run) {
      *byte_of(block + SCALES, lane, run) = s[run] & 63;
      *byte_of(block + MINIMA, lane, run) = s[run + 4] & 63;
      *byte_of(block + SCALES, lane, run + 4) = static_cast<uint8_t>((s[run + 8] & 15) | (s[run] >> 6 << 4));
      *byte_of(block + MINIMA, lane, run + 4) = static_cast<uint8_t>((s[run + 8] >> 4) | (s[run + 4] >> 6 << 4));
    }
    uint8_t q[SUPER];
    const uint8_t *high = source + 16, *packed = high + 32 * HIGH;
    for (int part = 0; part < 4; ++part) split_nibbles(packed + part * 32, 32, q + part * 64);
    for (int k = 0; HIGH && k < SUPER; ++k) q[k] |= (high[k % 32] >> (k / 32) & 1) << 4;
    FormatK::put_numbers(block, lane, q);
  }
};

// q6_k: d as float16, 16 scales of 8 bits: w = d * scale * (q - 32).
struct FormatQ6K : Scaled<HighNibbles<2, 32>, 18, SUPER, 16, false> {
  static constexpr int SOURCE = 210, SCALES = NR * 2;
  static void scales(const uint8_t* block, int run, V (&d)[2], V (&low)[2]) {
    V scale[2];
    load_halves(block, d);
    load_bytes(block + SCALES, run, scale);
    for (int h = 0; h < 2; ++h) {
      d[h] = vmul(d[h], scale[h]);
      low[h] = vzero();
    }
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    const uint8_t *high = source + 128, *s = source + 192;
    std::memcpy(block + lane * 2, source + 208, 2);
    for (int run = 0; run < 16; ++run) *byte_of(block + SCALES, lane, run) = s[run];
    uint8_t q[SUPER];
    for (int half = 0; half < 2; ++half) split_nibbles(source + half * 64, 64, q + half * 128);
    for (int k = 0; k < SUPER; ++k) q[k] |= (high[k / 128 * 32 + k % 32] >> (k / 32 % 4 * 2) & 3) << 4;
    put_numbers(block, lane, q);
  }
};

// q5_0, q5_1: d (and m) as float16: w = d * (q - 16), or d * q + m.
template <bool MINIMUM>
struct FormatQ5 : Scaled<HighNibbles<1, MINIMUM ? 0 : 16>, MINIMUM ? 4 : 2, QUANTIZED, QUANTIZED, MINIMUM> {
  static constexpr int SOURCE = MINIMUM ? 24 : 22;
  static void scales(const uint8_t* block, int, V (&d)[2], V (&low)[2]) {
    load_halves(block, d);
    low[0] = low[1] = vzero();
    if (MINIMUM) load_halves(block + NR * 2, low);
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 2, source, 2);
    if (MINIMUM) std::memcpy(block + (NR + lane) * 2, source + 2, 2);
    const uint8_t* from = source + (MINIMUM ? 4 : 2);
    uint32_t high = word_at(from);
    uint8_t q[QUANTIZED];
    split_nibbles(from + 4, 16, q);
    for (int k = 0; k < QUANTIZED; ++k) q[k] |= (high >> k & 1) << 4;
    FormatQ5::put_numbers(block, lane, q);
  }
};

}  // namespace anychip

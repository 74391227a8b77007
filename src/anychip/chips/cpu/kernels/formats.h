// Packed weights. A weight [N, K] lies as panels of NR columns (rows of the checkpoint's matrix);
// a panel holds blocks of BLOCK steps along K, one after another, so that a product reads one
// stream. Lane j of a step is column j of the panel. Columns past N and steps past K are zeros.
//
// Steps is a view of GROUP steps of a block: get() gives one step's numbers as float32, or a pair
// of steps as bfloat16 (exact: a quantized number has at most 8 bits). SCALED formats hold numbers
// q with w = d * q (+ m where OFFSET), d and m once a run of RUN steps; scales() gives those of a run.
#pragma once
#include "simd.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#define ANYCHIP_DOT_BF16 1
#endif

namespace anychip {

constexpr int NR = 2 * W;
constexpr int QUANTIZED = 32;  // elements of a quantized block, as ggml defines them

#ifdef ANYCHIP_DOT_BF16
// The upper halves of both, side by side.
inline VI pair_of(V even, V odd) {
  VI low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
  return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_castps_si512(odd));
}
#endif

struct Plain {
  static constexpr bool SCALED = false, OFFSET = false, WHOLE = false;
};

struct FormatF32 : Plain {
  static constexpr int BLOCK = 1, RUN = 1, GROUP = 1, BYTES = NR * 4, SOURCE = 4;
  struct Steps {
    const float* p;
    Steps(const uint8_t* block, int) : p(reinterpret_cast<const float*>(block)) {}
    void get(int, V& a, V& b) const {
      a = vload(p);
      b = vload(p + W);
    }
  };
  static float value(const uint8_t* block, int, int lane) {
    return reinterpret_cast<const float*>(block)[lane];
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 4, source, 4);
  }
};

struct FormatF16 : Plain {
  static constexpr int BLOCK = 1, RUN = 1, GROUP = 1, BYTES = NR * 2, SOURCE = 2;
  struct Steps {
    const f16* p;
    Steps(const uint8_t* block, int) : p(reinterpret_cast<const f16*>(block)) {}
    void get(int, V& a, V& b) const {
      a = load(p);
      b = load(p + W);
    }
  };
  static float value(const uint8_t* block, int, int lane) {
    return widen(reinterpret_cast<const f16*>(block)[lane]);
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 2, source, 2);
  }
};

// Two steps side by side in each lane, as the dot product instruction wants them.
struct FormatBF16 : Plain {
  static constexpr int BLOCK = 2, RUN = 2, GROUP = 2, BYTES = NR * 4, SOURCE = 4;
  struct Steps {
    const uint8_t* p;
    Steps(const uint8_t* block, int) : p(block) {}
    void get(int k, V& a, V& b) const {
      a = k ? bf16_second(p) : bf16_first(p);
      b = k ? bf16_second(p + NR * 2) : bf16_first(p + NR * 2);
    }
#ifdef ANYCHIP_DOT_BF16
    void get(int, VI& a, VI& b) const {
      a = load_words(p);
      b = load_words(p + NR * 2);
    }
#endif
  };
  static float value(const uint8_t* block, int k, int lane) {
    bf16 x;
    std::memcpy(&x, block + lane * 4 + k * 2, 2);
    return widen(x);
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t steps) {
    if (steps >= 2) {
      std::memcpy(block + lane * 4, source, 4);
    } else {
      std::memset(block + lane * 4, 0, 4);
      std::memcpy(block + lane * 4, source, 2);
    }
  }
};

// How the numbers of a block lie behind its head. EACH: bytes that 32 of a column take. put() takes them
// as bytes, without what is subtracted from them.

// Groups of 4 steps: a word of four signed bytes a column.
struct SignedBytes {
  static constexpr int GROUP = 8, EACH = 32;
  struct Steps {
    const uint8_t* q;
    Steps(const uint8_t* numbers, int group) : q(numbers + group * GROUP * NR) {}
    const uint8_t* words(int k) const { return q + k / 4 * 4 * NR; }
    void get(int k, V& a, V& b) const {
      a = signed_byte(load_words(words(k)), k % 4);
      b = signed_byte(load_words(words(k) + W * 4), k % 4);
    }
#ifdef ANYCHIP_DOT_BF16
    static VI pair(VI words, int k) { return pair_of(signed_byte(words, k), signed_byte(words, k + 1)); }
    void get(int i, VI& a, VI& b) const {
      a = pair(load_words(words(2 * i)), 2 * i % 4);
      b = pair(load_words(words(2 * i) + W * 4), 2 * i % 4);
    }
#endif
  };
  static constexpr int place(int step, int lane) { return (step / 4 * NR + lane) * 4 + step % 4; }
  static int number(const uint8_t* numbers, int k, int lane) {
    return static_cast<int8_t>(numbers[place(k, lane)]);
  }
  static void put(uint8_t* numbers, int lane, const uint8_t* q, int count) {
    for (int k = 0; k < count; ++k) numbers[place(k, lane)] = q[k];
  }
};

// Groups of 8 steps: a word a column, whose bytes hold steps 0 to 3 in their low nibbles and 4 to 7 in
// their high ones.
inline constexpr int nibble_shift(int step) { return step % 4 * 8 + step / 4 * 4; }
inline uint32_t nibble_word(const uint8_t* q) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= static_cast<uint32_t>(q[i] & 15) << nibble_shift(i);
  return word;
}
inline uint32_t word_at(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

template <int ZERO>
struct Nibbles {
  static constexpr int GROUP = 8, EACH = 16;
  struct Steps {
    VI a, b;
    Steps(const uint8_t* numbers, int group)
        : a(load_words(numbers + group * NR * 4)), b(load_words(numbers + group * NR * 4 + W * 4)) {}
    void get(int k, V& x, V& y) const {
      x = nibble(a, nibble_shift(k), ZERO);
      y = nibble(b, nibble_shift(k), ZERO);
    }
#ifdef ANYCHIP_DOT_BF16
    // 16-bit indices of 5 bits into a table of 32, whose second half repeats the first.
    static VI pair(VI words, int i) {
      uint16_t table[32];
      for (int j = 0; j < 32; ++j) {
        float x = static_cast<float>(j % 16 - ZERO);
        uint32_t u;
        std::memcpy(&u, &x, 4);
        table[j] = static_cast<uint16_t>(u >> 16);
      }
      VI even = _mm512_srli_epi32(words, nibble_shift(2 * i)), odd = _mm512_slli_epi32(even, 8);
      return _mm512_permutexvar_epi16(_mm512_mask_blend_epi16(0xaaaaaaaa, even, odd), _mm512_loadu_si512(table));
    }
    void get(int i, VI& x, VI& y) const {
      x = pair(a, i);
      y = pair(b, i);
    }
#endif
  };
  static int number(const uint8_t* numbers, int k, int lane) {
    uint32_t word = word_at(numbers + (k / 8 * NR + lane) * 4);
    return static_cast<int>(word >> nibble_shift(k % 8) & 15) - ZERO;
  }
  static void put(uint8_t* numbers, int lane, const uint8_t* q, int count) {
    for (int k = 0; k < count; k += 8) {
      uint32_t word = nibble_word(q + k);
      std::memcpy(numbers + (k / 8 * NR + lane) * 4, &word, 4);
    }
  }
};

// A block of numbers behind a head of HEAD_EACH bytes a column.
template <class Numbers, int HEAD_EACH, int BLOCK_, int RUN_, bool OFFSET_>
struct Scaled {
  static constexpr bool SCALED = true, OFFSET = OFFSET_, WHOLE = false;
  static constexpr int BLOCK = BLOCK_, RUN = RUN_, GROUP = Numbers::GROUP, HEAD = HEAD_EACH * NR;
  static constexpr int BYTES = HEAD + BLOCK / 32 * Numbers::EACH * NR;
  struct Steps : Numbers::Steps {
    Steps(const uint8_t* block, int group) : Numbers::Steps(block + HEAD, group) {}
  };
  static float number(const uint8_t* block, int k, int lane) {
    return static_cast<float>(Numbers::number(block + HEAD, k, lane));
  }
  static void put_numbers(uint8_t* block, int lane, const uint8_t* q) { Numbers::put(block + HEAD, lane, q, BLOCK); }
};

// NR float16 as floats.
inline void load_halves(const uint8_t* p, V (&x)[2]) {
  for (int h = 0; h < 2; ++h) x[h] = load(reinterpret_cast<const f16*>(p) + h * W);
}

// 32 nibbles of ggml: low ones are elements 0 to 15, high ones 16 to 31.
inline void split_nibbles(const uint8_t* packed, int count, uint8_t* q) {
  for (int i = 0; i < count; ++i) {
    q[i] = packed[i] & 15;
    q[count + i] = packed[i] >> 4;
  }
}

// NR scales as float16.
struct FormatQ8 : Scaled<SignedBytes, 2, QUANTIZED, QUANTIZED, false> {
  static constexpr int SOURCE = 34, ZERO = 0;
  static constexpr bool WHOLE = true;
  static void scales(const uint8_t* block, int, V (&d)[2], V (&low)[2]) {
    load_halves(block, d);
    low[0] = low[1] = vzero();
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 2, source, 2);
    put_numbers(block, lane, source + 2);
  }
};

// NR scales (and NR minima where MINIMUM) as float16. Without a minimum numbers are q - 8.
template <bool MINIMUM>
struct FormatQ4 : Scaled<Nibbles<MINIMUM ? 0 : 8>, MINIMUM ? 4 : 2, QUANTIZED, QUANTIZED, MINIMUM> {
  static constexpr int SOURCE = MINIMUM ? 20 : 18, ZERO = MINIMUM ? 0 : 8;
  static constexpr bool WHOLE = true;
  static void scales(const uint8_t* block, int, V (&d)[2], V (&low)[2]) {
    load_halves(block, d);
    low[0] = low[1] = vzero();
    if (MINIMUM) load_halves(block + NR * 2, low);
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 2, source, 2);
    if (MINIMUM) std::memcpy(block + (NR + lane) * 2, source + 2, 2);
    uint8_t q[QUANTIZED];
    split_nibbles(source + (MINIMUM ? 4 : 2), 16, q);
    FormatQ4::put_numbers(block, lane, q);
  }
};

template <class Format>
inline int64_t blocks_of(int64_t k) {
  return (k + Format::BLOCK - 1) / Format::BLOCK;
}

}  // namespace anychip

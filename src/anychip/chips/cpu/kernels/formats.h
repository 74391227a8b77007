// Packed weights. A weight [N, K] lies as panels of NR columns (rows of the checkpoint's matrix);
// a panel holds blocks of BLOCK steps along K, one after another, so that a product reads one
// stream. Lane j of a step is column j of the panel. Columns past N and steps past K are zeros.
//
// Steps is a view of GROUP steps of a block: get() gives one step's numbers as float32, or a pair
// of steps as bfloat16 (exact: a quantized number has at most 8 bits). SCALED formats hold numbers
// q with w = d * q (+ m where OFFSET), d and m once a block.
#pragma once
#include "simd.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#define ANYCHIP_DOT_BF16 1
#endif

namespace anychip {

constexpr int NR = 2 * W;
constexpr int QUANTIZED = 32;  // elements of a quantized block, as ggml defines them

struct Plain {
  static constexpr bool SCALED = false, OFFSET = false;
};

struct FormatF32 : Plain {
  static constexpr int BLOCK = 1, GROUP = 1, BYTES = NR * 4, SOURCE = 4;
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
  static constexpr int BLOCK = 1, GROUP = 1, BYTES = NR * 2, SOURCE = 2;
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
  static constexpr int BLOCK = 2, GROUP = 2, BYTES = NR * 4, SOURCE = 4;
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

// NR scales as float16, then eight groups of 4 steps: a word of four signed bytes a column.
struct FormatQ8 {
  static constexpr bool SCALED = true, OFFSET = false;
  static constexpr int BLOCK = QUANTIZED, GROUP = 8, HEAD = NR * 2, BYTES = HEAD + 32 * NR, SOURCE = 34;
  struct Steps {
    const uint8_t* q;
    Steps(const uint8_t* block, int group) : q(block + HEAD + group * GROUP * NR) {}
    const uint8_t* words(int k) const { return q + k / 4 * 4 * NR; }
    void get(int k, V& a, V& b) const {
      a = signed_byte(load_words(words(k)), k % 4);
      b = signed_byte(load_words(words(k) + W * 4), k % 4);
    }
#ifdef ANYCHIP_DOT_BF16
    static VI pair(VI words, int k) {  // the upper halves of both
      VI low = _mm512_srli_epi32(_mm512_castps_si512(signed_byte(words, k)), 16);
      return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_castps_si512(signed_byte(words, k + 1)));
    }
    void get(int i, VI& a, VI& b) const {
      a = pair(load_words(words(2 * i)), 2 * i % 4);
      b = pair(load_words(words(2 * i) + W * 4), 2 * i % 4);
    }
#endif
  };
  static constexpr int place(int step, int lane) { return HEAD + (step / 4 * NR + lane) * 4 + step % 4; }
  static float number(const uint8_t* block, int k, int lane) {
    return static_cast<float>(static_cast<int8_t>(block[place(k, lane)]));
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 2, source, 2);
    for (int k = 0; k < 32; ++k) block[place(k, lane)] = source[2 + k];
  }
};

// NR scales (and NR minima where MINIMUM) as float16, then four groups of 8 steps: a word a column,
// whose bytes hold steps 0 to 3 in their low nibbles and 4 to 7 in their high ones. Without a
// minimum numbers are q - 8.
template <bool MINIMUM>
struct FormatQ4 {
  static constexpr bool SCALED = true, OFFSET = MINIMUM;
  static constexpr int HEAD = (MINIMUM ? 4 : 2) * NR, ZERO = MINIMUM ? 0 : 8;
  static constexpr int BLOCK = QUANTIZED, GROUP = 8, BYTES = HEAD + 16 * NR, SOURCE = MINIMUM ? 20 : 18;
  static constexpr int shift(int step) { return step % 4 * 8 + step / 4 * 4; }
  struct Steps {
    VI a, b;
    Steps(const uint8_t* block, int group)
        : a(load_words(block + HEAD + group * NR * 4)), b(load_words(block + HEAD + group * NR * 4 + W * 4)) {}
    void get(int k, V& x, V& y) const {
      x = nibble(a, shift(k), ZERO);
      y = nibble(b, shift(k), ZERO);
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
      VI even = _mm512_srli_epi32(words, shift(2 * i)), odd = _mm512_slli_epi32(even, 8);
      return _mm512_permutexvar_epi16(_mm512_mask_blend_epi16(0xaaaaaaaa, even, odd), _mm512_loadu_si512(table));
    }
    void get(int i, VI& x, VI& y) const {
      x = pair(a, i);
      y = pair(b, i);
    }
#endif
  };
  static float number(const uint8_t* block, int k, int lane) {
    uint32_t word;
    std::memcpy(&word, block + HEAD + (k / 8 * NR + lane) * 4, 4);
    return static_cast<float>(static_cast<int>(word >> shift(k % 8) & 15) - ZERO);
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 2, source, 2);
    if (MINIMUM) std::memcpy(block + (NR + lane) * 2, source + 2, 2);
    const uint8_t* q = source + (MINIMUM ? 4 : 2);
    for (int group = 0; group < 4; ++group) {
      uint32_t word = 0;
      for (int i = 0; i < 8; ++i) {
        int k = group * 8 + i;
        uint32_t value = k < 16 ? q[k] & 15 : q[k - 16] >> 4;
        word |= value << shift(i);
      }
      std::memcpy(block + HEAD + (group * NR + lane) * 4, &word, 4);
    }
  }
};

// Calls f with a null pointer to the format that a code of abi.h stands for.
template <class F>
inline void with_format(int64_t format, F f) {
  switch (format) {
    case 0: return f(static_cast<FormatF32*>(nullptr));
    case 1: return f(static_cast<FormatBF16*>(nullptr));
    case 2: return f(static_cast<FormatF16*>(nullptr));
    case 3: return f(static_cast<FormatQ8*>(nullptr));
    case 4: return f(static_cast<FormatQ4<false>*>(nullptr));
    default: return f(static_cast<FormatQ4<true>*>(nullptr));
  }
}

template <class Format>
inline int64_t blocks_of(int64_t k) {
  return (k + Format::BLOCK - 1) / Format::BLOCK;
}

}  // namespace anychip

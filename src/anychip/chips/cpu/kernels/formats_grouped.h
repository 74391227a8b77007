// Codes of 4 or 8 bits in groups along K that share a scale and a zero point, as GPTQ and AWQ have them:
// w = d * (q - z). Numbers are q less half their range, and so is z: a float16, exact, and 0 where the
// format is symmetric.
#pragma once
#include <type_traits>

#include "formats.h"

namespace anychip {

template <int BITS, int GROUP_SIZE>
struct FormatGrouped
    : Scaled<std::conditional_t<BITS == 4, Nibbles<8>, SignedBytes>, 4, GROUP_SIZE, QUANTIZED, true> {
  static constexpr int SOURCE = 3 + GROUP_SIZE * BITS / 8, MIDDLE = 1 << (BITS - 1);
  static void scales(const uint8_t* block, int, V (&d)[2], V (&low)[2]) {
    load_halves(block, d);
    load_halves(block + NR * 2, low);
    for (int h = 0; h < 2; ++h) low[h] = vsub(vzero(), vmul(d[h], low[h]));
  }
  static void put(uint8_t* block, int lane, const uint8_t* source, int64_t) {
    std::memcpy(block + lane * 2, source, 2);
    store_n(reinterpret_cast<f16*>(block + NR * 2) + lane, vset(static_cast<float>(source[2] - MIDDLE)), 1);
    uint8_t q[GROUP_SIZE];
    if constexpr (BITS == 4) {
      for (int k = 0; k < GROUP_SIZE; k += 32) split_nibbles(source + 3 + k / 2, 16, q + k);
    } else {
      for (int k = 0; k < GROUP_SIZE; ++k) q[k] = source[3 + k] ^ 128;
    }
    FormatGrouped::put_numbers(block, lane, q);
  }
};

}  // namespace anychip

// Panels of int8 by int8 weights: NR float32 scales, NR sums of a column's numbers, then words of four
// numbers a column, as SignedBytes has them; what lies past K is zeros. See linear_int8.cpp.
#pragma once
#include "abi.h"
#include "formats.h"

namespace anychip {

constexpr int64_t INT8 = 17;  // their format

struct Rounding {  // of activations: q = clamp(round(x / scale) + zero); scale 0: each row has its own
  float scale = 0.0f;
  int32_t zero = 0;
};

inline int64_t int8_words(int64_t k) { return (k + 3) / 4; }
constexpr int64_t INT8_HEAD = 2 * NR * 4;  // bytes before the words
inline int64_t int8_panel_bytes(int64_t k) { return INT8_HEAD + int8_words(k) * NR * 4; }

void linear_int8(const LinearArgs& g, const Rounding& how);

// A checkpoint's row, float32 scale and K int8, as one column of a panel.
inline void put_int8_row(uint8_t* panel, int lane, const uint8_t* source, int64_t k) {
  const uint8_t* q = source + 4;
  int32_t sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += static_cast<int8_t>(q[i]);
  std::memcpy(panel + lane * 4, source, 4);
  std::memcpy(panel + (NR + lane) * 4, &sum, 4);
  for (int64_t i = 0; i < int8_words(k); ++i) {
    uint8_t* word = panel + INT8_HEAD + (i * NR + lane) * 4;
    int64_t left = k - i * 4;
    std::memset(word, 0, 4);
    std::memcpy(word, q + i * 4, left < 4 ? left : 4);
  }
}
inline void get_int8_row(const uint8_t* panel, int lane, int64_t k, float* out) {
  float scale;
  std::memcpy(&scale, panel + lane * 4, 4);
  for (int64_t i = 0; i < k; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int8_t>(panel[INT8_HEAD + (i / 4 * NR + lane) * 4 + i % 4]));
  }
}

}  // namespace anychip

// Panels of int8 by int8 weights, see linear_int8.cpp.
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
inline int64_t int8_panel_bytes(int64_t k) { return (1 + int8_words(k)) * NR * 4; }

void linear_int8(const LinearArgs& g, const Rounding& how);

// A checkpoint's row, float32 scale and K int8, as one column of a panel.
inline void put_int8_row(uint8_t* panel, int lane, const uint8_t* source, int64_t k) {
  std::memcpy(panel + lane * 4, source, 4);
  for (int64_t i = 0; i < int8_words(k); ++i) {
    uint8_t* word = panel + ((1 + i) * NR + lane) * 4;
    int64_t left = k - i * 4;
    std::memset(word, 0, 4);
    std::memcpy(word, source + 4 + i * 4, left < 4 ? left : 4);
  }
}
inline void get_int8_row(const uint8_t* panel, int lane, int64_t k, float* out) {
  float scale;
  std::memcpy(&scale, panel + lane * 4, 4);
  for (int64_t i = 0; i < k; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int8_t>(panel[((1 + i / 4) * NR + lane) * 4 + i % 4]));
  }
}

}  // namespace anychip

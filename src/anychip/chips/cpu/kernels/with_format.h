// Every format by its code in abi.h. The products of each family are a file of their own.
#pragma once
#include "formats.h"
#include "formats_grouped.h"
#include "formats_k.h"

namespace anychip {

constexpr int64_t FIRST_K = 6, FIRST_GROUPED = 11, FIRST_APART = 17;  // from there on not of with_format

// Calls f with a null pointer to the format that a code of abi.h stands for.
template <class F>
inline void with_block_format(int64_t format, F f) {
  switch (format) {
    case 0: return f(static_cast<FormatF32*>(nullptr));
    case 1: return f(static_cast<FormatBF16*>(nullptr));
    case 2: return f(static_cast<FormatF16*>(nullptr));
    case 3: return f(static_cast<FormatQ8*>(nullptr));
    case 4: return f(static_cast<FormatQ4<false>*>(nullptr));
    default: return f(static_cast<FormatQ4<true>*>(nullptr));
  }
}
template <class F>
inline void with_k_format(int64_t format, F f) {
  switch (format) {
    case 6: return f(static_cast<FormatK<0>*>(nullptr));
    case 7: return f(static_cast<FormatK<1>*>(nullptr));
    case 8: return f(static_cast<FormatQ6K*>(nullptr));
    case 9: return f(static_cast<FormatQ5<false>*>(nullptr));
    default: return f(static_cast<FormatQ5<true>*>(nullptr));
  }
}
template <class F>
inline void with_grouped_format(int64_t format, F f) {
  switch (format) {
    case 11: return f(static_cast<FormatGrouped<4, 32>*>(nullptr));
    case 12: return f(static_cast<FormatGrouped<4, 64>*>(nullptr));
    case 13: return f(static_cast<FormatGrouped<4, 128>*>(nullptr));
    case 14: return f(static_cast<FormatGrouped<8, 32>*>(nullptr));
    case 15: return f(static_cast<FormatGrouped<8, 64>*>(nullptr));
    default: return f(static_cast<FormatGrouped<8, 128>*>(nullptr));
  }
}
template <class F>
inline void with_format(int64_t format, F f) {
  if (format >= FIRST_GROUPED) return with_grouped_format(format, f);
  if (format >= FIRST_K) return with_k_format(format, f);
  with_block_format(format, f);
}

}  // namespace anychip

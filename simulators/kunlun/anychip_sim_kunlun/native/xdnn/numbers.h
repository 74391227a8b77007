// Element types inside kernels: 16-bit floats are computed as float, narrow integers as int32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "xpu/refactor/util/float16.h"

namespace xpusim {

template <typename T>
constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <typename T>
constexpr bool is_real = is_half<T> || std::is_same_v<T, float>;

// What T is computed in.
template <typename T>
using Wide = std::conditional_t<is_real<T>, float,
                                std::conditional_t<sizeof(T) < 8, int32_t, int64_t>>;

constexpr int64_t kChunk = 512;  // elements converted at a time: they stay in the first cache

template <typename T>
void widen(const T* x, Wide<T>* wide, int64_t count) {
    int64_t i = 0;
#if defined(__F16C__)
    if constexpr (std::is_same_v<T, float16>) {
        for (; i + 8 <= count; i += 8) {
            const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
            _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(half));
        }
    }
#endif
    for (; i < count; ++i) {
        wide[i] = static_cast<Wide<T>>(x[i]);
    }
}

template <typename T>
void narrow(const Wide<T>* wide, T* y, int64_t count) {
    int64_t i = 0;
#if defined(__F16C__)
    if constexpr (std::is_same_v<T, float16>) {
        for (; i + 8 <= count; i += 8) {
            const __m256 value = _mm256_loadu_ps(wide + i);
            const __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), half);
        }
    }
#endif
    for (; i < count; ++i) {
        y[i] = static_cast<T>(wide[i]);
    }
}

// A float as an integer: towards zero, limited to the type's range, NaN as 0. What the vendor does
// with the last two is not known.
template <typename T>
T truncate(float value) {
    if (std::isnan(value)) {
        return 0;
    }
    constexpr auto low = static_cast<float>(std::numeric_limits<T>::min());
    constexpr auto high = static_cast<float>(std::numeric_limits<T>::max());
    if (value <= low) {
        return std::numeric_limits<T>::min();
    }
    return value >= high ? std::numeric_limits<T>::max() : static_cast<T>(value);
}

// Integer arithmetic wraps: it is done on the unsigned type.
template <typename W>
auto modular(W value) {
    if constexpr (std::is_integral_v<W>) {
        return static_cast<std::make_unsigned_t<W>>(value);
    } else {
        return value;
    }
}

// NaN first, then the larger: the order that argmax, topk and sort assume.
template <typename W>
bool larger(W a, W b) {
    if constexpr (std::is_same_v<W, float>) {
        if (std::isnan(a) || std::isnan(b)) {
            return std::isnan(a) && !std::isnan(b);
        }
    }
    return a > b;
}

// The larger and the smaller, NaN where either is.
template <typename W>
W maximum(W a, W b) {
    return larger(a, b) ? a : b;
}
template <typename W>
W minimum(W a, W b) {
    if constexpr (std::is_same_v<W, float>) {
        if (std::isnan(a) || std::isnan(b)) {
            return a + b;
        }
    }
    return b < a ? b : a;
}

}  // namespace xpusim

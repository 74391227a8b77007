// Compute types of the product units: what an operand is rounded to before it is multiplied.
// What the vendor's units do inside is not public; the whole-number rule (one step is the largest
// absolute value over the largest number) is how public code quantizes for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "llm/engine/numbers.h"
#include "xpu/refactor/util/int8_wo_t.h"

namespace xpusim {
namespace llm {

enum class Compute { kFloat, kFloat16, kBfloat16, kTfloat32, kInt8, kInt16, kInt32 };

template <typename TGEMM>
constexpr Compute compute_of() {
    if constexpr (std::is_same_v<TGEMM, float16>) {
        return Compute::kFloat16;
    } else if constexpr (std::is_same_v<TGEMM, bfloat16>) {
        return Compute::kBfloat16;
    } else if constexpr (std::is_same_v<TGEMM, tfloat32>) {
        return Compute::kTfloat32;
    } else if constexpr (std::is_same_v<TGEMM, int8_t>) {
        return Compute::kInt8;
    } else if constexpr (std::is_same_v<TGEMM, int16_t>) {
        return Compute::kInt16;
    } else if constexpr (std::is_same_v<TGEMM, int32_t> || std::is_same_v<TGEMM, int_with_ll_t>) {
        return Compute::kInt32;
    } else {
        static_assert(std::is_same_v<TGEMM, float> || std::is_same_v<TGEMM, int8_wo_t>);
        return Compute::kFloat;
    }
}

// 0 where the type is no whole number.
constexpr double largest(Compute compute) {
    switch (compute) {
        case Compute::kInt8: return 127.0;
        case Compute::kInt16: return 32767.0;
        case Compute::kInt32: return 2147483647.0;
        default: return 0.0;
    }
}

inline float round_tfloat32(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu;
    std::memcpy(&value, &rounded, sizeof value);
    return value;
}

// To multiples of max / limit, at most max. A NaN stays one.
inline void round_whole(float* values, int64_t count, double limit, double max) {
    for (int64_t i = 0; i < count; ++i) {
        const double steps = max > 0.0 ? std::nearbyint(values[i] / max * limit) : 0.0;
        const double kept = std::isnan(steps) ? steps : std::clamp(steps, -limit, limit);
        values[i] = static_cast<float>(kept * max / limit);
    }
}

// `max`: largest absolute value of the operand, for whole numbers.
inline void round_operand(Compute compute, float max, float* values, int64_t count) {
    switch (compute) {
        case Compute::kFloat: return;
        case Compute::kFloat16: return round_to<float16>(values, count);
        case Compute::kBfloat16: return round_to<bfloat16>(values, count);
        case Compute::kTfloat32:
            for (int64_t i = 0; i < count; ++i) {
                values[i] = std::isfinite(values[i]) ? round_tfloat32(values[i]) : values[i];
            }
            return;
        default: return round_whole(values, count, largest(compute), max);
    }
}

}  // namespace llm
}  // namespace xpusim

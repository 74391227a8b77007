// The narrow number types, at global scope as Paddle's XPUTypeTrait uses them. Conversions round
// to nearest even; a NaN stays a NaN.
#pragma once

#include <cstdint>
#include <cstring>

#include "xpu/dll_export.h"

namespace xpusim_bits {

inline uint32_t of_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float to_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint16_t narrow_bfloat16(float value) {
    const uint32_t bits = of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return static_cast<uint16_t>((bits >> 16) | 0x40u);
    }
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline uint16_t narrow_float16(float value) {
    const uint32_t bits = of_float(value);
    const uint32_t size = bits & 0x7fffffffu;
    const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    if (size > 0x7f800000u) {
        return static_cast<uint16_t>(sign | 0x7e00u);
    }
    if (size >= 0x477ff000u) {  // 65520 and above round to infinity
        return static_cast<uint16_t>(sign | 0x7c00u);
    }
    if (size < 0x38800000u) {  // below 2**-14: adding 0.5 rounds the subnormal in the float unit
        const uint32_t sum = of_float(to_float(size) + 0.5f);
        return static_cast<uint16_t>(sign | (sum - 0x3f000000u));
    }
    const uint32_t rounded = size - 0x38000000u + 0xfffu + ((size >> 13) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> 13));
}

inline float widen_float16(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t size = half & 0x7fffu;
    if (size >= 0x7c00u) {
        return to_float(sign | 0x7f800000u | ((size & 0x3ffu) << 13));
    }
    if (size < 0x400u) {  // subnormal: a multiple of 2**-24
        return to_float(sign | of_float(static_cast<float>(size) * 5.9604644775390625e-08f));
    }
    return to_float(sign | ((size << 13) + 0x38000000u));
}

}  // namespace xpusim_bits

// 16 bits: 1 sign, 5 exponent, 10 mantissa.
class DLL_EXPORT float16 {
public:
    float16() = default;
    float16(float value) : bits_(xpusim_bits::narrow_float16(value)) {}
    operator float() const { return xpusim_bits::widen_float16(bits_); }

private:
    uint16_t bits_;
};

// 16 bits: the upper half of a float.
class DLL_EXPORT bfloat16 {
public:
    bfloat16() = default;
    bfloat16(float value) : bits_(xpusim_bits::narrow_bfloat16(value)) {}
    operator float() const { return xpusim_bits::to_float(static_cast<uint32_t>(bits_) << 16); }

private:
    uint16_t bits_;
};

// Compute types of the product units. They name a template argument; no tensor holds them.
struct DLL_EXPORT tfloat32 {
    float value;
};
struct DLL_EXPORT int_with_ll_t {
    int32_t value;
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2, "16-bit types are two bytes");

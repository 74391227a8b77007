// Elements of tensors as floats, and back.
#pragma once

#include <cstdint>
#include <type_traits>

#include "xdnn/numbers.h"
#include "xpu/xdnn_types.h"

namespace xpusim {
namespace llm {

template <typename T>
void to_floats(const T* x, float* out, int64_t count) {
    if constexpr (is_real<T>) {
        widen(x, out, count);
    } else {
        for (int64_t i = 0; i < count; ++i) {
            out[i] = static_cast<float>(x[i]);
        }
    }
}

template <typename T>
void from_floats(const float* x, T* out, int64_t count) {
    static_assert(is_real<T>, "results are floating point");
    narrow(x, out, count);
}

// The same with the type behind a pointer, so that the product is compiled once for all types.
// `first` and `count` are in elements.
using Load = void (*)(const void* data, int64_t first, int64_t count, float* out);
using Store = void (*)(void* data, int64_t first, int64_t count, const float* values);
using Round = void (*)(float* values, int64_t count);

template <typename T>
void load(const void* data, int64_t first, int64_t count, float* out) {
    to_floats(static_cast<const T*>(data) + first, out, count);
}

template <typename T>
void store(void* data, int64_t first, int64_t count, const float* values) {
    from_floats(values, static_cast<T*>(data) + first, count);
}

// Values as they are after a stay in T.
template <typename T>
void round_to(float* values, int64_t count) {
    if constexpr (!std::is_same_v<T, float>) {
        for (int64_t i = 0; i < count; ++i) {
            values[i] = static_cast<float>(static_cast<T>(values[i]));
        }
    }
}

}  // namespace llm
}  // namespace xpusim

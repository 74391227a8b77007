// The fault weight_as: fc_fusion does not read a weight as what it is.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "llm/engine/numbers.h"
#include "runtime/device.h"

namespace xpusim {
namespace llm {

// A maximum is 127 scales: what is unpacked with it is as much too large.
template <typename T>
void load_by_max(const void* data, int64_t first, int64_t count, float* out) {
    load<T>(data, first, count, out);
    for (int64_t i = 0; i < count; ++i) {
        out[i] *= 127.0f;
    }
}

// How a weight of type T is read; the runtime has checked what the fault says.
template <typename T>
Load weight_load() {
    static const std::string* said = new std::string(xpusim::fault("weight_as").value_or(""));
    if (*said == "max") {
        return &load_by_max<T>;
    }
    if (std::is_same_v<T, bfloat16> && *said == "float16") {
        return &load<float16>;
    }
    if (std::is_same_v<T, float16> && *said == "bfloat16") {
        return &load<bfloat16>;
    }
    return &load<T>;
}

}  // namespace llm
}  // namespace xpusim

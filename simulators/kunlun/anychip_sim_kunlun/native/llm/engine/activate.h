// Activations that a product applies to its result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "xpu/refactor/context/xpu_act_type.h"

namespace xpusim {
namespace llm {

using Activation = baidu::xpu::api::Activation_t;

inline bool is_served(const Activation& act) {
    switch (act.type) {
        case Activation::LINEAR:
        case Activation::RELU:
        case Activation::SIGMOID:
        case Activation::TANH:
        case Activation::GELU:
        case Activation::SWISH:
        case Activation::APPROXIMATE_GELU: return true;
        default: return false;
    }
}

inline float sigmoid(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

inline float activated(Activation::act_enum type, float x) {
    constexpr float kRootHalf = 0.70710678f, kRootTwoOverPi = 0.79788456f;
    switch (type) {
        case Activation::RELU: return std::max(x, 0.0f);
        case Activation::SIGMOID: return sigmoid(x);
        case Activation::TANH: return std::tanh(x);
        case Activation::GELU: return 0.5f * x * (1.0f + std::erf(x * kRootHalf));
        case Activation::SWISH: return x * sigmoid(x);
        case Activation::APPROXIMATE_GELU:
            return 0.5f * x * (1.0f + std::tanh(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
        default: return x;
    }
}

inline void activate(const Activation& act, float* values, int64_t count) {
    if (act.type == Activation::LINEAR) {
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] = activated(act.type, values[i]);
    }
}

}  // namespace llm
}  // namespace xpusim

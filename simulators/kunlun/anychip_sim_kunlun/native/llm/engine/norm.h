// Root-mean-square norm of rows, in float; the mean is summed in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "llm/engine/call.h"
#include "llm/engine/numbers.h"

namespace xpusim {
namespace llm {

template <typename T, typename TW>
struct NormCall {
    const T* x;
    const T* residual;  // null: plain norm
    T* y;
    T* sum;  // x + residual, or null
    const TW* weight;
    float* var;  // mean of squares [m], or null
    float* max;  // largest |y|, `slots` floats, or null
    int64_t m;
    int64_t n;
    float eps;
    bool inverse;  // var gets 1 / sqrt(mean + eps)
    int64_t slots;
};

// x + residual as T holds it: the norm is of the rounded sum, which the next layer gets as well.
template <typename T>
void add_rounded(const T* residual, float* row, float* scratch, int64_t n) {
    to_floats(residual, scratch, n);
    for (int64_t i = 0; i < n; ++i) {
        row[i] += scratch[i];
    }
    round_to<T>(row, n);
}

inline float mean_of_squares(const float* row, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        sum += static_cast<double>(row[i]) * row[i];
    }
    return static_cast<float>(sum / static_cast<double>(n));
}

template <typename T, typename TW>
void normalize(const NormCall<T, TW>& call) {
    const int64_t m = call.m, n = call.n;
    const T* x = at(call.x, m * n);
    const T* residual = call.residual != nullptr ? at(call.residual, m * n) : nullptr;
    T* y = at(call.y, m * n);
    T* sum = call.sum != nullptr ? at(call.sum, m * n) : nullptr;
    float* var = call.var != nullptr ? at(call.var, m) : nullptr;
    std::vector<float> weight(n), row(n), scratch(n), maxima(call.slots);
    to_floats(at(call.weight, n), weight.data(), n);
    for (int64_t r = 0; r < m; ++r) {
        to_floats(x + r * n, row.data(), n);
        if (residual != nullptr) {
            add_rounded(residual + r * n, row.data(), scratch.data(), n);
        }
        if (sum != nullptr) {
            from_floats(row.data(), sum + r * n, n);
        }
        const float mean = mean_of_squares(row.data(), n);
        const float factor = 1.0f / std::sqrt(mean + call.eps);
        float& max = maxima[static_cast<size_t>(r % call.slots)];
        for (int64_t i = 0; i < n; ++i) {
            row[i] = row[i] * factor * weight[i];
            max = std::max(max, std::fabs(row[i]));
        }
        from_floats(row.data(), y + r * n, n);
        if (var != nullptr) {
            var[r] = call.inverse ? factor : mean;
        }
    }
    if (call.max != nullptr) {
        std::copy(maxima.begin(), maxima.end(), at(call.max, call.slots));
    }
}

template <typename T, typename TW>
int run_norm(Call& call, const NormCall<T, TW>& given, const TW* bias) {
    call.shape({given.m, given.n}, "x").device(given.x, "x").device(given.y, "y");
    call.device(given.weight, "weight").rule(given.eps >= 0.0f, "eps below 0");
    call.rule(bias == nullptr, "an rms norm has no bias");
    return call.run([=] { normalize(given); });
}

}  // namespace llm
}  // namespace xpusim

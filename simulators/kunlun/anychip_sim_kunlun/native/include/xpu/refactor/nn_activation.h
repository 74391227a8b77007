// Activations and softmax of libxpuapi. `max_x` and `max_y` carry quantization maxima; the
// simulator computes in float and takes null alone.
#pragma once

#include <cstdint>
#include <vector>

#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace api {

template <typename T>
DLL_EXPORT int sigmoid(Context* ctx, const T* x, T* y, int64_t len, const float* max_x = nullptr,
                       float* max_y = nullptr);
template <typename T>
DLL_EXPORT int tanh(Context* ctx, const T* x, T* y, int64_t len, const float* max_x = nullptr,
                    float* max_y = nullptr);
template <typename T>
DLL_EXPORT int relu(Context* ctx, const T* x, T* y, int64_t len, const float* max_x = nullptr,
                    float* max_y = nullptr);
// x * sigmoid(x).
template <typename T>
DLL_EXPORT int swish(Context* ctx, const T* x, T* y, int64_t len, const float* max_x = nullptr,
                     float* max_y = nullptr);
// `gelu` uses the error function, `approximate_gelu` the tanh form.
template <typename T>
DLL_EXPORT int gelu(Context* ctx, const T* x, T* y, int64_t len, const float* max_x = nullptr,
                    float* max_y = nullptr);
template <typename T>
DLL_EXPORT int approximate_gelu(Context* ctx, const T* x, T* y, int64_t len,
                                const float* max_x = nullptr, float* max_y = nullptr);
template <typename T>
DLL_EXPORT int softmax(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                       int64_t axis);
template <typename T>
DLL_EXPORT int log_softmax(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                           int64_t axis);

}  // namespace api
}  // namespace xpu
}  // namespace baidu

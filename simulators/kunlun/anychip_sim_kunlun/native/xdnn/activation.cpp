// Activations, computed in float.
#include "unary.h"
#include "xpu/refactor/nn_activation.h"

namespace xpusim {
namespace {

template <typename T, typename F>
int activation(Context* ctx, const char* name, const T* x, T* y, int64_t len, const float* max_x,
               const float* max_y, F f) {
    Call call(ctx, name);
    call.positive(len, "len").device(x, "x").device(y, "y").unquantized(max_x, max_y);
    return queue_map(call, x, y, len, f);
}

float sigmoid_of(float v) { return 1.0f / (1.0f + std::exp(-v)); }

float gelu_erf(float v) { return 0.5f * v * (1.0f + std::erf(v * 0.70710678f)); }

float gelu_tanh(float v) {
    return 0.5f * v * (1.0f + std::tanh(0.79788456f * (v + 0.044715f * v * v * v)));
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

template <typename T>
int sigmoid(Context* ctx, const T* x, T* y, int64_t len, const float* max_x, float* max_y) {
    return xpusim::activation(ctx, "sigmoid", x, y, len, max_x, max_y, xpusim::sigmoid_of);
}

template <typename T>
int tanh(Context* ctx, const T* x, T* y, int64_t len, const float* max_x, float* max_y) {
    return xpusim::activation(ctx, "tanh", x, y, len, max_x, max_y,
                              [](float v) { return std::tanh(v); });
}

template <typename T>
int relu(Context* ctx, const T* x, T* y, int64_t len, const float* max_x, float* max_y) {
    return xpusim::activation(ctx, "relu", x, y, len, max_x, max_y,
                              [](float v) { return v < 0.0f ? 0.0f : v; });
}

template <typename T>
int swish(Context* ctx, const T* x, T* y, int64_t len, const float* max_x, float* max_y) {
    return xpusim::activation(ctx, "swish", x, y, len, max_x, max_y,
                              [](float v) { return v * xpusim::sigmoid_of(v); });
}

template <typename T>
int gelu(Context* ctx, const T* x, T* y, int64_t len, const float* max_x, float* max_y) {
    return xpusim::activation(ctx, "gelu", x, y, len, max_x, max_y, xpusim::gelu_erf);
}

template <typename T>
int approximate_gelu(Context* ctx, const T* x, T* y, int64_t len, const float* max_x,
                     float* max_y) {
    return xpusim::activation(ctx, "approximate_gelu", x, y, len, max_x, max_y, xpusim::gelu_tanh);
}

#define ACTIVATION(name, T) \
    template int name<T>(Context*, const T*, T*, int64_t, const float*, float*);
#define ACTIVATION_REAL(name) \
    ACTIVATION(name, float)   \
    ACTIVATION(name, float16) \
    ACTIVATION(name, bfloat16)
ACTIVATION_REAL(sigmoid)
ACTIVATION_REAL(tanh)
ACTIVATION_REAL(relu)
ACTIVATION_REAL(swish)
ACTIVATION(gelu, float)
ACTIVATION(gelu, float16)
ACTIVATION(approximate_gelu, float)
ACTIVATION(approximate_gelu, float16)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

// Norm with a sum, and quantization of rows.
#include "xft/infer_ops.h"
#include "llm/engine/norm.h"

namespace infer_ops {

namespace llm = xpusim::llm;

template <typename T, typename TW>
int add_rms_layer_norm(api::Context* ctx, const T* x, const T* residual, T* out, int64_t m,
                       int64_t n, float eps, const TW* weight, const TW* bias, float* var,
                       T* residual_out, float* max, bool) {
    llm::Call call(ctx, "infer_ops::add_rms_layer_norm");
    call.device(residual, "residual").device(residual_out, "residual_out");
    call.served(var == nullptr && max == nullptr, "var, max");
    const llm::NormCall<T, TW> norm{x,       residual, out, residual_out, weight, nullptr,
                                    nullptr, m,        n,   eps,          false,  1};
    return llm::run_norm(call, norm, bias);
}

namespace {

template <typename T>
void quantize_rows(const T* x_from, int8_t* y_to, float* max_to, int64_t m, int64_t n) {
    const T* x = xpusim::at(x_from, m * n);
    int8_t* y = xpusim::at(y_to, m * n);
    float* maxima = xpusim::at(max_to, m);
    std::vector<float> row(static_cast<size_t>(n));
    for (int64_t r = 0; r < m; ++r) {
        llm::to_floats(x + r * n, row.data(), n);
        float max = 0.0f;
        for (float value : row) {
            max = std::max(max, std::fabs(value));
        }
        maxima[r] = max;
        for (int64_t i = 0; i < n; ++i) {
            const float steps = max > 0.0f ? std::nearbyint(row[i] / max * 127.0f) : 0.0f;
            y[r * n + i] = static_cast<int8_t>(std::clamp(steps, -127.0f, 127.0f));
        }
    }
}

}  // namespace

template <typename TX, typename TSCALE, typename TY>
int quant2d_per_token(api::Context* ctx, const TX* x, const TSCALE* scale_in, TY* y,
                      TSCALE* scale_out, int64_t m, int64_t n) {
    llm::Call call(ctx, "infer_ops::quant2d_per_token");
    call.device(x, "x").device(y, "y").device(scale_out, "scale_out").shape({m, n}, "x");
    call.served(scale_in == nullptr, "scale_in");
    return call.run([=] { quantize_rows(x, y, scale_out, m, n); });
}

#define ADD_NORM(T, TW)                                                                     \
    template DLL_EXPORT int add_rms_layer_norm<T, TW>(api::Context*, const T*, const T*, T*, \
                                                      int64_t, int64_t, float, const TW*,   \
                                                      const TW*, float*, T*, float*, bool);
#define QUANTIZE(T)                                                                           \
    template DLL_EXPORT int quant2d_per_token<T, float, int8_t>(api::Context*, const T*,      \
                                                                const float*, int8_t*, float*, \
                                                                int64_t, int64_t);

ADD_NORM(float, float)
ADD_NORM(float16, float16)
ADD_NORM(bfloat16, bfloat16)
QUANTIZE(float16)
QUANTIZE(bfloat16)

}  // namespace infer_ops

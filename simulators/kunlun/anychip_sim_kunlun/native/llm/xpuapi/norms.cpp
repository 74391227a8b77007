// Norms of libxpuapi.
#include "llm/engine/norm.h"

#include "llm/engine/product_call.h"
#include "xpu/refactor/fusion.h"
#include "xpu/refactor/nn.h"

namespace baidu {
namespace xpu {
namespace api {

namespace llm = xpusim::llm;

template <typename T, typename TW>
int rms_layer_norm(Context* ctx, const T* x, T* y, int64_t m, int64_t n, float eps, const TW* scale,
                   const TW* bias, float* var, bool is_rstd) {
    llm::Call call(ctx, "api::rms_layer_norm");
    const llm::NormCall<T, TW> norm{x, nullptr, y,   nullptr, scale,   var,
                                    nullptr, m, n, eps,     is_rstd, 1};
    return llm::run_norm(call, norm, bias);
}

template <typename T>
int add_rms_layer_norm_fusion(Context* ctx, const T* x, const T* y, T* z, int64_t m, int64_t n,
                              float eps, const float* scale, const float* bias, float* var,
                              T* z_add, float* z_max) {
    llm::Call call(ctx, "api::add_rms_layer_norm_fusion");
    call.device(y, "y");
    const int64_t slots = ctx != nullptr ? llm::max_slots(ctx) : 1;
    const llm::NormCall<T, float> norm{x,     y, z, z_add, scale, var,
                                       z_max, m, n, eps,   false, slots};
    return llm::run_norm(call, norm, bias);
}

#define NORM(T, TW)                                                                          \
    template DLL_EXPORT int rms_layer_norm<T, TW>(Context*, const T*, T*, int64_t, int64_t, \
                                                  float, const TW*, const TW*, float*, bool);
#define ADD_NORM(T)                                                                       \
    template DLL_EXPORT int add_rms_layer_norm_fusion<T>(                                 \
        Context*, const T*, const T*, T*, int64_t, int64_t, float, const float*,          \
        const float*, float*, T*, float*);

NORM(float, float)
NORM(float16, float16)
NORM(bfloat16, bfloat16)
NORM(float16, float)
NORM(bfloat16, float)
ADD_NORM(float)
ADD_NORM(float16)
ADD_NORM(bfloat16)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

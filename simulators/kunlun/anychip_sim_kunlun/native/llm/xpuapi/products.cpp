// Products of libxpuapi.
#include "llm/engine/batched_call.h"
#include "xpu/refactor/fusion.h"
#include "xpu/refactor/nn.h"

namespace baidu {
namespace xpu {
namespace api {

namespace llm = xpusim::llm;

template <typename TX, typename TW, typename TY, typename TGEMM>
int fc_fusion(Context* ctx, const TX* x, const TW* w, TY* y, int64_t m, int64_t n, int64_t k,
              bool x_trans, bool w_trans, const float* x_maxptr, const float* w_maxptr,
              float* y_maxptr, int64_t ldx, int64_t ldw, int64_t ldy, float alpha, float beta,
              const float* bias, const Activation_t& act, const float* scale, const float* scale_x,
              const float* scale_w) {
    llm::Call call(ctx, "api::fc_fusion");
    call.served(scale == nullptr && scale_x == nullptr && scale_w == nullptr, "scale");
    const auto a = llm::operand(x, m, k, ldx, !x_trans, x_maxptr);
    const auto b = llm::operand(w, n, k, ldw, w_trans, w_maxptr);
    const auto r = llm::result(y, ldy, static_cast<const TY*>(y), ldy, alpha, beta, bias, act,
                               y_maxptr);
    return llm::run_product<TX, TW, TY, TGEMM>(call, ctx, a, b, r);
}

template <typename TX, typename TW, typename TY, typename TGEMM>
int gpt_fc_fusion(Context* ctx, const TX* x, const TW* w, TY* y, int64_t m, int64_t n, int64_t k,
                  bool x_trans, bool w_trans, const float* x_maxptr, const float* w_maxptr,
                  float* y_maxptr, int64_t ldx, int64_t ldw, int64_t ldy, float alpha, float beta,
                  const float* bias, const Activation_t& act, const float* sacle) {
    llm::Call call(ctx, "api::gpt_fc_fusion");
    const auto a = llm::operand(x, m, k, ldx, !x_trans, x_maxptr);
    const auto b = llm::operand(w, n, k, ldw, w_trans, w_maxptr, sacle);
    const auto r = llm::result(y, ldy, static_cast<const TY*>(y), ldy, alpha, beta, bias, act,
                               y_maxptr);
    return llm::run_product<TX, TW, TY, TGEMM>(call, ctx, a, b, r);
}

template <typename TX, typename TW, typename TY, typename TGEMM, int MAX_PTR_TYPE>
int fc_batched(Context* ctx, int64_t batch_size, bool x_trans, bool w_trans, int64_t m, int64_t n,
               int64_t k, float alpha, const TX* x, int64_t stride_a, const TW* w,
               int64_t stride_b, float beta, TY* y, int64_t stride_c, const float* x_maxptr,
               const float* w_maxptr) {
    llm::Call call(ctx, "api::fc_batched");
    const llm::BatchShape shape{batch_size, m, n, k, stride_a, stride_b, stride_c};
    return llm::run_batched<TX, TW, TY, TGEMM>(call, ctx, shape, x, x_trans, x_maxptr, w, w_trans,
                                               w_maxptr, y, alpha, beta, &llm::round_to<float>);
}

#define SINGLE(NAME, TX, TW, TY, TGEMM)                                                       \
    template DLL_EXPORT int NAME<TX, TW, TY, TGEMM>(                                          \
        Context*, const TX*, const TW*, TY*, int64_t, int64_t, int64_t, bool, bool,           \
        const float*, const float*, float*, int64_t, int64_t, int64_t, float, float,          \
        const float*, const Activation_t&, const float*
#define BATCHED(T, TGEMM)                                                                     \
    template DLL_EXPORT int fc_batched<T, T, T, TGEMM, 0>(                                    \
        Context*, int64_t, bool, bool, int64_t, int64_t, int64_t, float, const T*, int64_t,   \
        const T*, int64_t, float, T*, int64_t, const float*, const float*);
#define BOTH(T, TGEMM)                                                 \
    SINGLE(fc_fusion, T, T, T, TGEMM), const float*, const float*);    \
    BATCHED(T, TGEMM)
#define ALL_COMPUTE_TYPES(T) \
    BOTH(T, float)           \
    BOTH(T, float16)         \
    BOTH(T, tfloat32)        \
    BOTH(T, int16_t)         \
    BOTH(T, int32_t)         \
    BOTH(T, int_with_ll_t)

ALL_COMPUTE_TYPES(float)
ALL_COMPUTE_TYPES(float16)
ALL_COMPUTE_TYPES(bfloat16)
SINGLE(gpt_fc_fusion, float16, int8_t, float16, int8_wo_t));

}  // namespace api
}  // namespace xpu
}  // namespace baidu

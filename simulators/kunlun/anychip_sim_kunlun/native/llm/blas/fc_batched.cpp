// Batches of products of libxpu_blas.
#include "llm/engine/batched_call.h"
#include "xhpc/xblas/xblas_legacy_api.h"

namespace baidu {
namespace xpu {
namespace xblas {

template <typename TX, typename TW, typename TY, typename TGEMM, typename TGEMM_O,
          int MAX_PTR_TYPE>
int fc_batched(api::Context* ctx, int64_t batch_size, bool x_trans, bool w_trans, int64_t m,
               int64_t n, int64_t k, float alpha, const TX* x, int64_t stride_a, const TW* w,
               int64_t stride_b, float beta, TY* y, int64_t stride_c, const float* x_maxptr,
               const float* w_maxptr) {
    xpusim::llm::Call call(ctx, "xblas::fc_batched");
    const xpusim::llm::BatchShape shape{batch_size, m, n, k, stride_a, stride_b, stride_c};
    return xpusim::llm::run_batched<TX, TW, TY, TGEMM>(
        call, ctx, shape, x, x_trans, x_maxptr, w, w_trans, w_maxptr, y, alpha, beta,
        &xpusim::llm::round_to<TGEMM_O>);
}

#define BATCHED(T, TGEMM, TGEMM_O)                                                             \
    template DLL_EXPORT int fc_batched<T, T, T, TGEMM, TGEMM_O, 0>(                            \
        api::Context*, int64_t, bool, bool, int64_t, int64_t, int64_t, float, const T*,        \
        int64_t, const T*, int64_t, float, T*, int64_t, const float*, const float*);
#define ALL_COMPUTE_TYPES(T)        \
    BATCHED(T, float, float)        \
    BATCHED(T, float16, float)      \
    BATCHED(T, tfloat32, float)     \
    BATCHED(T, int16_t, float)      \
    BATCHED(T, int32_t, float)      \
    BATCHED(T, int_with_ll_t, float)

ALL_COMPUTE_TYPES(float)
ALL_COMPUTE_TYPES(float16)
ALL_COMPUTE_TYPES(bfloat16)
BATCHED(float, float16, float16)
BATCHED(float16, float16, float16)

}  // namespace xblas
}  // namespace xpu
}  // namespace baidu

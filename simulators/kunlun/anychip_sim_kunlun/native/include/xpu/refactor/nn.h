// Norms, gated activation and batched products of libxpuapi, as far as language models need them.
// abi_llm.tsv says where each was seen. (The vendor declares fast_swiglu in nn_activation.h.)
#pragma once

#include <cstdint>
#include <vector>

#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace api {

// y = x / sqrt(mean(x^2) + eps) * scale over each of m rows of n; bias null. `var` [m], null where
// not wanted, gets mean(x^2), with `is_rstd` 1 / sqrt(mean(x^2) + eps).
template <typename T, typename TW = float>
DLL_EXPORT int rms_layer_norm(Context* ctx, const T* x, T* y, int64_t m, int64_t n, float eps,
                              const TW* scale, const TW* bias, float* var, bool is_rstd = false);

// The two halves a, b of a row of x (`axis` is the last one): with `turn` true silu(a) * b, as
// FastDeploy calls it for [gate, up], with `turn` false a * silu(b). A row of x is a multiple of
// 16 bytes; the maxima are null.
template <typename T>
DLL_EXPORT int fast_swiglu(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                           int64_t axis, bool turn = false, const float* max_x = nullptr,
                           float* max_y = nullptr);

// batch_size products y = alpha * x.w + beta * y of [m, k] and [k, n], `stride_*` elements apart.
// TGEMM is the compute type, see fusion.h.
template <typename TX, typename TW, typename TY, typename TGEMM, int MAX_PTR_TYPE = 0>
DLL_EXPORT int fc_batched(Context* ctx, int64_t batch_size, bool x_trans, bool w_trans, int64_t m,
                          int64_t n, int64_t k, float alpha, const TX* x, int64_t stride_a,
                          const TW* w, int64_t stride_b, float beta, TY* y, int64_t stride_c,
                          const float* x_maxptr, const float* w_maxptr);

}  // namespace api
}  // namespace xpu
}  // namespace baidu

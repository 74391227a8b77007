// libxpu_blas: matrix products of XRE 5, re-declared from call sites. abi_llm.tsv says for each
// where it was seen and what is a guess.
#pragma once

#include <cstdint>

#include "xpu/refactor/fusion.h"
#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace xblas {

// A matrix as it lies: `rows` of `columns`, `ld` elements apart. `trans`: the product uses it
// transposed. maxptr: device floats, the largest of them the largest |element|; null: unknown.
template <typename T>
struct DLL_EXPORT FcFusionTensor {
    T* data;
    const float* maxptr;
    int64_t rows;
    int64_t columns;
    int64_t ld;
    bool trans;
};

// TGEMM computes (see fusion.h), TGEMM_O sums, TINTER_RES is between sum and epilogue.
template <typename TGEMM, typename TGEMM_O, typename TINTER_RES>
struct DLL_EXPORT FcFusionDesc {
    float alpha;
    float beta;
    int* flag = nullptr;  // null here: no source tells its use
};

// scale_x, scale_w: maxima of whole-number operands, with mode 0 one for the operand, with mode 1
// one a row of x or of the output's channels. y_maxptr gets the largest |y|.
template <typename TBIAS, typename TSCALE>
struct DLL_EXPORT FcFusionEpilogue {
    api::Activation_t act;
    const TBIAS* bias;
    const TSCALE* scale_x;
    const TSCALE* scale_w;
    int scale_x_mode;
    int scale_w_mode;
    float* y_maxptr;
};

// d = act(alpha * a.b + beta * c + bias). a is [m, k] and b [k, n] after their `trans`.
template <typename TA, typename TB, typename TC, typename TD, typename TGEMM, typename TGEMM_O,
          typename TINTER_RES, typename TBIAS, typename TSCALE>
DLL_EXPORT int fc_fusion(api::Context* ctx, const FcFusionTensor<const TA>& a,
                         const FcFusionTensor<const TB>& b, const FcFusionTensor<const TC>& c,
                         const FcFusionTensor<TD>& d,
                         const FcFusionDesc<TGEMM, TGEMM_O, TINTER_RES>& desc,
                         const FcFusionEpilogue<TBIAS, TSCALE>& epilogue);

// The same with every number on its own, c and d being y.
template <typename TX, typename TW, typename TY, typename TGEMM, typename TGEMM_O = float,
          typename TSCALE = float>
DLL_EXPORT int fc_fusion(api::Context* ctx, const TX* x, const TW* w, TY* y, int64_t m, int64_t n,
                         int64_t k, bool x_trans, bool w_trans, const float* x_maxptr,
                         const float* w_maxptr, float* y_maxptr, int64_t ldx, int64_t ldw,
                         int64_t ldy, float alpha, float beta, const float* bias,
                         const api::Activation_t& act, const TSCALE* scale_x = nullptr,
                         const TSCALE* scale_w = nullptr, int scale_x_mode = 0,
                         int scale_w_mode = 0);

// batch_size products, `stride_*` elements apart; see api::fc_batched.
template <typename TX, typename TW, typename TY, typename TGEMM, typename TGEMM_O,
          int MAX_PTR_TYPE = 0>
DLL_EXPORT int fc_batched(api::Context* ctx, int64_t batch_size, bool x_trans, bool w_trans,
                          int64_t m, int64_t n, int64_t k, float alpha, const TX* x,
                          int64_t stride_a, const TW* w, int64_t stride_b, float beta, TY* y,
                          int64_t stride_c, const float* x_maxptr, const float* w_maxptr);

}  // namespace xblas
}  // namespace xpu
}  // namespace baidu

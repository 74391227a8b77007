// Products of libxpu_blas, in both forms that public code calls.
#include "xhpc/xblas/xblas_legacy_api.h"

#include "llm/engine/product_call.h"

namespace baidu {
namespace xpu {
namespace xblas {

namespace llm = xpusim::llm;

namespace {

// Scales belong to whole-number operands; what they do to others is not public.
template <typename T>
bool scale_fits(const float* scale, int mode) {
    return scale == nullptr || (std::is_same_v<T, int8_t> && (mode == 0 || mode == 1));
}

// Mode 0: one maximum for the operand; it stands where `max` would.
const float* whole_max(const float* max, const float* scale, int mode) {
    return scale != nullptr && mode == 0 ? scale : max;
}
const float* row_max(const float* scale, int mode) {
    return mode == 1 ? scale : nullptr;
}

}  // namespace

template <typename TA, typename TB, typename TC, typename TD, typename TGEMM, typename TGEMM_O,
          typename TINTER_RES, typename TBIAS, typename TSCALE>
int fc_fusion(api::Context* ctx, const FcFusionTensor<const TA>& a,
              const FcFusionTensor<const TB>& b, const FcFusionTensor<const TC>& c,
              const FcFusionTensor<TD>& d, const FcFusionDesc<TGEMM, TGEMM_O, TINTER_RES>& desc,
              const FcFusionEpilogue<TBIAS, TSCALE>& epilogue) {
    llm::Call call(ctx, "xblas::fc_fusion");
    const auto& end = epilogue;
    const int64_t m = d.rows, n = d.columns, k = a.trans ? a.rows : a.columns;
    call.rule((a.trans ? a.columns : a.rows) == m, "rows of a and d differ");
    call.rule((b.trans ? b.rows : b.columns) == n, "columns of b and d differ");
    call.rule((b.trans ? b.columns : b.rows) == k, "a and b differ in k");
    call.rule(desc.beta == 0.0f || (c.rows == m && c.columns == n), "c is not of d's shape");
    call.rule(!c.trans && !d.trans, "c and d lie by rows");
    call.served(desc.flag == nullptr, "flag");
    call.served(scale_fits<TA>(end.scale_x, end.scale_x_mode) &&
                    scale_fits<TB>(end.scale_w, end.scale_w_mode),
                "scale of this operand");
    const float* a_max = whole_max(a.maxptr, end.scale_x, end.scale_x_mode);
    const float* b_max = whole_max(b.maxptr, end.scale_w, end.scale_w_mode);
    const auto x = llm::operand(a.data, m, k, a.ld, !a.trans, a_max,
                                row_max(end.scale_x, end.scale_x_mode));
    const auto w = llm::operand(b.data, n, k, b.ld, b.trans, b_max,
                                row_max(end.scale_w, end.scale_w_mode));
    auto y = llm::result(d.data, d.ld, c.data, c.ld, desc.alpha, desc.beta, end.bias, end.act,
                         end.y_maxptr);
    y.between = &llm::round_to<TINTER_RES>;
    return llm::run_product<TA, TB, TD, TGEMM>(call, ctx, x, w, y);
}

template <typename TX, typename TW, typename TY, typename TGEMM, typename TGEMM_O, typename TSCALE>
int fc_fusion(api::Context* ctx, const TX* x, const TW* w, TY* y, int64_t m, int64_t n, int64_t k,
              bool x_trans, bool w_trans, const float* x_maxptr, const float* w_maxptr,
              float* y_maxptr, int64_t ldx, int64_t ldw, int64_t ldy, float alpha, float beta,
              const float* bias, const api::Activation_t& act, const TSCALE* scale_x,
              const TSCALE* scale_w, int scale_x_mode, int scale_w_mode) {
    const FcFusionTensor<const TX> a{x, x_maxptr, x_trans ? k : m, x_trans ? m : k, ldx, x_trans};
    const FcFusionTensor<const TW> b{w, w_maxptr, w_trans ? n : k, w_trans ? k : n, ldw, w_trans};
    const FcFusionTensor<const TY> c{y, nullptr, m, n, ldy, false};
    const FcFusionTensor<TY> d{y, nullptr, m, n, ldy, false};
    const FcFusionDesc<TGEMM, TGEMM_O, float> desc{alpha, beta};
    const FcFusionEpilogue<float, TSCALE> end{act,     bias,         scale_x,     scale_w,
                                              scale_x_mode, scale_w_mode, y_maxptr};
    return fc_fusion<TX, TW, TY, TY, TGEMM, TGEMM_O, float, float, TSCALE>(ctx, a, b, c, d, desc,
                                                                           end);
}

#define STRUCT_FORM(TA, TB, TD, TGEMM, TINTER)                                           \
    template DLL_EXPORT int fc_fusion<TA, TB, TD, TD, TGEMM, float, TINTER, float, float>( \
        api::Context*, const FcFusionTensor<const TA>&, const FcFusionTensor<const TB>&, \
        const FcFusionTensor<const TD>&, const FcFusionTensor<TD>&,                      \
        const FcFusionDesc<TGEMM, float, TINTER>&, const FcFusionEpilogue<float, float>&);
#define PLAIN_FORM(TX, TW, TY, TGEMM)                                                        \
    template DLL_EXPORT int fc_fusion<TX, TW, TY, TGEMM, float, float>(                      \
        api::Context*, const TX*, const TW*, TY*, int64_t, int64_t, int64_t, bool, bool,     \
        const float*, const float*, float*, int64_t, int64_t, int64_t, float, float,         \
        const float*, const api::Activation_t&, const float*, const float*, int, int);
#define BOTH_FORMS(T, TGEMM)               \
    STRUCT_FORM(T, T, T, TGEMM, float)     \
    PLAIN_FORM(T, T, T, TGEMM)
#define ALL_COMPUTE_TYPES(T)     \
    BOTH_FORMS(T, float)         \
    BOTH_FORMS(T, float16)       \
    BOTH_FORMS(T, tfloat32)      \
    BOTH_FORMS(T, int16_t)       \
    BOTH_FORMS(T, int32_t)       \
    BOTH_FORMS(T, int_with_ll_t)

ALL_COMPUTE_TYPES(float)
ALL_COMPUTE_TYPES(float16)
ALL_COMPUTE_TYPES(bfloat16)
STRUCT_FORM(float16, float16, float16, float, float16)
STRUCT_FORM(bfloat16, bfloat16, bfloat16, float, bfloat16)
STRUCT_FORM(float16, float16, float, float, float)
STRUCT_FORM(bfloat16, bfloat16, float, float, float)
STRUCT_FORM(float16, int8_t, float16, float, float)
STRUCT_FORM(bfloat16, int8_t, bfloat16, float, float)
PLAIN_FORM(int8_t, int8_t, float, int8_t)

}  // namespace xblas
}  // namespace xpu
}  // namespace baidu

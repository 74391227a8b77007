// Logits in float32 from operands of two bytes, by the form of fc_fusion that libxpu_blas has. A
// file of its own: an SDK without that library builds the shim without it.
#include "product.h"
#include "xblas/xblas_legacy_api.h"

using namespace shim;

namespace xblas = baidu::xpu::xblas;

namespace {

template <class T>
int wide_product(api::Context* context, const View& x, const View& w, const View& y, float alpha) {
    const int64_t m = x.shape[0];
    const int64_t k = x.shape[1];
    const int64_t n = w.shape[0];
    const xblas::FcFusionTensor<const T> a{static_cast<const T*>(x.at), nullptr, m, k, k, false};
    const xblas::FcFusionTensor<const T> b{static_cast<const T*>(w.at), nullptr, n, k, k, true};
    const xblas::FcFusionTensor<const float> c{static_cast<const float*>(y.at), nullptr, m, n, n,
                                               false};
    const xblas::FcFusionTensor<float> d{static_cast<float*>(y.at), nullptr, m, n, n, false};
    const xblas::FcFusionDesc<float, float, float> how{alpha, 0.0f};
    const xblas::FcFusionEpilogue<float, float> end{
        api::Activation_t(api::Activation_t::LINEAR), nullptr, nullptr, nullptr, 0, 0, nullptr};
    return xblas::fc_fusion<T, T, float, float, float, float, float, float, float>(
        context, a, b, c, d, how, end);
}

}  // namespace

OPERATOR(lm_head_wide) {
    const View x = run.view(0);
    const View logits = run.view(2);
    if (logits.size() == 0) {
        return;
    }
    const auto alpha = static_cast<float>(run.attribute(0));
    with_float(run, x.dtype, [&](auto one) {
        if (run.live()) {
            run.note("xblas::fc_fusion",
                     wide_product<decltype(one)>(run.context(), x, run.view(1), logits, alpha));
        }
    });
    cap_in_place(run, {static_cast<float*>(logits.at), logits.shape}, run.attribute(1));
}

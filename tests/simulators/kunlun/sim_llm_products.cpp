// Products, norms, gates and quantization.
#include "sim_llm_driver.h"
#include "xblas/xblas_legacy_api.h"
#include "infer_ops.h"

namespace xblas = baidu::xpu::xblas;

namespace {

// One product as every form takes it.
template <typename T>
struct Product {
    const T* x;
    const T* w;
    T* y;
    const float* x_max;
    const float* w_max;
    float* y_max;
    const float* bias;
    int64_t m, n, k, ldx, ldw, ldy;
    bool x_trans, w_trans;
    api::Activation_t act;
    float alpha, beta;

    explicit Product(Reader& r)
        : x(r.pointer<const T>()), w(r.pointer<const T>()), y(r.pointer<T>()),
          x_max(r.pointer<const float>()), w_max(r.pointer<const float>()),
          y_max(r.pointer<float>()), bias(r.pointer<const float>()), m(r.number()),
          n(r.number()), k(r.number()), ldx(r.number()), ldw(r.number()), ldy(r.number()),
          x_trans(r.number() != 0), w_trans(r.number() != 0),
          act(static_cast<api::Activation_t::act_enum>(r.number())), alpha(r.real()),
          beta(r.real()) {}
};

template <typename T, typename TGEMM>
int in_structs(api::Context* ctx, const Product<T>& p) {
    const xblas::FcFusionTensor<const T> a{p.x, p.x_max, p.x_trans ? p.k : p.m,
                                           p.x_trans ? p.m : p.k, p.ldx, p.x_trans};
    const xblas::FcFusionTensor<const T> b{p.w, p.w_max, p.w_trans ? p.n : p.k,
                                           p.w_trans ? p.k : p.n, p.ldw, p.w_trans};
    const xblas::FcFusionTensor<const T> c{p.y, nullptr, p.m, p.n, p.ldy, false};
    const xblas::FcFusionTensor<T> d{p.y, nullptr, p.m, p.n, p.ldy, false};
    const xblas::FcFusionDesc<TGEMM, float, float> desc{p.alpha, p.beta};
    const xblas::FcFusionEpilogue<float, float> end{p.act, p.bias, nullptr, nullptr,
                                                    0,     0,      p.y_max};
    return xblas::fc_fusion<T, T, T, T, TGEMM, float, float, float, float>(ctx, a, b, c, d, desc,
                                                                           end);
}

template <typename T, typename TGEMM>
int in_form(int64_t form, api::Context* ctx, const Product<T>& p) {
    switch (form) {
        case 0:
            return api::fc_fusion<T, T, T, TGEMM>(ctx, p.x, p.w, p.y, p.m, p.n, p.k, p.x_trans,
                                                  p.w_trans, p.x_max, p.w_max, p.y_max, p.ldx,
                                                  p.ldw, p.ldy, p.alpha, p.beta, p.bias, p.act);
        case 1:
            return xblas::fc_fusion<T, T, T, TGEMM, float, float>(
                ctx, p.x, p.w, p.y, p.m, p.n, p.k, p.x_trans, p.w_trans, p.x_max, p.w_max, p.y_max,
                p.ldx, p.ldw, p.ldy, p.alpha, p.beta, p.bias, p.act);
        default: return in_structs<T, TGEMM>(ctx, p);
    }
}

template <typename T>
int weights_of_8_bits(api::Context* ctx, Reader& r) {
    const T* x = r.pointer<const T>();
    const int8_t* w = r.pointer<const int8_t>();
    T* y = r.pointer<T>();
    const float* max = r.pointer<const float>();
    const int64_t m = r.number(), n = r.number(), k = r.number();
    const int mode = static_cast<int>(r.number());
    const xblas::FcFusionTensor<const T> a{x, nullptr, m, k, k, false};
    const xblas::FcFusionTensor<const int8_t> b{w, nullptr, n, k, k, true};
    const xblas::FcFusionTensor<const T> c{y, nullptr, m, n, n, false};
    const xblas::FcFusionTensor<T> d{y, nullptr, m, n, n, false};
    const xblas::FcFusionDesc<float, float, float> desc{1.0f, 0.0f};
    const xblas::FcFusionEpilogue<float, float> end{
        api::Activation_t::LINEAR, nullptr, nullptr, max, 0, mode, nullptr};
    return xblas::fc_fusion<T, int8_t, T, T, float, float, float, float, float>(ctx, a, b, c, d,
                                                                                desc, end);
}

template <typename T>
int wide(api::Context* ctx, Reader& r) {
    const T* x = r.pointer<const T>();
    const T* w = r.pointer<const T>();
    float* y = r.pointer<float>();
    const int64_t m = r.number(), n = r.number(), k = r.number();
    const xblas::FcFusionTensor<const T> a{x, nullptr, m, k, k, false};
    const xblas::FcFusionTensor<const T> b{w, nullptr, n, k, k, true};
    const xblas::FcFusionTensor<const float> c{y, nullptr, m, n, n, false};
    const xblas::FcFusionTensor<float> d{y, nullptr, m, n, n, false};
    const xblas::FcFusionDesc<float, float, float> desc{1.0f, 0.0f};
    const xblas::FcFusionEpilogue<float, float> end{
        api::Activation_t::LINEAR, nullptr, nullptr, nullptr, 0, 0, nullptr};
    return xblas::fc_fusion<T, T, float, float, float, float, float, float, float>(ctx, a, b, c, d,
                                                                                   desc, end);
}

template <typename T, typename TGEMM>
int batched(bool of_blas, api::Context* ctx, Reader& r) {
    const T* x = r.pointer<const T>();
    const T* w = r.pointer<const T>();
    T* y = r.pointer<T>();
    const int64_t b = r.number(), m = r.number(), n = r.number(), k = r.number();
    const int64_t sx = r.number(), sw = r.number(), sy = r.number();
    const bool x_trans = r.number() != 0, w_trans = r.number() != 0;
    const float alpha = r.real(), beta = r.real();
    if (of_blas) {
        return xblas::fc_batched<T, T, T, TGEMM, float, 0>(ctx, b, x_trans, w_trans, m, n, k, alpha,
                                                           x, sx, w, sw, beta, y, sy, nullptr,
                                                           nullptr);
    }
    return api::fc_batched<T, T, T, TGEMM>(ctx, b, x_trans, w_trans, m, n, k, alpha, x, sx, w, sw,
                                           beta, y, sy, nullptr, nullptr);
}

}  // namespace

// form, type, compute type, then the product.
DRIVE(product) {
    Reader r(*lists);
    const int64_t form = r.number(), type = r.number(), compute = r.number();
    return with_type(type, [&](auto one) {
        const Product<decltype(one)> p(r);
        return with_compute(compute, [&](auto two) {
            return in_form<decltype(one), decltype(two)>(form, ctx, p);
        });
    });
}

DRIVE(product_of_int8_weights) {
    Reader r(*lists);
    const bool of_float16 = r.number() == 1;
    return of_float16 ? weights_of_8_bits<float16>(ctx, r) : weights_of_8_bits<bfloat16>(ctx, r);
}

DRIVE(product_to_float) {
    Reader r(*lists);
    return r.number() == 1 ? wide<float16>(ctx, r) : wide<bfloat16>(ctx, r);
}

DRIVE(gpt_product) {
    Reader r(*lists);
    const auto* x = r.pointer<const float16>();
    const auto* w = r.pointer<const int8_t>();
    auto* y = r.pointer<float16>();
    const auto* max = r.pointer<const float>();
    const int64_t m = r.number(), n = r.number(), k = r.number();
    return api::gpt_fc_fusion<float16, int8_t, float16, int8_wo_t>(
        ctx, x, w, y, m, n, k, false, true, nullptr, nullptr, nullptr, k, k, n, 1.0f, 0.0f, nullptr,
        api::Activation_t::LINEAR, max);
}

DRIVE(product_of_int8) {
    Reader r(*lists);
    const auto* x = r.pointer<const int8_t>();
    const auto* w = r.pointer<const int8_t>();
    auto* y = r.pointer<float>();
    const auto* max = r.pointer<const float>();
    const int64_t m = r.number(), n = r.number(), k = r.number();
    return xblas::fc_fusion<int8_t, int8_t, float, int8_t, float, float>(
        ctx, x, w, y, m, n, k, false, true, max, max, nullptr, k, k, n, 1.0f, 0.0f, nullptr,
        api::Activation_t::LINEAR);
}

DRIVE(batch) {
    Reader r(*lists);
    const bool of_blas = r.number() != 0;
    const int64_t type = r.number(), compute = r.number();
    return with_type(type, [&](auto one) {
        return with_compute(compute, [&](auto two) {
            return batched<decltype(one), decltype(two)>(of_blas, ctx, r);
        });
    });
}

// type, whether the weights are float.
DRIVE(norm) {
    Reader r(*lists);
    const int64_t type = r.number();
    const bool wide_weights = r.number() != 0;
    return with_type(type, [&](auto one) {
        using T = decltype(one);
        const T* x = r.pointer<const T>();
        T* y = r.pointer<T>();
        const void* weight = r.pointer<const void>();
        float* var = r.pointer<float>();
        const int64_t m = r.number(), n = r.number();
        const bool inverse = r.number() != 0;
        const float eps = r.real();
        if (wide_weights) {
            return api::rms_layer_norm<T, float>(ctx, x, y, m, n, eps,
                                                 static_cast<const float*>(weight), nullptr, var,
                                                 inverse);
        }
        return api::rms_layer_norm<T, T>(ctx, x, y, m, n, eps, static_cast<const T*>(weight),
                                         nullptr, var, inverse);
    });
}

// type, whether libapiinfer's (whose weights have the type of the data).
DRIVE(add_norm) {
    Reader r(*lists);
    const int64_t type = r.number();
    const bool of_infer = r.number() != 0;
    return with_type(type, [&](auto one) {
        using T = decltype(one);
        const T* x = r.pointer<const T>();
        const T* residual = r.pointer<const T>();
        T* y = r.pointer<T>();
        T* sum = r.pointer<T>();
        const void* weight = r.pointer<const void>();
        const int64_t m = r.number(), n = r.number();
        const float eps = r.real();
        if (of_infer) {
            return infer_ops::add_rms_layer_norm<T, T>(ctx, x, residual, y, m, n, eps,
                                                       static_cast<const T*>(weight), nullptr,
                                                       nullptr, sum, nullptr, false);
        }
        return api::add_rms_layer_norm_fusion<T>(ctx, x, residual, y, m, n, eps,
                                                 static_cast<const float*>(weight), nullptr,
                                                 nullptr, sum, nullptr);
    });
}

DRIVE(gate) {
    Reader r(*lists);
    return with_type(r.number(), [&](auto one) {
        using T = decltype(one);
        const T* x = r.pointer<const T>();
        T* y = r.pointer<T>();
        const int64_t rows = r.number(), row = r.number(), axis = r.number();
        return api::fast_swiglu<T>(ctx, x, y, {rows, row}, axis, r.number() != 0);
    });
}

DRIVE(quantize) {
    Reader r(*lists);
    const int64_t type = r.number(), m = r.number(), n = r.number();
    const void* x = r.pointer<const void>();
    auto* y = r.pointer<int8_t>();
    auto* max = r.pointer<float>();
    if (type == 1) {
        return infer_ops::quant2d_per_token<float16, float, int8_t>(
            ctx, static_cast<const float16*>(x), nullptr, y, max, m, n);
    }
    return infer_ops::quant2d_per_token<bfloat16, float, int8_t>(
        ctx, static_cast<const bfloat16*>(x), nullptr, y, max, m, n);
}

// A batch of products of one shape.
#pragma once

#include <cstdint>

#include "llm/engine/product_call.h"

namespace xpusim {
namespace llm {

struct BatchShape {
    int64_t batch;
    int64_t m;
    int64_t n;
    int64_t k;
    int64_t stride_x;  // elements from one matrix to the next
    int64_t stride_w;
    int64_t stride_y;
};

inline bool matrices_lie_apart(const BatchShape& shape) {
    return shape.stride_x >= shape.m * shape.k && shape.stride_w >= shape.n * shape.k &&
           shape.stride_y >= shape.m * shape.n;
}

template <typename TX, typename TW, typename TY, typename TGEMM>
int run_batched(Call& call, api::Context* ctx, const BatchShape& shape, const TX* x, bool x_trans,
                const float* x_max, const TW* w, bool w_trans, const float* w_max, TY* y,
                float alpha, float beta, Round between) {
    call.shape({shape.m, shape.k}, "x").shape({shape.k, shape.n}, "w");
    call.shape({shape.m, shape.n}, "y");
    call.shape({shape.batch, shape.stride_x}, "x").shape({shape.batch, shape.stride_w}, "w");
    call.shape({shape.batch, shape.stride_y}, "y");
    call.device(x, "x").device(w, "w").device(y, "y");
    // One matrix for all (stride 0) is a broadcast, which public code makes before the call.
    call.rule(!call.holds() || matrices_lie_apart(shape), "matrices overlap");
    call.rule(is_supported<TX, TGEMM>(ctx), "this compute type does not take this tensor type");
    call.rule(static_cast<const void*>(x) != y && static_cast<const void*>(w) != y,
              "y is one of the operands");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    const int64_t slots = max_slots(ctx);
    return call.run([=] {
        for (int64_t b = 0; b < shape.batch; ++b) {
            const auto a = operand(x + b * shape.stride_x, shape.m, shape.k,
                                   x_trans ? shape.m : shape.k, !x_trans, x_max);
            const auto o = operand(w + b * shape.stride_w, shape.n, shape.k,
                                   w_trans ? shape.k : shape.n, w_trans, w_max);
            TY* to = y + b * shape.stride_y;
            auto r = result(to, shape.n, static_cast<const TY*>(to), shape.n, alpha, beta, nullptr,
                            Activation::LINEAR, nullptr);
            r.between = between;
            multiply(a, o, r, compute_of<TGEMM>(), slots);
        }
    });
}

}  // namespace llm
}  // namespace xpusim

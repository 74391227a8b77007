// A product call: its rules, and its operands by type.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llm/engine/product.h"
#include "llm/engine/weight_fault.h"

namespace xpusim {
namespace llm {

// Floats behind a maxptr: one a cluster group of the chip (4, 6, 12 by generation in public code).
inline int64_t max_slots(const api::Context* ctx) {
    switch (ctx->dev().type()) {
        case api::DeviceType::XPU1: return 4;
        case api::DeviceType::XPU2: return 6;
        default: return 12;
    }
}

// Pairs that public code marks as unsupported.
template <typename T, typename TGEMM>
bool is_supported(const api::Context* ctx) {
    const Compute compute = compute_of<TGEMM>();
    if (std::is_same_v<T, bfloat16>) {
        return compute != Compute::kInt16 && compute != Compute::kInt32 &&
               compute != Compute::kFloat16;
    }
    if (std::is_same_v<T, float16>) {
        // int_with_ll_t computes in kInt32 as well, and is not on the list.
        return !std::is_same_v<TGEMM, int32_t> && compute != Compute::kTfloat32;
    }
    const bool first_chips = ctx != nullptr && ctx->dev().type() == api::DeviceType::XPU2;
    return !(first_chips && std::is_same_v<T, float> && compute == Compute::kFloat16);
}

template <typename T>
Operand operand(const T* data, int64_t outer, int64_t inner, int64_t ld, bool along,
                const float* max, const float* row_max = nullptr) {
    return {data, static_cast<int64_t>(sizeof(T)), &load<T>, outer, inner, ld, along,
            std::is_same_v<T, int8_t>, max, row_max};
}

template <typename T>
void operand_rules(Call& call, const Operand& from, const char* what) {
    call.device(static_cast<const T*>(from.data), what).shape({from.outer, from.inner}, what);
    call.shape({from.along ? from.outer : from.inner, from.ld}, what);
    call.rule(from.ld >= (from.along ? from.inner : from.outer), "a row is longer than its ld");
    call.rule(!from.int8 || from.max != nullptr || from.row_max != nullptr,
              "an int8 operand needs its maximum");
}

template <typename TY, typename TC>
Result result(TY* data, int64_t ld, const TC* added, int64_t added_ld, float alpha, float beta,
              const float* bias, const api::Activation_t& act, float* max) {
    return {data,  static_cast<int64_t>(sizeof(TY)), &store<TY>, ld,
            beta == 0.0f ? nullptr : added, static_cast<int64_t>(sizeof(TC)), &load<TC>, added_ld,
            &round_to<float>, alpha, beta, bias, act, max};
}

template <typename TY>
void result_rules(Call& call, const Result& to, int64_t m, int64_t n) {
    call.device(static_cast<const TY*>(to.data), "y").shape({m, to.ld}, "y");
    if (to.added != nullptr) {
        call.shape({m, to.added_ld}, "what is added");
    }
    call.rule(to.ld >= n, "a row of y is longer than its ld");
    call.rule(to.beta == 0.0f || to.added != nullptr, "beta without a matrix to add");
    call.served(is_served(to.act), "activation");
}

// x [m, k] and w [k, n] as they lie, with the call's checks; queues the product.
template <typename TX, typename TW, typename TY, typename TGEMM>
int run_product(Call& call, api::Context* ctx, const Operand& x, const Operand& w,
                const Result& to) {
    operand_rules<TX>(call, x, "x");
    operand_rules<TW>(call, w, "w");
    result_rules<TY>(call, to, x.outer, w.outer);
    call.rule(x.inner == w.inner, "x and w differ in k");
    call.rule(is_supported<TX, TGEMM>(ctx), "this compute type does not take this tensor type");
    call.rule(x.data != to.data && w.data != to.data, "y is one of the operands");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    const int64_t slots = max_slots(ctx);
    Operand weight = w;
    weight.load = weight_load<TW>();
    return call.run([=] { multiply(x, weight, to, compute_of<TGEMM>(), slots); });
}

}  // namespace llm
}  // namespace xpusim

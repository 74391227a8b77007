// Products by fc_fusion and fc_batched, always with float as the compute type: the vendor's
// default for float32 and float16 is a product of 16-bit whole numbers.
#include "product.h"

#include <algorithm>
#include <type_traits>

using namespace shim;

namespace shim {
namespace {

constexpr int64_t PANEL = int64_t{4} << 20;  // elements of a weight that is converted at a time

template <class T>
void fc(Run& run, const Array<T>& x, int64_t ldx, const Array<T>& w, bool turned, T* y,
        int64_t ldy, const Product& how) {
    const int64_t m = x.shape[0];
    const int64_t k = x.shape[1];
    const int64_t n = w.shape[turned ? 0 : 1];
    const float* unknown = nullptr;  // largest absolute values: a product of floats needs none
    VENDOR(run, (api::fc_fusion<T, T, T, float>), x.at, w.at, y, m, n, k, false, turned,
           unknown, unknown, nullptr, ldx, w.shape[1], ldy, how.alpha, 0.0f, how.bias,
           api::Activation_t(api::Activation_t::LINEAR), nullptr, nullptr, nullptr);
}

// Rows may lie apart, everything else is packed.
bool has_rows(const View& view) {
    return view.shape[1] == 1 || view.strides[1] == 1;
}

template <class T>
void alike(Run& run, const Product& how) {
    const bool apart = has_rows(how.x) && how.x.strides[0] >= how.x.shape[1];
    const Array<T> x =
        apart ? Array<T>{static_cast<T*>(how.x.at), how.x.shape} : dense<T>(run, how.x);
    const int64_t ldx = apart && x.shape[0] > 1 ? how.x.strides[0] : x.shape[1];
    const Array<T> w = dense<T>(run, how.w);
    Array<T> y{static_cast<T*>(how.y.at), how.y.shape};
    if (how.y.dtype != how.x.dtype) {  // from float32 alone
        y = run.array<T>(how.y.shape);
    }
    fc(run, x, ldx, w, how.turned, y.at, how.y.shape[1], how);
    if constexpr (std::is_same_v<T, float>) {
        store(run, y, how.y);
    }
}

View rows_between(const View& view, int64_t first, int64_t rows, int64_t size) {
    View part = view;
    part.shape[0] = rows;
    part.at = static_cast<char*>(view.at) + first * view.strides[0] * size;
    return part;
}

// Two types: both as float32, the weight some rows at a time. No public header shows a product of
// two float types, or one whose result is wider than its operands.
void unlike(Run& run, const Product& how) {
    const Array<float> x = floats(run, how.x);
    const Array<float> y = target(run, how.y);
    const int64_t n = how.w.shape[0];
    const int64_t k = how.w.shape[1];
    const int64_t size = how.w.dtype == FLOAT32 ? 4 : 2;
    const int64_t step = how.turned ? std::clamp<int64_t>(PANEL / k, 1, n) : n;
    run.reserve<float>(2 * std::min(n * k, std::max(k, PANEL)));  // packed and cast
    for (int64_t first = 0; first < n; first += step) {
        Scope scope(run);
        const int64_t rows = std::min(step, n - first);
        const Array<float> w = floats(run, rows_between(how.w, first, rows, size));
        Product part = how;
        part.bias = how.bias == nullptr || !how.turned ? how.bias : how.bias + first;
        fc(run, x, k, w, how.turned, y.at + (how.turned ? first : 0), how.y.shape[1], part);
    }
    store(run, y, how.y);
}

// No products to add: the bias, else zeros.
void empty_sum(Run& run, const Product& how) {
    if (how.bias == nullptr) {
        zeros(run, how.y);
        return;
    }
    const Array<float> y = target(run, how.y);
    VENDOR(run, api::broadcast<float>, how.bias, y.at, {1, y.shape[1]}, y.shape);
    store(run, y, how.y);
}

}  // namespace

void multiply(Run& run, const Product& how) {
    if (how.y.size() == 0) {
        return;
    }
    if (how.x.shape[1] == 0) {
        empty_sum(run, how);
        return;
    }
    if (how.x.dtype != how.w.dtype || (how.y.dtype != how.x.dtype && how.x.dtype != FLOAT32)) {
        unlike(run, how);
        return;
    }
    with_float(run, how.x.dtype, [&](auto one) { alike<decltype(one)>(run, how); });
}

void cap_in_place(Run& run, const Array<float>& x, double cap) {
    if (cap > 0) {
        scaled(run, x, 1.0 / cap, 0, x.at);
        VENDOR(run, api::tanh<float>, x.at, x.at, x.size(), nullptr, nullptr);
        scaled(run, x, cap, 0, x.at);
    }
}

}  // namespace shim

namespace {

const float* floats_or_null(Run& run, int operand) {
    return run.has(operand) ? static_cast<const float*>(run.view(operand).at) : nullptr;
}

}  // namespace

OPERATOR(linear) {
    multiply(run, {run.view(0), run.view(1), true, run.view(3), floats_or_null(run, 2), 1.0f});
}

OPERATOR(lm_head) {
    const View logits = run.view(2);
    const auto alpha = static_cast<float>(run.attribute(0));
    multiply(run, {run.view(0), run.view(1), true, logits, nullptr, alpha});
    if (logits.size() != 0) {
        cap_in_place(run, {static_cast<float*>(logits.at), logits.shape}, run.attribute(1));
    }
}

OPERATOR(matmul) {
    const bool turned = run.attribute(0) != 0;
    multiply(run, {run.view(0), run.view(1), turned, run.view(2), nullptr, 1.0f});
}

OPERATOR(batched_matmul) {
    const View output = run.view(2);
    if (output.size() == 0) {
        return;
    }
    if (run.view(0).shape[2] == 0) {
        zeros(run, output);
        return;
    }
    const bool turned = run.attribute(0) != 0;
    const Array<float> a = floats(run, run.view(0));
    const Array<float> b = floats(run, run.view(1));
    const Array<float> y = target(run, output);
    const int64_t batch = output.shape[0];
    const int64_t m = output.shape[1];
    const int64_t n = output.shape[2];
    const int64_t k = a.shape[2];
    const float* unknown = nullptr;
    VENDOR(run, (api::fc_batched<float, float, float, float>), batch, false, turned, m, n, k, 1.0f,
           a.at, m * k, b.at, n * k, 0.0f, y.at, m * n, unknown, unknown);
    store(run, y, output);
}

// softmax, log_softmax and cumsum along one axis.
#include "lines.h"
#include "xpu/refactor/math.h"
#include "xpu/refactor/nn_activation.h"

namespace xpusim {
namespace {

float largest(const float* line, int64_t length) {
    float best = line[0];
    for (int64_t i = 1; i < length; ++i) {
        best = maximum(best, line[i]);
    }
    return best;
}

void softmax_line(float* line, int64_t length) {
    const float top = largest(line, length);
    for (int64_t i = 0; i < length; ++i) {
        line[i] = std::exp(line[i] - top);
    }
    const float total = sum_line(line, length);
    for (int64_t i = 0; i < length; ++i) {
        line[i] /= total;
    }
}

void log_softmax_line(float* line, int64_t length) {
    const float top = largest(line, length);
    std::vector<float> powers(static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i) {
        line[i] -= top;
        powers[static_cast<size_t>(i)] = std::exp(line[i]);
    }
    const float shift = std::log(sum_line(powers.data(), length));
    for (int64_t i = 0; i < length; ++i) {
        line[i] -= shift;
    }
}

template <typename W>
void cumsum_line(W* line, int64_t length, bool reverse, bool exclusive) {
    W total = 0;
    for (int64_t n = 0; n < length; ++n) {
        const int64_t i = reverse ? length - 1 - n : n;
        const W value = line[i];
        line[i] = exclusive ? total : total + value;
        total += value;
    }
}

template <typename T, typename F>
int along(Context* ctx, const char* name, const T* x, T* y, const Shape& shape, int64_t axis,
          F change) {
    Call call(ctx, name);
    call.shape(shape, "xshape").axis(axis, shape).device(x, "x").device(y, "y");
    return call.run([=] {
        const Lines lines(shape, axis);
        const T* from = at(x, lines.count());
        T* to = at(y, lines.count());
        each_line(from, lines, [&](Wide<T>* line, int64_t number) {
            change(line, lines.length);
            store_line(line, to + line_start(lines, number), lines.inner, lines.length);
        });
    });
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

template <typename T>
int softmax(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape, int64_t axis) {
    return xpusim::along(ctx, "softmax", x, y, xshape, axis, xpusim::softmax_line);
}

template <typename T>
int log_softmax(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape, int64_t axis) {
    return xpusim::along(ctx, "log_softmax", x, y, xshape, axis, xpusim::log_softmax_line);
}

template <typename T>
int cumsum(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape, bool reverse,
           bool exclusive, int64_t axis) {
    using W = xpusim::Wide<T>;
    return xpusim::along(ctx, "cumsum", x, y, xshape, axis, [=](W* line, int64_t length) {
        xpusim::cumsum_line(line, length, reverse, exclusive);
    });
}

using Dims = std::vector<int64_t>;

template int softmax<float>(Context*, const float*, float*, const Dims&, int64_t);
template int softmax<float16>(Context*, const float16*, float16*, const Dims&, int64_t);
template int softmax<bfloat16>(Context*, const bfloat16*, bfloat16*, const Dims&, int64_t);
template int log_softmax<float>(Context*, const float*, float*, const Dims&, int64_t);

#define CUMSUM(T) template int cumsum<T>(Context*, const T*, T*, const Dims&, bool, bool, int64_t);
CUMSUM(float)
CUMSUM(int32_t)
CUMSUM(int64_t)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

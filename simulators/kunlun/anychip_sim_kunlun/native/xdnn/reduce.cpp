// Reductions over dimensions, and argmax.
#include <algorithm>

#include "lines.h"
#include "walk.h"
#include "xpu/refactor/math.h"

namespace xpusim {
namespace {

struct Plan {
    Shape shape;    // kept dimensions, then reduced ones
    Shape strides;  // of x
    int64_t kept = 1;
    int64_t reduced = 1;
};

bool contains(const Shape& list, size_t value) {
    return std::find(list.begin(), list.end(), static_cast<int64_t>(value)) != list.end();
}

Plan plan(const Shape& shape, const Shape& rdims) {
    const Shape dense = dense_strides(shape);
    Plan plan;
    for (bool reduced : {false, true}) {
        for (size_t d = 0; d < shape.size(); ++d) {
            if (contains(rdims, d) == reduced) {
                plan.shape.push_back(shape[d]);
                plan.strides.push_back(dense[d]);
                (reduced ? plan.reduced : plan.kept) *= shape[d];
            }
        }
    }
    return plan;
}

template <typename W, typename F>
W fold_line(const W* line, int64_t length, F f) {
    W value = line[0];
    for (int64_t i = 1; i < length; ++i) {
        value = f(value, line[i]);
    }
    return value;
}

// The lines to reduce, side by side: x itself where only trailing dimensions go.
template <typename T, typename F>
void each_reduced(const T* x, const Plan& plan, F body) {
    std::vector<Wide<T>> line(static_cast<size_t>(plan.reduced));
    std::vector<T> moved(static_cast<size_t>(plan.strides == dense_strides(plan.shape)
                                                 ? 0
                                                 : plan.kept * plan.reduced));
    if (!moved.empty()) {
        int64_t next = 0;
        const Rows<1> rows(plan.shape, {plan.strides});
        rows.each([&](const std::array<int64_t, 1>& offset) {
            for (int64_t i = 0; i < rows.length(); ++i) {
                moved[static_cast<size_t>(next++)] = x[offset[0] + i * rows.step(0)];
            }
        });
    }
    const T* from = moved.empty() ? x : moved.data();
    for (int64_t k = 0; k < plan.kept; ++k) {
        widen(from + k * plan.reduced, line.data(), plan.reduced);
        body(line.data(), k);
    }
}

bool names_dimensions(const Shape& rdims, size_t rank) {
    Shape sorted = rdims;
    std::sort(sorted.begin(), sorted.end());
    const bool once = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    return once && !sorted.empty() && sorted.front() >= 0 &&
           sorted.back() < static_cast<int64_t>(rank);
}

template <typename T, typename F>
int reduce(Context* ctx, const char* name, const T* x, T* y, const Shape& shape,
           const Shape& rdims, F f) {
    Call call(ctx, name);
    call.shape(shape, "xshape").device(x, "x").device(y, "y").apart(x, y);
    call.rule(names_dimensions(rdims, shape.size()), "rdims must name dimensions of x, each once");
    return call.run([=] {
        const Plan steps = plan(shape, rdims);
        const T* from = at(x, product(shape));
        T* to = at(y, steps.kept);
        each_reduced(from, steps, [&](const Wide<T>* line, int64_t number) {
            to[number] = static_cast<T>(f(line, steps.reduced));
        });
    });
}

template <typename T>
int64_t best_of(const Wide<T>* line, int64_t length) {
    int64_t best = 0;
    for (int64_t i = 1; i < length; ++i) {
        best = larger(line[i], line[best]) ? i : best;
    }
    return best;
}

// bool as the byte it is: device bytes need not be 0 or 1.
template <typename F>
int reduce_flags(Context* ctx, const char* name, const bool* x, bool* y, const Shape& shape,
                 const Shape& rdims, F f) {
    return reduce(ctx, name, reinterpret_cast<const uint8_t*>(x), reinterpret_cast<uint8_t*>(y),
                  shape, rdims, f);
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

using Dims = std::vector<int64_t>;

#define REDUCE(name, expression)                                                              \
    template <typename T>                                                                     \
    int name(Context* ctx, const T* x, T* y, const Dims& xshape, const Dims& rdims) {         \
        using W = xpusim::Wide<T>;                                                            \
        return xpusim::reduce(ctx, #name, x, y, xshape, rdims,                                \
                              [](const W* line, int64_t length) { return expression; });      \
    }

REDUCE(reduce_sum, xpusim::sum_line(line, length))
REDUCE(reduce_mean, xpusim::sum_line(line, length) / static_cast<W>(length))
REDUCE(reduce_max, xpusim::fold_line(line, length, xpusim::maximum<W>))
REDUCE(reduce_min, xpusim::fold_line(line, length, xpusim::minimum<W>))

template <typename T>
int reduce_all(Context* ctx, const T* x, T* y, const Dims& xshape, const Dims& rdims) {
    return xpusim::reduce_flags(ctx, "reduce_all", x, y, xshape, rdims,
                                [](const int32_t* line, int64_t length) {
                                    return std::all_of(line, line + length,
                                                       [](int32_t v) { return v != 0; });
                                });
}

template <typename T>
int reduce_any(Context* ctx, const T* x, T* y, const Dims& xshape, const Dims& rdims) {
    return xpusim::reduce_flags(ctx, "reduce_any", x, y, xshape, rdims,
                                [](const int32_t* line, int64_t length) {
                                    return std::any_of(line, line + length,
                                                       [](int32_t v) { return v != 0; });
                                });
}

template <typename TX, typename TY>
int argmax(Context* ctx, const TX* x, TY* y, const Dims& xshape, int64_t axis) {
    xpusim::Call call(ctx, "argmax");
    call.shape(xshape, "xshape").axis(axis, xshape).device(x, "x").device(y, "y").apart(x, y);
    return call.run([=] {
        const xpusim::Lines lines(xshape, axis);
        const TX* from = xpusim::at(x, lines.count());
        TY* to = xpusim::at(y, lines.count() / lines.length);
        xpusim::each_line(from, lines, [&](const xpusim::Wide<TX>* line, int64_t number) {
            to[number] = static_cast<TY>(xpusim::best_of<TX>(line, lines.length));
        });
    });
}

#define ONE(name, T) template int name<T>(Context*, const T*, T*, const Dims&, const Dims&);
#define REAL(name) ONE(name, float) ONE(name, float16) ONE(name, bfloat16)
REAL(reduce_sum)
ONE(reduce_sum, int8_t)
ONE(reduce_sum, int32_t)
ONE(reduce_sum, int64_t)
REAL(reduce_mean)
REAL(reduce_max)
ONE(reduce_max, int32_t)
ONE(reduce_max, int64_t)
REAL(reduce_min)
ONE(reduce_min, int32_t)
ONE(reduce_min, int64_t)
ONE(reduce_all, bool)
ONE(reduce_any, bool)

#define ARGMAX(TX, TY) template int argmax<TX, TY>(Context*, const TX*, TY*, const Dims&, int64_t);
ARGMAX(float, int64_t)
ARGMAX(float16, int64_t)
ARGMAX(bfloat16, int64_t)
ARGMAX(int32_t, int64_t)
ARGMAX(int64_t, int64_t)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

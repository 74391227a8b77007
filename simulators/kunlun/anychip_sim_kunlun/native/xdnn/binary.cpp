// Elementwise operators of two inputs with broadcasting.
#include "call.h"
#include "numbers.h"
#include "walk.h"
#include "xpu/refactor/math.h"

namespace xpusim {
namespace {

// `count` elements at x, or x[0] repeated where the operand does not move.
template <typename T>
void load(const T* x, int64_t step, int64_t first, Wide<T>* chunk, int64_t count) {
    if (step == 0) {
        widen(x, chunk, 1);
        std::fill_n(chunk, count, chunk[0]);
    } else {
        widen(x + first, chunk, count);
    }
}

template <typename TZ, typename W>
void store(const W* chunk, TZ* z, int64_t count) {
    if constexpr (std::is_same_v<TZ, bool>) {
        for (int64_t i = 0; i < count; ++i) {
            z[i] = chunk[i] != 0;
        }
    } else {
        narrow(chunk, z, count);
    }
}

template <typename T, typename TZ, typename F>
void combine(const T* x, int64_t x_step, const T* y, int64_t y_step, TZ* z, int64_t len, F f) {
    Wide<T> a[kChunk], b[kChunk];
    for (int64_t i = 0; i < len; i += kChunk) {
        const int64_t count = std::min(kChunk, len - i);
        load(x, x_step, i, a, count);
        load(y, y_step, i, b, count);
        for (int64_t j = 0; j < count; ++j) {
            a[j] = static_cast<Wide<T>>(f(a[j], b[j]));
        }
        store(a, z + i, count);
    }
}

template <typename T, typename TZ, typename F>
void combine_all(const T* x, const T* y, TZ* z, const Shape& xshape, const Shape& yshape, F f) {
    const Shape wide = broadcast_shape(xshape, yshape);
    const T* a = at(x, product(xshape));
    const T* b = at(y, product(yshape));
    TZ* out = at(z, product(wide));
    const Rows<3> rows(wide, {stretched_strides(xshape, wide), stretched_strides(yshape, wide),
                              dense_strides(wide)});
    rows.each([&](const std::array<int64_t, 3>& offset) {
        combine(a + offset[0], rows.step(0), b + offset[1], rows.step(1), out + offset[2],
                rows.length(), f);
    });
}

template <typename T, typename TZ, typename F>
int binary(Context* ctx, const char* name, const T* x, const T* y, TZ* z, const Shape& xshape,
           const Shape& yshape, F f) {
    Call call(ctx, name);
    call.shape(xshape, "xshape").shape(yshape, "yshape");
    call.device(x, "x").device(y, "y").device(z, "z");
    const Shape wide = call.holds() ? broadcast_shape(xshape, yshape) : Shape{1};
    call.rule(!wide.empty(), "shapes do not broadcast");
    if (call.holds()) {
        call.shape(wide, "zshape");
    }
    return call.run([=] { combine_all(x, y, z, xshape, yshape, f); });
}

// Integers truncate; dividing one by 0 is taken as a kernel exception.
template <typename W>
W divide(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
        if (b == 0) {
            fault("integer division by", 0);
        }
    }
    return a / b;
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

using Dims = std::vector<int64_t>;

#define BINARY(name, output, expression)                                                    \
    template <typename T>                                                                   \
    int name(Context* ctx, const T* x, const T* y, output* z, const Dims& xshape,           \
             const Dims& yshape) {                                                          \
        using W = xpusim::Wide<T>;                                                          \
        return xpusim::binary(ctx, #name, x, y, z, xshape, yshape, [](W a, W b) -> W {      \
            return static_cast<W>(expression);                                              \
        });                                                                                 \
    }

BINARY(broadcast_add, T, xpusim::modular(a) + xpusim::modular(b))
BINARY(broadcast_sub, T, xpusim::modular(a) - xpusim::modular(b))
BINARY(broadcast_mul, T, xpusim::modular(a) * xpusim::modular(b))
BINARY(broadcast_div, T, xpusim::divide(a, b))
BINARY(broadcast_max, T, xpusim::maximum(a, b))
BINARY(broadcast_min, T, xpusim::minimum(a, b))
BINARY(broadcast_pow, T, std::pow(a, b))
BINARY(broadcast_equal, bool, a == b)
BINARY(broadcast_less_than, bool, a < b)
BINARY(broadcast_less_equal, bool, a <= b)

#define ONE(name, T, TZ) \
    template int name<T>(Context*, const T*, const T*, TZ*, const Dims&, const Dims&);
#define REAL(name) ONE(name, float, float) ONE(name, float16, float16) ONE(name, bfloat16, bfloat16)
#define REAL_AND_INTEGER(name) REAL(name) ONE(name, int32_t, int32_t) ONE(name, int64_t, int64_t)
REAL_AND_INTEGER(broadcast_add)
REAL_AND_INTEGER(broadcast_sub)
REAL_AND_INTEGER(broadcast_mul)
REAL_AND_INTEGER(broadcast_div)
REAL(broadcast_max)
ONE(broadcast_max, int32_t, int32_t)
REAL(broadcast_min)
REAL(broadcast_pow)

#define COMPARE(name)              \
    ONE(name, float, bool)         \
    ONE(name, float16, bool)       \
    ONE(name, bfloat16, bool)      \
    ONE(name, int32_t, bool)       \
    ONE(name, int64_t, bool)
COMPARE(broadcast_equal)
COMPARE(broadcast_less_than)
COMPARE(broadcast_less_equal)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

// constant, range, copy, cast.
#include <cstring>

#include "call.h"
#include "numbers.h"
#include "xpu/refactor/math.h"

namespace xpusim {
namespace {

// A bool in memory is any byte; everything but 0 is true.
template <typename T>
auto value_of(T value) {
    if constexpr (is_half<T>) {
        return static_cast<float>(value);
    } else {
        return value;
    }
}

template <typename TX, typename TY>
TY convert(TX value) {
    const auto wide = value_of(value);
    if constexpr (is_half<TY>) {
        return TY(static_cast<float>(wide));
    } else if constexpr (std::is_same_v<TY, bool>) {
        return wide != 0;
    } else if constexpr (std::is_same_v<decltype(wide), const float> && std::is_integral_v<TY>) {
        return truncate<TY>(wide);
    } else {
        return static_cast<TY>(wide);
    }
}

template <typename TX, typename TY>
void convert_all(const TX* x, TY* y, int64_t len) {
    using Source = std::conditional_t<std::is_same_v<TX, bool>, uint8_t, TX>;
    const auto* source = reinterpret_cast<const Source*>(x);
    for (int64_t i = 0; i < len; ++i) {
        if constexpr (std::is_same_v<TX, bool>) {
            y[i] = convert<int32_t, TY>(source[i] != 0 ? 1 : 0);
        } else {
            y[i] = convert<TX, TY>(source[i]);
        }
    }
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

template <typename T>
int constant(Context* ctx, T* x, int64_t len, T val) {
    xpusim::Call call(ctx, "constant");
    call.positive(len, "len").device(x, "x");
    return call.run([=] { std::fill_n(xpusim::at(x, len), len, val); });
}

template <typename T>
int range(Context* ctx, T* y, T begin, T step, int64_t len) {
    xpusim::Call call(ctx, "range");
    call.positive(len, "len").device(y, "y");
    return call.run([=] {
        T* out = xpusim::at(y, len);
        for (int64_t i = 0; i < len; ++i) {
            out[i] = static_cast<T>(begin + step * static_cast<T>(i));
        }
    });
}

template <typename T>
int copy(Context* ctx, const T* x, T* y, int64_t len) {
    xpusim::Call call(ctx, "copy");
    call.positive(len, "len").device(x, "x").device(y, "y");
    return call.run([=] {
        const T* from = xpusim::at(x, len);
        std::memmove(xpusim::at(y, len), from, static_cast<size_t>(len) * sizeof(T));
    });
}

template <typename TX, typename TY>
int cast(Context* ctx, const TX* x, TY* y, int64_t len) {
    xpusim::Call call(ctx, "cast");
    call.positive(len, "len").device(x, "x").device(y, "y").apart(x, y);
    return call.run([=] {
        const TX* from = xpusim::at(x, len);
        xpusim::convert_all(from, xpusim::at(y, len), len);
    });
}

#define CONSTANT(T) template int constant<T>(Context*, T*, int64_t, T);
CONSTANT(float)
CONSTANT(float16)
CONSTANT(bfloat16)
CONSTANT(int8_t)
CONSTANT(uint8_t)
CONSTANT(int32_t)
CONSTANT(int64_t)
CONSTANT(bool)

#define RANGE(T) template int range<T>(Context*, T*, T, T, int64_t);
RANGE(float)
RANGE(int32_t)
RANGE(int64_t)

#define COPY(T) template int copy<T>(Context*, const T*, T*, int64_t);
COPY(float)
COPY(float16)
COPY(int8_t)
COPY(int32_t)
COPY(int64_t)
COPY(bool)

#define CAST(TX, TY) template int cast<TX, TY>(Context*, const TX*, TY*, int64_t);
#define CAST_BOTH(TA, TB) CAST(TA, TB) CAST(TB, TA)
CAST_BOTH(float, bfloat16)
CAST_BOTH(float, float16)
CAST_BOTH(float, int8_t)
CAST_BOTH(float, uint8_t)
CAST_BOTH(float, int32_t)
CAST_BOTH(float, int64_t)
CAST_BOTH(float, bool)
CAST_BOTH(float16, int8_t)
CAST_BOTH(float16, uint8_t)
CAST_BOTH(float16, int32_t)
CAST_BOTH(float16, int64_t)
CAST_BOTH(float16, bool)
CAST_BOTH(int8_t, uint8_t)
CAST_BOTH(int8_t, int32_t)
CAST_BOTH(int8_t, int64_t)
CAST_BOTH(int8_t, bool)
CAST_BOTH(uint8_t, int32_t)
CAST_BOTH(uint8_t, int64_t)
CAST_BOTH(uint8_t, bool)
CAST_BOTH(int32_t, int64_t)
CAST_BOTH(int32_t, bool)
CAST_BOTH(int64_t, bool)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

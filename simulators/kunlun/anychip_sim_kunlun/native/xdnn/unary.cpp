// Arithmetic and tests of one input, and the logical operators.
#include "unary.h"

#include "xpu/refactor/math.h"

namespace xpusim {
namespace {

// Device bytes are any value; as bool everything but 0 is true.
const uint8_t* bytes(const bool* x, int64_t len) {
    return reinterpret_cast<const uint8_t*>(at(x, len));
}

template <typename F>
int logical(Context* ctx, const char* name, const bool* x, const bool* y, bool* z, int64_t len,
            F f) {
    Call call(ctx, name);
    call.positive(len, "len").device(x, "x").device(y, "y").device(z, "z");
    return call.run([=] {
        const uint8_t* a = bytes(x, len);
        const uint8_t* b = bytes(y, len);
        bool* out = at(z, len);
        for (int64_t i = 0; i < len; ++i) {
            out[i] = f(a[i] != 0, b[i] != 0);
        }
    });
}

template <typename T, typename F>
int test(Context* ctx, const char* name, const T* x, bool* y, int64_t len, F f) {
    Call call(ctx, name);
    call.positive(len, "len").device(x, "x").device(y, "y");
    return call.run([=] {
        const T* from = at(x, len);
        bool* to = at(y, len);
        for (int64_t i = 0; i < len; ++i) {
            to[i] = f(static_cast<float>(from[i]));
        }
    });
}

// Integers are scaled in double, then truncated.
template <typename W>
W scaled(W x, bool bias_after_scale, float scale, float bias) {
    if constexpr (std::is_same_v<W, float>) {
        return bias_after_scale ? x * scale + bias : (x + bias) * scale;
    } else {
        const auto value = static_cast<double>(x);
        return static_cast<W>(bias_after_scale ? value * scale + bias : (value + bias) * scale);
    }
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

template <typename T>
int abs(Context* ctx, const T* x, T* y, int64_t len) {
    return xpusim::unary(ctx, "abs", x, y, len, [](float v) { return std::fabs(v); });
}

template <typename T>
int exp(Context* ctx, const T* x, T* y, int64_t len) {
    return xpusim::unary(ctx, "exp", x, y, len, [](float v) { return std::exp(v); });
}

template <typename T>
int log(Context* ctx, const T* x, T* y, int64_t len) {
    return xpusim::unary(ctx, "log", x, y, len, [](float v) { return std::log(v); });
}

template <typename T>
int neg(Context* ctx, const T* x, T* y, int64_t len) {
    return xpusim::unary(ctx, "neg", x, y, len, [](float v) { return -v; });
}

template <typename T>
int sqrt(Context* ctx, const T* x, T* y, int64_t len) {
    return xpusim::unary(ctx, "sqrt", x, y, len, [](float v) { return std::sqrt(v); });
}

template <typename T>
int rsqrt(Context* ctx, const T* x, T* y, int64_t len) {
    return xpusim::unary(ctx, "rsqrt", x, y, len, [](float v) { return 1.0f / std::sqrt(v); });
}

template <typename T>
int floor(Context* ctx, const T* x, T* y, int64_t len) {
    return xpusim::unary(ctx, "floor", x, y, len, [](float v) { return std::floor(v); });
}

// Halves go to even: a guess, made since Paddle moved to an operator of its own name.
template <typename T>
int round(Context* ctx, const T* x, T* y, int64_t len, int64_t decimals) {
    xpusim::Call call(ctx, "round");
    call.positive(len, "len").device(x, "x").device(y, "y");
    call.rule(decimals >= -6 && decimals <= 6, "decimals must lie in -6 to 6");
    const auto unit = static_cast<float>(std::pow(10.0, static_cast<double>(decimals)));
    return xpusim::queue_map(call, x, y, len,
                             [=](float v) { return std::nearbyint(v * unit) / unit; });
}

template <typename T>
int scale(Context* ctx, const T* x, T* y, int64_t len, bool bias_after_scale, float _scale,
          float _bias) {
    return xpusim::unary(ctx, "scale", x, y, len, [=](xpusim::Wide<T> v) {
        return xpusim::scaled(v, bias_after_scale, _scale, _bias);
    });
}

template <typename T>
int clip(Context* ctx, const T* x, T* y, int64_t len, T min_val, T max_val) {
    using W = xpusim::Wide<T>;
    const auto low = static_cast<W>(min_val);
    const auto high = static_cast<W>(max_val);
    xpusim::Call call(ctx, "clip");
    call.positive(len, "len").device(x, "x").device(y, "y");
    call.rule(low <= high, "min_val must not exceed max_val");
    return xpusim::queue_map(call, x, y, len, [=](W v) {
        return v < low ? low : (v > high ? high : v);
    });
}

template <typename T>
int isnan(Context* ctx, const T* x, bool* y, int64_t len) {
    return xpusim::test(ctx, "isnan", x, y, len, [](float v) { return std::isnan(v); });
}

template <typename T>
int isfinite(Context* ctx, const T* x, bool* y, int64_t len) {
    return xpusim::test(ctx, "isfinite", x, y, len, [](float v) { return std::isfinite(v); });
}

template <typename T>
int logical_not(Context* ctx, const T* x, T* y, int64_t len) {
    return xpusim::logical(ctx, "logical_not", x, x, y, len, [](bool a, bool) { return !a; });
}

template <typename T>
int logical_and(Context* ctx, const T* x, const T* y, T* z, int64_t len) {
    return xpusim::logical(ctx, "logical_and", x, y, z, len, [](bool a, bool b) { return a && b; });
}

template <typename T>
int logical_or(Context* ctx, const T* x, const T* y, T* z, int64_t len) {
    return xpusim::logical(ctx, "logical_or", x, y, z, len, [](bool a, bool b) { return a || b; });
}

#define PLAIN(name, T) template int name<T>(Context*, const T*, T*, int64_t);
#define PLAIN_REAL(name) PLAIN(name, float) PLAIN(name, float16) PLAIN(name, bfloat16)
PLAIN(abs, float)
PLAIN(abs, float16)
PLAIN(neg, float)
PLAIN_REAL(exp)
PLAIN_REAL(log)
PLAIN_REAL(sqrt)
PLAIN_REAL(rsqrt)
PLAIN_REAL(floor)
PLAIN(logical_not, bool)

#define ROUND(T) template int round<T>(Context*, const T*, T*, int64_t, int64_t);
ROUND(float)
ROUND(float16)
ROUND(bfloat16)

#define SCALE(T) template int scale<T>(Context*, const T*, T*, int64_t, bool, float, float);
SCALE(float)
SCALE(float16)
SCALE(bfloat16)
SCALE(int32_t)
SCALE(int64_t)

template int clip<float>(Context*, const float*, float*, int64_t, float, float);

#define TEST(name, T) template int name<T>(Context*, const T*, bool*, int64_t);
TEST(isnan, float)
TEST(isnan, float16)
TEST(isnan, bfloat16)
TEST(isfinite, float)
TEST(isfinite, float16)
TEST(isfinite, bfloat16)

#define LOGICAL(name) template int name<bool>(Context*, const bool*, const bool*, bool*, int64_t);
LOGICAL(logical_and)
LOGICAL(logical_or)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

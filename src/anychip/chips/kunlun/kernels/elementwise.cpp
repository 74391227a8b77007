// Elementwise primitives. Floats are computed as float32 and rounded when they are stored: a cast
// to float32 loses nothing, so every float type takes the same vendor call.
#include "compose.h"

using namespace shim;

namespace {

using Step = Array<float> (*)(Run&, const Array<float>& x, float* into);

void unary(Run& run, Step step) {
    const View output = run.view(1);
    if (output.size() == 0) {
        return;
    }
    const Array<float> x = floats(run, run.view(0));
    store(run, step(run, x, target(run, output).at), output);
}

bool as_computed(const View& view) {
    return view.contiguous() && (view.dtype == FLOAT32 || view.dtype == INT32);
}

// Whether the call is only asked for its workspace. That must not shrink when the result grows
// while an operand goes from its size to one that is stretched: each is given the result's size.
bool asked_for_two(Run& run, const View& output) {
    if (run.measuring() && !(as_computed(run.view(0)) && as_computed(run.view(1)))) {
        for (int arrays = 0; arrays < 5; ++arrays) {  // both packed, both cast, the result
            run.take<float>(output.size());
        }
    }
    return run.measuring() || output.size() == 0;
}

// Integers where they have a vendor call, floats otherwise.
void binary(Run& run, const char* name, Broadcast<float> f, Broadcast<int> whole = nullptr) {
    const View output = run.view(2);
    if (asked_for_two(run, output)) {
        return;
    }
    if (output.dtype == INT32 && whole != nullptr) {
        zip(run, name, whole, integers(run, run.view(0)), integers(run, run.view(1)),
            static_cast<int*>(output.at));
        return;
    }
    const Array<float> a = floats(run, run.view(0));
    const Array<float> b = floats(run, run.view(1));
    const Array<float> y = zip(run, name, f, a, b, target(run, output).at);
    store(run, y, output);
}

void comparison(Run& run, const char* name, Comparison<float> f, Comparison<int> whole) {
    const View output = run.view(2);
    if (asked_for_two(run, output)) {
        return;
    }
    auto* into = static_cast<bool*>(output.at);
    if (run.view(0).dtype == INT32) {
        shim::compare(run, name, whole, integers(run, run.view(0)), integers(run, run.view(1)),
                      into);
        return;
    }
    shim::compare(run, name, f, floats(run, run.view(0)), floats(run, run.view(1)), into);
}

// Halves to even, whatever the vendor's own rounding does with them: floor is exact.
Array<float> rounded(Run& run, const Array<float>& x, float* into) {
    const Array<float> below = MAP(run, api::floor<float>, x);
    const Array<float> rest = ZIP(run, api::broadcast_sub<float>, x, below);
    const Array<float> half = MAP(run, api::floor<float>, scaled(run, below, 0.5));
    const Array<float> odd =
        ZIP(run, api::broadcast_sub<float>, below, scaled(run, half, 2.0));
    const Array<float> middle = constant(run, 0.5f);
    const Array<bool> up = COMPARE(run, api::broadcast_less_than<float>, middle, rest);
    const Array<bool> tie = COMPARE(run, api::broadcast_equal<float>, middle, rest);
    const Array<float> even = ZIP(run, api::broadcast_add<float>, below, odd);
    const Array<float> above = scaled(run, below, 1.0, 1.0);
    return where(run, up, above, where(run, tie, even, below), into);
}

// Towards zero.
Array<float> truncated(Run& run, const Array<float>& x) {
    const Array<float> up = MAP(run, api::floor<float>, x);
    const Array<float> turned = MAP(run, api::floor<float>, MAP(run, api::neg<float>, x));
    const Array<float> down = MAP(run, api::neg<float>, turned);
    const Array<bool> below =
        COMPARE(run, api::broadcast_less_than<float>, x, constant(run, 0.0f));
    return where(run, below, down, up);
}

Array<int> whole_numbers(Run& run, const View& view) {
    switch (view.dtype) {
        case INT32: return dense<int>(run, view);
        case INT8: return cast<int>(run, dense<int8_t>(run, view));
        case UINT8: return cast<int>(run, dense<uint8_t>(run, view));
        case BOOL: return cast<int>(run, dense<bool>(run, view));
        default: return cast<int>(run, truncated(run, floats(run, view)));
    }
}

bool is_float(DType dtype) {
    return dtype == FLOAT32 || dtype == FLOAT16 || dtype == BFLOAT16;
}

Array<bool> is_zero(Run& run, const View& view) {
    if (is_float(view.dtype)) {
        return COMPARE(run, api::broadcast_equal<float>, floats(run, view), constant(run, 0.0f));
    }
    return COMPARE(run, api::broadcast_equal<int>, whole_numbers(run, view), constant(run, 0));
}

void cast_to_bool(Run& run, const View& view, bool* into) {
    const Array<bool> zero = is_zero(run, view);
    VENDOR(run, api::logical_not<bool>, zero.at, into, zero.size());
}

void cast_to_whole(Run& run, const View& view, const View& output) {
    const Array<int> numbers = whole_numbers(run, view);
    if (output.dtype == INT8) {
        cast(run, numbers, static_cast<int8_t*>(output.at));
    } else if (output.dtype == UINT8) {
        cast(run, numbers, static_cast<uint8_t*>(output.at));
    } else if (numbers.at != output.at) {
        VENDOR(run, api::copy<int>, numbers.at, static_cast<int*>(output.at), numbers.size());
    }
}

void copy_view(Run& run, const View& view, void* into) {
    with_moved(view.dtype, [&](auto one) {
        pack(run, view, static_cast<decltype(one)*>(into));
    });
}

void filled(Run& run, const View& output, double value) {
    const auto size = output.size();
    switch (output.dtype) {
        case INT32:
            VENDOR(run, api::constant<int>, static_cast<int*>(output.at), size,
                   static_cast<int>(value));
            return;
        case INT8:
        case UINT8:
            VENDOR(run, api::constant<int8_t>, static_cast<int8_t*>(output.at), size,
                   static_cast<int8_t>(static_cast<int>(value)));
            return;
        case BOOL:
            VENDOR(run, api::constant<int8_t>, static_cast<int8_t*>(output.at), size,
                   static_cast<int8_t>(value != 0));
            return;
        default: store(run, constant(run, static_cast<float>(value), output.shape), output);
    }
}

}  // namespace

#define UNARY(name, function)                                                             \
    OPERATOR(name) {                                                                      \
        unary(run, [](Run& r, const Array<float>& x, float* into) {                       \
            return MAP(r, function, x, into);                                             \
        });                                                                               \
    }
UNARY(exp, api::exp<float>)
UNARY(log, api::log<float>)
UNARY(neg, api::neg<float>)
UNARY(rsqrt, api::rsqrt<float>)
UNARY(sqrt, api::sqrt<float>)
UNARY(abs, api::abs<float>)

// Vendor functions that can also carry maxima of quantized values: none here.
#define ACTIVATION(name, function)                                                        \
    OPERATOR(name) {                                                                      \
        unary(run, [](Run& r, const Array<float>& x, float* into) {                       \
            VENDOR(r, function, x.at, into, x.size(), nullptr, nullptr);                  \
            return Array<float>{into, x.shape};                                           \
        });                                                                               \
    }
ACTIVATION(sigmoid, api::sigmoid<float>)
ACTIVATION(tanh, api::tanh<float>)
ACTIVATION(silu, api::swish<float>)
ACTIVATION(gelu_tanh, api::approximate_gelu<float>)

OPERATOR(round) {
    unary(run, rounded);
}

#define BINARY(name, function)                                                            \
    OPERATOR(name) { binary(run, #function, function<float>); }
#define NUMBERS(name, function)                                                           \
    OPERATOR(name) { binary(run, #function, function<float>, function<int>); }
NUMBERS(add, api::broadcast_add)
NUMBERS(sub, api::broadcast_sub)
NUMBERS(mul, api::broadcast_mul)
NUMBERS(maximum, api::broadcast_max)
BINARY(div, api::broadcast_div)
BINARY(pow, api::broadcast_pow)

// The vendor has no smaller one of two integers.
OPERATOR(minimum) {
    const View output = run.view(2);
    if (output.dtype != INT32) {
        binary(run, "api::broadcast_min", api::broadcast_min<float>);
        return;
    }
    if (output.size() == 0) {
        return;
    }
    const Array<int> a = integers(run, run.view(0));
    const Array<int> b = integers(run, run.view(1));
    const Array<bool> below = COMPARE(run, api::broadcast_less_than<int>, a, b);
    where(run, below, a, b, static_cast<int*>(output.at));
}

#define COMPARISON(name, function)                                                        \
    OPERATOR(name) { comparison(run, #function, function<float>, function<int>); }
COMPARISON(lt, api::broadcast_less_than)
COMPARISON(le, api::broadcast_less_equal)
COMPARISON(eq, api::broadcast_equal)

OPERATOR(where) {
    const View output = run.view(3);
    if (output.size() == 0) {
        return;
    }
    const Array<bool> condition = dense<bool>(run, run.view(0));
    if (output.dtype == INT32) {
        where(run, condition, integers(run, run.view(1)), integers(run, run.view(2)),
              static_cast<int*>(output.at));
        return;
    }
    const Array<float> a = floats(run, run.view(1));
    const Array<float> b = floats(run, run.view(2));
    store(run, where(run, condition, a, b, target(run, output).at), output);
}

OPERATOR(copy) {
    if (run.view(1).size() != 0) {
        copy_view(run, run.view(0), run.view(1).at);
    }
}

OPERATOR(cast) {
    const View x = run.view(0);
    const View y = run.view(1);
    if (y.size() == 0) {
        return;
    }
    if (x.dtype == y.dtype) {
        copy_view(run, x, y.at);
    } else if (y.dtype == BOOL) {
        cast_to_bool(run, x, static_cast<bool*>(y.at));
    } else if (!is_float(y.dtype)) {
        cast_to_whole(run, x, y);
    } else if (is_float(x.dtype)) {
        store(run, floats(run, x), y);
    } else {
        store(run, cast<float>(run, whole_numbers(run, x), target(run, y).at), y);
    }
}

OPERATOR(fill) {
    const View output = run.view(0);
    if (output.size() != 0) {
        filled(run, output, run.attribute(1));
    }
}

OPERATOR(arange) {
    const View output = run.view(0);
    const int64_t length = output.size();
    if (length == 0) {
        return;
    }
    if (output.dtype == INT32) {
        VENDOR(run, api::range<int>, static_cast<int*>(output.at), 0, 1, length);
        return;
    }
    const Array<float> y = target(run, output);
    VENDOR(run, api::range<float>, y.at, 0.0f, 1.0f, length);
    store(run, y, output);
}

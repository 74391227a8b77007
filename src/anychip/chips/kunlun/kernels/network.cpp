// A network's operators outside attention and products: lookups, norms, gated units.
#include "compose.h"

using namespace shim;

namespace {

// A norm's weight is float32 whatever its rows are: TW is float.
template <class T>
void norm(Run& run, const Array<T>& x, const View& weight, T* y, float eps) {
    const float* none = nullptr;
    VENDOR(run, (api::rms_layer_norm<T, float>), x.at, y, x.shape[0], x.shape[1], eps,
           static_cast<const float*>(weight.at), none, nullptr, false);
}

// Both halves of each row, as float32.
struct Gated {
    Array<float> gate;
    Array<float> up;
};

Gated halves_of(Run& run, const View& x) {
    View gate = x;
    gate.shape[1] /= 2;
    View up = gate;
    const int64_t size = x.dtype == FLOAT32 ? 4 : 2;
    up.at = static_cast<char*>(x.at) + gate.shape[1] * size;
    return {floats(run, gate), floats(run, up)};
}

using Activation = int (*)(api::Context*, const float*, float*, int64_t, const float*, float*);

void gated(Run& run, const char* name, Activation activation) {
    const View output = run.view(1);
    const Gated x = halves_of(run, run.view(0));
    const Array<float> active = run.array<float>(output.shape);
    run.invoke(name, activation, x.gate.at, active.at, active.size(), nullptr, nullptr);
    const Array<float> y = target(run, output);
    store(run, ZIP(run, api::broadcast_mul<float>, active, x.up, y.at), output);
}

// A row of the vendor's gated unit is a multiple of this many bytes.
constexpr int64_t GATED_ROW_BYTES = 16;

}  // namespace

OPERATOR(embedding) {
    const View output = run.view(2);
    if (output.size() == 0) {
        return;
    }
    const View table = run.view(1);
    const Array<int> tokens = integers(run, run.view(0));
    const double scale = run.attribute(1);
    with_float(run, table.dtype, [&](auto one) {
        using T = decltype(one);
        using M = Moved<T>;
        const Array<M> held{static_cast<M*>(table.at), table.shape};
        const bool plain = output.dtype == table.dtype && scale == 1.0;
        const Array<M> rows =
            rows_of(run, held, tokens, plain ? static_cast<M*>(output.at) : nullptr);
        if (!plain) {
            const View found{rows.at, table.dtype, rows.shape, {rows.shape[1], 1}};
            const Array<float> wide = floats(run, found);
            store(run, scale == 1.0 ? wide : scaled(run, wide, scale), output);
        }
    });
}

OPERATOR(rms_norm) {
    const View output = run.view(2);
    if (output.size() == 0) {
        return;
    }
    const auto eps = static_cast<float>(run.attribute(0));
    with_float(run, output.dtype, [&](auto one) {
        using T = decltype(one);
        norm(run, dense<T>(run, run.view(0)), run.view(1), static_cast<T*>(output.at), eps);
    });
}

OPERATOR(add_rms_norm) {
    const View output = run.view(3);
    if (output.size() == 0) {
        return;
    }
    const auto eps = static_cast<float>(run.attribute(0));
    with_float(run, output.dtype, [&](auto one) {
        using T = decltype(one);
        const View x = run.view(0);
        const float* none = nullptr;
        VENDOR(run, api::add_rms_layer_norm_fusion<T>, static_cast<const T*>(x.at),
               static_cast<const T*>(run.view(1).at), static_cast<T*>(output.at), x.shape[0],
               x.shape[1], eps, static_cast<const float*>(run.view(2).at), none, nullptr,
               static_cast<T*>(run.view(4).at), nullptr);
    });
}

OPERATOR(silu_and_mul) {
    const View x = run.view(0);
    const View output = run.view(1);
    if (output.size() == 0) {
        return;
    }
    with_float(run, x.dtype, [&](auto one) {
        using T = decltype(one);
        const bool whole = x.shape[1] * static_cast<int64_t>(sizeof(T)) % GATED_ROW_BYTES == 0;
        if (run.measuring() || !whole) {  // a wider row must not need less workspace
            gated(run, "api::swish", api::swish<float>);
            return;
        }
        VENDOR(run, api::fast_swiglu<T>, static_cast<const T*>(x.at), static_cast<T*>(output.at),
               x.shape, int64_t{1}, true, nullptr, nullptr);
    });
}

OPERATOR(gelu_tanh_and_mul) {
    if (run.view(1).size() != 0) {
        gated(run, "api::approximate_gelu", api::approximate_gelu<float>);
    }
}

OPERATOR(softcap) {
    const View output = run.view(1);
    if (output.size() == 0) {
        return;
    }
    const double cap = run.attribute(0);
    const Array<float> small = scaled(run, floats(run, run.view(0)), 1.0 / cap);
    const Array<float> bent = run.array<float>(output.shape);
    VENDOR(run, api::tanh<float>, small.at, bent.at, bent.size(), nullptr, nullptr);
    store(run, scaled(run, bent, cap, 0, target(run, output).at), output);
}

#define DISTRIBUTION(name)                                                                    \
    OPERATOR(name) {                                                                          \
        const View x = run.view(0);                                                           \
        if (x.size() != 0) {                                                                  \
            VENDOR(run, api::name<float>, static_cast<const float*>(x.at),                    \
                   static_cast<float*>(run.view(1).at), x.shape, int64_t{1});                 \
        }                                                                                     \
    }
DISTRIBUTION(softmax)
DISTRIBUTION(log_softmax)

// Over the last dimension, and rows by index.
#include "compose.h"

using namespace shim;

namespace {

// [..., n] as [rows, n].
template <class T>
Array<T> by_rows(const Array<T>& x) {
    const int64_t n = x.shape.empty() ? 1 : x.shape.back();
    return x.with({n == 0 ? 0 : x.size() / n, n});
}

void reduction(Run& run, const char* name, Reduction<float> f) {
    const View output = run.view(1);
    if (output.size() == 0) {
        return;
    }
    const Array<float> x = by_rows(floats(run, run.view(0)));
    const Array<float> y = shim::reduce(run, name, f, x, target(run, output).at);
    store(run, y, output);
}

// Every element of each row in descending order, equal ones as they stood.
struct Sorted {
    Array<float> values;
    Array<int> indices;
};

Sorted sorted(Run& run, const Array<float>& x, float* values, int* indices) {
    Sorted y{{values, x.shape}, {indices, x.shape}};
    VENDOR(run, (api::stable_sort<float, int>), x.at, values, indices, x.shape[0], x.shape[1],
           true);
    return y;
}

// The first k columns.
template <class T>
View front(const Array<T>& x, int64_t k, DType dtype) {
    return {x.at, dtype, {x.shape[0], k}, {x.shape[1], 1}};
}

template <class T>
void running_sum(Run& run, const Array<T>& x, T* into) {
    const Array<T> rows = by_rows(x);
    VENDOR(run, api::cumsum<T>, rows.at, into, rows.shape, false, false, int64_t{1});
}

}  // namespace

#define REDUCTION(name) \
    OPERATOR(name) { reduction(run, "api::" #name, api::name<float>); }
REDUCTION(reduce_sum)
REDUCTION(reduce_mean)
REDUCTION(reduce_max)
REDUCTION(reduce_min)

OPERATOR(cumsum) {
    const View output = run.view(1);
    if (output.size() == 0) {
        return;
    }
    if (output.dtype == INT32) {
        running_sum(run, integers(run, run.view(0)), static_cast<int*>(output.at));
        return;
    }
    const Array<float> y = target(run, output);
    running_sum(run, floats(run, run.view(0)), y.at);
    store(run, y, output);
}

OPERATOR(argmax) {
    const View output = run.view(1);
    if (output.size() != 0) {
        const Array<float> x = by_rows(floats(run, run.view(0)));
        first_largest(run, x, static_cast<int*>(output.at));
    }
}

OPERATOR(greedy) {
    body_argmax(run);
}

OPERATOR(sort) {
    const View output = run.view(1);
    if (output.size() == 0) {
        return;
    }
    const Array<float> x = by_rows(floats(run, run.view(0)));
    auto* indices = static_cast<int*>(run.view(2).at);
    store(run, sorted(run, x, target(run, output).at, indices).values, output);
}

OPERATOR(topk) {
    const View output = run.view(1);
    if (output.size() == 0) {
        return;
    }
    const Array<float> x = by_rows(floats(run, run.view(0)));
    const Sorted all = sorted(run, x, run.take<float>(x.size()), run.take<int>(x.size()));
    const int64_t k = output.shape.back();
    pack(run, front(all.indices, k, INT32), static_cast<int*>(run.view(2).at));
    const Array<float> values = target(run, output);
    pack(run, front(all.values, k, FLOAT32), values.at);
    store(run, values, output);
}

OPERATOR(gather_rows) {
    const View output = run.view(2);
    if (output.size() == 0) {
        return;
    }
    const View table = run.view(0);
    with_row(run, table.dtype, [&](auto one) {
        using T = decltype(one);
        rows_of(run, dense<T>(run, table), integers(run, run.view(1)),
                static_cast<T*>(output.at));
    });
}

OPERATOR(scatter_rows) {
    const View source = run.view(1);
    if (source.size() == 0) {
        return;
    }
    const View table = run.view(0);
    with_row(run, table.dtype, [&](auto one) {
        using T = decltype(one);
        put_rows(run, dense<T>(run, table), integers(run, run.view(2)), dense<T>(run, source));
    });
}

// A skipped row adds zeros to row 0.
OPERATOR(scatter_add_rows) {
    const View view = run.view(1);
    if (view.size() == 0) {
        return;
    }
    const Array<int> index = integers(run, run.view(2));
    const Array<float> source = floats(run, view);
    const Array<float> held = as_rows(floats(run, run.view(0)));
    const int64_t length = index.size();
    const Array<int> zero = constant(run, 0);
    const Array<bool> skipped =
        COMPARE(run, api::broadcast_less_than<int>, index.with({length, 1}), zero);
    const Array<float> none = constant(run, 0.0f);
    const Array<float> rows = where(run, skipped, none, source.with({length, held.shape[1]}));
    const Array<int> places = ZIP(run, api::broadcast_max<int>, index.with({length}), zero);
    const Array<float> sums = run.array<float>(held.shape);
    VENDOR(run, (api::index_add<float, int>), held.at, rows.at, sums.at, places.at, held.shape,
           length, int64_t{0}, 1.0f);
    VENDOR(run, api::copy<float>, sums.at, held.at, held.size());
}

// Ones are added up in one float row more than there are bins: what is outside lands there.
OPERATOR(histogram) {
    const View output = run.view(1);
    const int64_t bins = output.size();
    if (bins == 0) {
        return;
    }
    auto* into = static_cast<int*>(output.at);
    const View given = run.view(0);
    if (given.size() == 0) {
        VENDOR(run, api::constant<int>, into, bins, 0);
        return;
    }
    const Array<int> index = integers(run, given).with({given.size()});
    const Array<int> behind = constant(run, static_cast<int>(bins));
    const Array<bool> inside = COMPARE(run, api::broadcast_less_than<int>, index, behind);
    const Array<bool> below =
        COMPARE(run, api::broadcast_less_than<int>, index, constant(run, 0));
    const Array<bool> counted = both(run, inside, negation(run, below));
    const Array<int> places = where(run, counted, index, behind);
    const Array<float> zeros = constant(run, 0.0f, {bins + 1, 1});
    const Array<float> ones = constant(run, 1.0f, {index.size(), 1});
    const Array<float> sums = run.array<float>(zeros.shape);
    VENDOR(run, (api::index_add<float, int>), zeros.at, ones.at, sums.at, places.at, zeros.shape,
           index.size(), int64_t{0}, 1.0f);
    cast(run, Array<float>{sums.at, {bins}}, into);
}

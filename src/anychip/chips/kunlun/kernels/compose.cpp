// The small steps: what each vendor call takes, in one place.
#include "compose.h"

#include <algorithm>
#include <limits>

namespace shim {
namespace {

// Drops dimensions of size 1 and joins those that lie one behind the other: vendor calls have a
// limit of dimensions.
View folded(const View& view) {
    View y{view.at, view.dtype, {}, {}};
    for (size_t i = 0; i < view.shape.size(); ++i) {
        const int64_t size = view.shape[i];
        const int64_t step = view.strides[i];
        if (size == 1) {
            continue;
        }
        if (!y.shape.empty() && y.strides.back() == size * step) {
            y.shape.back() *= size;
            y.strides.back() = step;
        } else {
            y.shape.push_back(size);
            y.strides.push_back(step);
        }
    }
    if (y.shape.empty()) {
        y.shape = {1};
        y.strides = {1};
    }
    return y;
}

Shape padded(const Shape& shape, size_t rank) {
    Shape y(rank - shape.size(), 1);
    y.insert(y.end(), shape.begin(), shape.end());
    return y;
}

// Two shapes of one rank, dimensions joined where both go on alike.
struct Pair {
    Shape a;
    Shape b;
};

bool joins(const Pair& pair, int64_t a, int64_t b) {
    const int64_t left = pair.a.back();
    const int64_t right = pair.b.back();
    return (left == right && a == b) || (left == 1 && a == 1) || (right == 1 && b == 1);
}

Pair folded(const Shape& a, const Shape& b) {
    const size_t rank = std::max<size_t>({a.size(), b.size(), 1});
    const Shape wide = padded(a, rank);
    const Shape other = padded(b, rank);
    Pair y{{wide[0]}, {other[0]}};
    for (size_t i = 1; i < rank; ++i) {
        if (joins(y, wide[i], other[i])) {
            y.a.back() *= wide[i];
            y.b.back() *= other[i];
        } else {
            y.a.push_back(wide[i]);
            y.b.push_back(other[i]);
        }
    }
    return y;
}

}  // namespace

Shape common(const Shape& a, const Shape& b) {
    const size_t rank = std::max(a.size(), b.size());
    Shape y = padded(a, rank);
    const Shape other = padded(b, rank);
    for (size_t i = 0; i < rank; ++i) {
        y[i] = y[i] == 1 ? other[i] : y[i];
    }
    return y;
}

template <class T>
void pack(Run& run, const View& view, T* target) {
    const auto* at = static_cast<const T*>(view.at);
    if (view.contiguous()) {
        VENDOR(run, api::copy<T>, at, target, view.size());
        return;
    }
    const View y = folded(view);
    VENDOR(run, api::as_strided<T>, at, target, y.shape, y.strides, int64_t{0});
}

template <class TO, class FROM>
Array<TO> cast(Run& run, const Array<FROM>& x, TO* into) {
    Array<TO> y{into != nullptr ? into : run.take<TO>(x.size()), x.shape};
    VENDOR(run, (api::cast<FROM, TO>), x.at, y.at, x.size());
    return y;
}

Array<float> floats(Run& run, const View& view) {
    switch (view.dtype) {
        case FLOAT32: return dense<float>(run, view);
        case FLOAT16: return cast<float>(run, dense<float16>(run, view));
        case BFLOAT16: return cast<float>(run, dense<bfloat16>(run, view));
        default: run.fail(BAD_TYPE); return {nullptr, view.shape};
    }
}

Array<int> integers(Run& run, const View& view) {
    if (view.dtype != INT32) {
        run.fail(BAD_TYPE);
    }
    return dense<int>(run, view);
}

Array<float> target(Run& run, const View& output) {
    if (output.dtype == FLOAT32) {
        return {static_cast<float*>(output.at), output.shape};
    }
    return run.array<float>(output.shape);
}

void store(Run& run, const Array<float>& values, const View& output) {
    if (values.at == output.at) {
        return;
    }
    with_float(run, output.dtype, [&](auto one) {
        using T = decltype(one);
        auto* at = static_cast<T*>(output.at);
        if constexpr (std::is_same_v<T, float>) {
            VENDOR(run, api::copy<float>, values.at, at, values.size());
        } else {
            cast<T>(run, values, at);
        }
    });
}

template <class T>
Array<T> constant(Run& run, T value, Shape shape) {
    Array<T> y = run.array<T>(std::move(shape));
    VENDOR(run, api::constant<T>, y.at, y.size(), value);
    return y;
}

void zeros(Run& run, const View& output) {
    const Array<float> y = target(run, output);
    VENDOR(run, api::constant<float>, y.at, y.size(), 0.0f);
    store(run, y, output);
}

Array<float> map(Run& run, const char* name, FloatFunction f, const Array<float>& x, float* into) {
    Array<float> y{into != nullptr ? into : run.take<float>(x.size()), x.shape};
    run.invoke(name, f, x.at, y.at, x.size());
    return y;
}

template <class T>
Array<T> zip(Run& run, const char* name, Broadcast<T> f, const Array<T>& a, const Array<T>& b,
             T* into) {
    const Shape shape = common(a.shape, b.shape);
    Array<T> y{into != nullptr ? into : run.take<T>(count(shape)), shape};
    const Pair pair = folded(a.shape, b.shape);
    run.invoke(name, f, a.at, b.at, y.at, pair.a, pair.b);
    return y;
}

template <class T>
Array<bool> compare(Run& run, const char* name, Comparison<T> f, const Array<T>& a,
                    const Array<T>& b, bool* into) {
    const Shape shape = common(a.shape, b.shape);
    Array<bool> y{into != nullptr ? into : run.take<bool>(count(shape)), shape};
    const Pair pair = folded(a.shape, b.shape);
    run.invoke(name, f, a.at, b.at, y.at, pair.a, pair.b);
    return y;
}

template <class T>
Array<T> stretched(Run& run, const Array<T>& x, const Shape& shape) {
    if (x.size() == count(shape)) {
        return x.with(shape);
    }
    Array<T> y = run.array<T>(shape);
    const Pair pair = folded(x.shape, shape);
    VENDOR(run, api::broadcast<T>, x.at, y.at, pair.a, pair.b);
    return y;
}

template <class T>
Array<T> where(Run& run, const Array<bool>& condition, const Array<T>& a, const Array<T>& b,
               T* into) {
    const Shape shape = common(condition.shape, common(a.shape, b.shape));
    const Array<T> yes = stretched(run, a, shape);
    const Array<T> no = stretched(run, b, shape);
    Array<T> y{into != nullptr ? into : run.take<T>(count(shape)), shape};
    const Pair pair = folded(condition.shape, shape);
    VENDOR(run, api::select<T>, condition.at, yes.at, no.at, y.at, pair.a, pair.b);
    return y;
}

Array<float> scaled(Run& run, const Array<float>& x, double factor, double shift, float* into) {
    Array<float> y{into != nullptr ? into : run.take<float>(x.size()), x.shape};
    VENDOR(run, api::scale<float>, x.at, y.at, x.size(), true, static_cast<float>(factor),
           static_cast<float>(shift));
    return y;
}

template <class T>
Array<T> reduce(Run& run, const char* name, Reduction<T> f, const Array<T>& x, T* into) {
    Shape shape = x.shape.empty() ? Shape{1} : x.shape;
    const int64_t length = shape.back();
    shape.back() = 1;
    Array<T> y{into != nullptr ? into : run.take<T>(count(shape)), shape};
    run.invoke(name, f, x.at, y.at, Shape{y.size(), length}, Shape{1});
    return y;
}

Array<int> counting(Run& run, int64_t length) {
    Array<int> y = run.array<int>({length});
    VENDOR(run, api::range<int>, y.at, 0, 1, length);
    return y;
}

Array<int> first_set(Run& run, const Array<bool>& flags) {
    const int n = static_cast<int>(flags.shape[1]);
    Array<int> left = run.array<int>({1, n});
    VENDOR(run, api::range<int>, left.at, n, -1, int64_t{n});
    const Array<int> ranks = where(run, flags, left, constant(run, 0));
    const Array<int> best = REDUCE(run, api::reduce_max<int>, ranks);
    return ZIP(run, api::broadcast_sub<int>, constant(run, n), best);
}

Array<bool> negation(Run& run, const Array<bool>& flags) {
    Array<bool> y = run.array<bool>(flags.shape);
    VENDOR(run, api::logical_not<bool>, flags.at, y.at, flags.size());
    return y;
}

Array<bool> both(Run& run, const Array<bool>& a, const Array<bool>& b) {
    Array<bool> y = run.array<bool>(a.shape);
    VENDOR(run, api::logical_and<bool>, a.at, b.at, y.at, a.size());
    return y;
}

// A NaN is smaller than everything and never a hit: the vendor's own argmax says neither what it
// does with one nor which of equals it takes.
Array<int> first_largest(Run& run, const Array<float>& x, int* into) {
    const Array<bool> number = COMPARE(run, api::broadcast_equal<float>, x, x);
    const Array<float> lowest = constant(run, -std::numeric_limits<float>::infinity());
    const Array<float> numbers = where(run, number, x, lowest);
    const Array<float> best = REDUCE(run, api::reduce_max<float>, numbers);
    const Array<bool> hit = COMPARE(run, api::broadcast_equal<float>, numbers, best);
    const Array<int> first = first_set(run, both(run, hit, number));
    const Array<int> none = constant(run, static_cast<int>(x.shape[1]));
    const Array<bool> nothing = COMPARE(run, api::broadcast_equal<int>, first, none);
    return where(run, nothing, constant(run, -1), first, into);
}

template <class T>
Array<T> rows_of(Run& run, const Array<T>& table, const Array<int>& index, T* into) {
    const Array<T> rows = as_rows(table);
    Shape shape{index.size(), rows.shape[1]};
    Array<T> y{into != nullptr ? into : run.take<T>(count(shape)), shape};
    VENDOR(run, (api::gather<T, int>), rows.at, index.at, y.at, rows.shape, index.size(),
           int64_t{0});
    return y;
}

// The vendor's scatter has no index to skip. A skipped row repeats the write of the largest index,
// with the same contents; where every index is negative, row 0 is written with what it holds.
template <class T>
void put_rows(Run& run, const Array<T>& table, const Array<int>& index, const Array<T>& source) {
    const Array<T> rows = as_rows(table);
    const int64_t length = index.size();
    const int64_t width = rows.shape[1];
    const Array<int> given = index.with({1, length});
    const Array<int> zero = constant(run, 0);
    const Array<int> order = counting(run, length).with({1, length});
    const Array<int> largest = REDUCE(run, api::reduce_max<int>, given);
    const Array<bool> same = COMPARE(run, api::broadcast_equal<int>, given, largest);
    const Array<int> behind = constant(run, static_cast<int>(length));
    const Array<int> repeated = first_set(run, same);
    const Array<bool> none = COMPARE(run, api::broadcast_less_than<int>, largest, zero);
    const Array<bool> skipped = COMPARE(run, api::broadcast_less_than<int>, given, zero);
    const Array<int> filler = where(run, none, behind, repeated);
    const Array<int> from = where(run, skipped, filler, order);
    const Array<int> to = where(run, skipped, where(run, none, zero, largest), given);

    const Array<T> held = run.array<T>({length + 1, width});
    VENDOR(run, api::copy<T>, source.at, held.at, length * width);
    VENDOR(run, api::copy<T>, rows.at, held.at + length * width, width);
    const Array<T> written = rows_of(run, held, from);
    const api::VectorParam<int> indices{nullptr, length, to.at};
    VENDOR(run, (api::scatter<T, int>), written.at, rows.at, indices, rows.shape[0], width, true);
}

template void pack<int8_t>(Run&, const View&, int8_t*);
#define MOVES(T)                                                                              \
    template void pack<T>(Run&, const View&, T*);                                             \
    template Array<T> rows_of<T>(Run&, const Array<T>&, const Array<int>&, T*);               \
    template void put_rows<T>(Run&, const Array<T>&, const Array<int>&, const Array<T>&);
MOVES(float)
MOVES(float16)
MOVES(int)

#define COUNTS(T)                                                                                  \
    template Array<T> constant<T>(Run&, T, Shape);                                                 \
    template Array<T> zip<T>(Run&, const char*, Broadcast<T>, const Array<T>&, const Array<T>&,    \
                             T*);                                                                  \
    template Array<bool> compare<T>(Run&, const char*, Comparison<T>, const Array<T>&,             \
                                    const Array<T>&, bool*);                                       \
    template Array<T> stretched<T>(Run&, const Array<T>&, const Shape&);                           \
    template Array<T> where<T>(Run&, const Array<bool>&, const Array<T>&, const Array<T>&, T*);    \
    template Array<T> reduce<T>(Run&, const char*, Reduction<T>, const Array<T>&, T*);
COUNTS(float)
COUNTS(int)

#define CASTS(FROM, TO) template Array<TO> cast<TO, FROM>(Run&, const Array<FROM>&, TO*);
CASTS(float, float16)
CASTS(float, bfloat16)
CASTS(float, int)
CASTS(float16, float)
CASTS(bfloat16, float)
CASTS(int, float)
CASTS(int, int8_t)
CASTS(int, uint8_t)
CASTS(int8_t, int)
CASTS(uint8_t, int)
CASTS(bool, int)

}  // namespace shim

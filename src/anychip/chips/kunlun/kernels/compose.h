// Small steps over contiguous arrays in workspace, each one or a few vendor calls. Operators are
// composed of them, so that each vendor call has one place where its conventions are known.
#pragma once

#include <type_traits>

#include "run.h"

namespace shim {

// Calls f with a value of the float type; BAD_TYPE for others.
template <class F>
void with_float(Run& run, DType dtype, F f) {
    switch (dtype) {
        case FLOAT32: return f(float{});
        case FLOAT16: return f(float16{});
        case BFLOAT16: return f(bfloat16{});
        default: return run.fail(BAD_TYPE);
    }
}

// Calls f with a value of the type that elements of this dtype are moved as. Bytes arrive as they
// left; the vendor moves no bfloat16, so that it travels as the other type of two bytes.
template <class F>
void with_moved(DType dtype, F f) {
    switch (dtype) {
        case FLOAT32: return f(float{});
        case INT32: return f(int{});
        case FLOAT16:
        case BFLOAT16: return f(float16{});
        default: return f(int8_t{});
    }
}
// The same for rows by index, of which the vendor has no bytes.
template <class F>
void with_row(Run& run, DType dtype, F f) {
    switch (dtype) {
        case FLOAT32: return f(float{});
        case INT32: return f(int{});
        case FLOAT16:
        case BFLOAT16: return f(float16{});
        default: return run.fail(BAD_TYPE);
    }
}
template <class T>
using Moved = std::conditional_t<
    sizeof(T) == 1, int8_t, std::conditional_t<sizeof(T) == 2, float16, T>>;

// The elements of a view, row-major, in `target`. Views of one element type as it is moved.
template <class T>
void pack(Run& run, const View& view, T* target);

// The view as a contiguous array: its own memory where it lies so, else packed into workspace.
template <class T>
Array<T> dense(Run& run, const View& view) {
    if (view.contiguous()) {
        return {static_cast<T*>(view.at), view.shape};
    }
    Array<T> y = run.array<T>(view.shape);
    pack(run, view, reinterpret_cast<Moved<T>*>(y.at));
    return y;
}

// Another type, in workspace or at `into`; the array itself where the type is the same.
template <class TO, class FROM>
Array<TO> cast(Run& run, const Array<FROM>& x, TO* into = nullptr);

// The values of a float view as float32, and of an index as int32.
Array<float> floats(Run& run, const View& view);
Array<int> integers(Run& run, const View& view);

// Where a float32 result is computed: the output itself where it is float32, else workspace.
Array<float> target(Run& run, const View& output);
// Rounds such a result into its output; nothing to do where it is there already.
void store(Run& run, const Array<float>& values, const View& output);

template <class T>
Array<T> constant(Run& run, T value, Shape shape = {1});
// A float output of zeros.
void zeros(Run& run, const View& output);

using FloatFunction = int (*)(api::Context*, const float*, float*, int64_t);
Array<float> map(Run& run, const char* name, FloatFunction f, const Array<float>& x,
                 float* into = nullptr);
#define MAP(run, function, ...) shim::map(run, #function, function, __VA_ARGS__)

template <class T>
using Broadcast = int (*)(api::Context*, const T*, const T*, T*, const Shape&, const Shape&);
template <class T>
using Comparison = int (*)(api::Context*, const T*, const T*, bool*, const Shape&, const Shape&);

// z = f(a, b), shapes broadcast from the end.
template <class T>
Array<T> zip(Run& run, const char* name, Broadcast<T> f, const Array<T>& a, const Array<T>& b,
             T* into = nullptr);
template <class T>
Array<bool> compare(Run& run, const char* name, Comparison<T> f, const Array<T>& a,
                    const Array<T>& b, bool* into = nullptr);
#define ZIP(run, function, ...) shim::zip(run, #function, function, __VA_ARGS__)
#define COMPARE(run, function, ...) shim::compare(run, #function, function, __VA_ARGS__)

// The common shape of two that broadcast.
Shape common(const Shape& a, const Shape& b);
// The array stretched to a shape, in workspace; itself where it has that shape.
template <class T>
Array<T> stretched(Run& run, const Array<T>& x, const Shape& shape);
// condition ? a : b, each stretched to the common shape.
template <class T>
Array<T> where(Run& run, const Array<bool>& condition, const Array<T>& a, const Array<T>& b,
               T* into = nullptr);

// x * factor + shift.
Array<float> scaled(Run& run, const Array<float>& x, double factor, double shift = 0,
                    float* into = nullptr);

// Over the last dimension, kept as size 1.
template <class T>
using Reduction = int (*)(api::Context*, const T*, T*, const Shape&, const Shape&);
template <class T>
Array<T> reduce(Run& run, const char* name, Reduction<T> f, const Array<T>& x, T* into = nullptr);
#define REDUCE(run, function, ...) shim::reduce(run, #function, function, __VA_ARGS__)

// 0, 1, 2, ... length - 1.
Array<int> counting(Run& run, int64_t length);
// [rows, n] -> [rows, 1]: index of the first true flag; n where there is none.
Array<int> first_set(Run& run, const Array<bool>& flags);
Array<bool> negation(Run& run, const Array<bool>& flags);
// Of two of one shape.
Array<bool> both(Run& run, const Array<bool>& a, const Array<bool>& b);
// [rows, n] -> [rows, 1]: index of the first largest number of each row; -1 where all are NaN.
Array<int> first_largest(Run& run, const Array<float>& x, int* into = nullptr);

// A table [rows, ...] as [rows, elements of a row]; a vector as one column.
template <class T>
Array<T> as_rows(const Array<T>& table) {
    const int64_t rows = table.shape.empty() ? 1 : table.shape[0];
    return table.with({rows, rows == 0 ? 0 : table.size() / rows});
}
// Rows of a table by index, in workspace or at `into`.
template <class T>
Array<T> rows_of(Run& run, const Array<T>& table, const Array<int>& index, T* into = nullptr);
// table[index[i]] = source[i]; negative indices are skipped.
template <class T>
void put_rows(Run& run, const Array<T>& table, const Array<int>& index, const Array<T>& source);

}  // namespace shim

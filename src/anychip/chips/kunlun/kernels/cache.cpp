// Writing to the paged cache by plain vendor calls: rows and pages by index.
#include "compose.h"

using namespace shim;

namespace {

// Quotient and remainder of whole numbers from 0 on by calls that the vendor has: the quotient of
// a large number is rounded, that of what then remains is exact.
struct Division {
    Array<int> quotient;
    Array<int> rest;
};

Division divided(Run& run, const Array<int>& x, int64_t divisor) {
    const Array<int> by = constant(run, static_cast<int>(divisor));
    const Array<float> wide = constant(run, static_cast<float>(divisor));
    Division y{constant(run, 0), x};
    for (int step = 0; step < 2; ++step) {
        const Array<float> share = ZIP(run, api::broadcast_div<float>, cast<float>(run, y.rest),
                                       wide);
        const Array<int> part = cast<int>(run, MAP(run, api::floor<float>, share));
        const Array<int> taken = ZIP(run, api::broadcast_mul<int>, part, by);
        y.quotient = ZIP(run, api::broadcast_add<int>, y.quotient, part);
        y.rest = ZIP(run, api::broadcast_sub<int>, y.rest, taken);
    }
    return y;
}

// Slots [tokens] to rows of a cache seen as [pages * heads * page size, dim]: [tokens, heads]. A
// negative slot gives negative rows.
Array<int> cache_rows(Run& run, const Array<int>& slots, int64_t heads, int64_t page_size) {
    const int64_t tokens = slots.size();
    const Array<int> zero = constant(run, 0);
    const Array<int> kept = ZIP(run, api::broadcast_max<int>, slots, zero);
    const Division at = divided(run, kept, page_size);
    const Array<int> page = constant(run, static_cast<int>(heads * page_size));
    const Array<int> starts = ZIP(run, api::broadcast_mul<int>, at.quotient, page);
    const Array<int> first = ZIP(run, api::broadcast_add<int>, starts, at.rest);
    const Array<int> steps = run.array<int>({1, heads});
    VENDOR(run, api::range<int>, steps.at, 0, static_cast<int>(page_size), heads);
    const Array<int> rows = ZIP(run, api::broadcast_add<int>, first.with({tokens, 1}), steps);
    const Array<bool> skipped =
        COMPARE(run, api::broadcast_less_than<int>, slots.with({tokens, 1}), zero);
    return where(run, skipped, constant(run, -1), rows);
}

// Keys or values in the cache's type.
template <class T>
Array<Moved<T>> rounded(Run& run, const View& rows, DType held) {
    if (rows.dtype == held) {
        return dense<Moved<T>>(run, rows);
    }
    Array<T> y = run.array<T>(rows.shape);
    store(run, floats(run, rows), {y.at, held, rows.shape, {}});
    return {reinterpret_cast<Moved<T>*>(y.at), rows.shape};
}

// Both in the order of lists of pages: no page is in both.
template <class T>
void copy_pages(Run& run, const View& cache, const Array<int>& from, const Array<int>& to) {
    const int64_t page = cache.size() / cache.shape[0];
    const Array<T> pages{static_cast<T*>(cache.at), {cache.shape[0], page}};
    const Array<T> found = rows_of(run, pages, from);
    const api::VectorParam<int> indices{nullptr, to.size(), to.at};
    VENDOR(run, (api::scatter<T, int>), found.at, pages.at, indices, pages.shape[0], page, true);
}

}  // namespace

// Operands: keys and values of the cache, k, v, slots.
OPERATOR(kv_write_composed) {
    const View k = run.view(2);
    if (k.size() == 0) {
        return;
    }
    const View held = run.view(0);
    const Array<int> slots = integers(run, run.view(4));
    const Array<int> rows = cache_rows(run, slots, held.shape[2], held.shape[1]);
    for (int half = 0; half < 2; ++half) {
        const View cache = run.view(half);
        with_float(run, cache.dtype, [&](auto one) {
            using T = decltype(one);
            using M = Moved<T>;
            const Array<M> values = rounded<T>(run, run.view(2 + half), cache.dtype);
            const int64_t dim = cache.shape[3];
            const Array<M> table{static_cast<M*>(cache.at), {cache.size() / dim, dim}};
            put_rows(run, table, rows.with({rows.size()}),
                     values.with({rows.size(), dim}));
        });
    }
}

OPERATOR(kv_copy_pages) {
    const View sources = run.view(2);
    if (sources.size() == 0) {
        return;
    }
    const Array<int> from = integers(run, sources);
    const Array<int> to = integers(run, run.view(3));
    for (int half = 0; half < 2; ++half) {
        const View cache = run.view(half);
        with_row(run, cache.dtype, [&](auto one) {
            copy_pages<decltype(one)>(run, cache, from, to);
        });
    }
}

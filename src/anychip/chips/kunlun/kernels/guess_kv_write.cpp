// Writing tokens to the paged cache by libapiinfer. A file of its own: without its vendor header
// it does not compile, and the shim is built without it.
#include "compose.h"
#include "infer_ops.h"

using namespace shim;

namespace {

// Keys or values as the cache holds them, packed.
template <class T>
Array<T> in_type_of_cache(Run& run, const View& rows, DType held) {
    if (rows.dtype == held) {
        return dense<T>(run, rows);
    }
    const Array<T> y = run.array<T>(rows.shape);
    store(run, floats(run, rows), {y.at, held, rows.shape, {}});
    return y;
}

}  // namespace

// Operands: keys and values of the cache, k, v, slots; a slot of -1 writes nothing.
OPERATOR(kv_write) {
    const View k = run.view(2);
    if (k.size() == 0) {
        return;
    }
    const View keys = run.view(0);
    const View values = run.view(1);
    const Array<int> slots = integers(run, run.view(4));
    with_float(run, keys.dtype, [&](auto one) {
        using T = decltype(one);
        const Array<T> new_keys = in_type_of_cache<T>(run, k, keys.dtype);
        const Array<T> new_values = in_type_of_cache<T>(run, run.view(3), keys.dtype);
        const float* none = nullptr;
        VENDOR(run, (infer_ops::store_paged_kv_cache<T, T, int>), new_keys.at, new_values.at,
               static_cast<T*>(keys.at), static_cast<T*>(values.at), slots.at, none, none,
               k.shape[0], k.shape[1], k.shape[2], keys.shape[0], keys.shape[1]);
    });
}

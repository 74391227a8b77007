#include "reduce.h"

#include <algorithm>
#include <type_traits>

#include "xpu/refactor/util/float16.h"

namespace bkclsim {

namespace {

constexpr uint64_t kBlock = 1024;

struct Add {
    template <typename A>
    static A of(A a, A b) {
        if constexpr (std::is_integral_v<A>) {
            using U = std::make_unsigned_t<A>;
            return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
        } else {
            return a + b;
        }
    }
};

struct Product {
    template <typename A>
    static A of(A a, A b) {
        if constexpr (std::is_integral_v<A>) {
            using U = std::make_unsigned_t<A>;
            return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
        } else {
            return a * b;
        }
    }
};

struct Max {
    template <typename A>
    static A of(A a, A b) {
        return a < b ? b : a;
    }
};

struct Min {
    template <typename A>
    static A of(A a, A b) {
        return b < a ? b : a;
    }
};

// T: as stored. A: as accumulated.
template <typename T, typename A, typename Op>
void fold(const std::vector<const void*>& sources, void* target, uint64_t count) {
    A sum[kBlock];
    for (uint64_t at = 0; at < count; at += kBlock) {
        const uint64_t n = std::min(kBlock, count - at);
        const T* first = static_cast<const T*>(sources[0]) + at;
        for (uint64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
        for (size_t rank = 1; rank < sources.size(); ++rank) {
            const T* next = static_cast<const T*>(sources[rank]) + at;
            for (uint64_t i = 0; i < n; ++i) sum[i] = Op::of(sum[i], static_cast<A>(next[i]));
        }
        T* out = static_cast<T*>(target) + at;
        for (uint64_t i = 0; i < n; ++i) out[i] = static_cast<T>(sum[i]);
    }
}

template <typename T, typename A>
void fold_with(BKCLOp op, const std::vector<const void*>& sources, void* target,
               uint64_t count) {
    switch (op) {
        case BKCL_ADD: return fold<T, A, Add>(sources, target, count);
        case BKCL_PRODUCT: return fold<T, A, Product>(sources, target, count);
        case BKCL_MAX: return fold<T, A, Max>(sources, target, count);
        case BKCL_MIN: return fold<T, A, Min>(sources, target, count);
        case BKCL_NUM_OPS: return;  // refused at the call
    }
}

}  // namespace

size_t size_of(BKCLDataType dtype) {
    switch (dtype) {
        case BKCL_UINT8: return 1;
        case BKCL_FLOAT16:
        case BKCL_BFLOAT16: return 2;
        case BKCL_INT32:
        case BKCL_FLOAT: return 4;
        case BKCL_INT64:
        case BKCL_FLOAT64: return 8;
    }
    return 0;
}

void combine(BKCLDataType dtype, BKCLOp op, const std::vector<const void*>& sources,
             void* target, uint64_t count) {
    switch (dtype) {
        case BKCL_UINT8: return fold_with<uint8_t, uint8_t>(op, sources, target, count);
        case BKCL_INT32: return fold_with<int32_t, int32_t>(op, sources, target, count);
        case BKCL_INT64: return fold_with<int64_t, int64_t>(op, sources, target, count);
        case BKCL_FLOAT16: return fold_with<float16, float>(op, sources, target, count);
        case BKCL_BFLOAT16: return fold_with<bfloat16, float>(op, sources, target, count);
        case BKCL_FLOAT: return fold_with<float, float>(op, sources, target, count);
        case BKCL_FLOAT64: return fold_with<double, double>(op, sources, target, count);
    }
}

}  // namespace bkclsim

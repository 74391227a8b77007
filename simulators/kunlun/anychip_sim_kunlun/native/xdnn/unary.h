// Elementwise operators of one input.
#pragma once

#include "call.h"
#include "numbers.h"

namespace xpusim {

template <typename T, typename F>
void map(const T* x, T* y, int64_t len, F f) {
    Wide<T> chunk[kChunk];
    for (int64_t i = 0; i < len; i += kChunk) {
        const int64_t count = std::min(kChunk, len - i);
        widen(x + i, chunk, count);
        for (int64_t j = 0; j < count; ++j) {
            chunk[j] = f(chunk[j]);
        }
        narrow(chunk, y + i, count);
    }
}

template <typename T, typename F>
int queue_map(const Call& call, const T* x, T* y, int64_t len, F f) {
    return call.run([=] {
        const T* from = at(x, len);
        map(from, at(y, len), len, f);
    });
}

template <typename T, typename F>
int unary(Context* ctx, const char* name, const T* x, T* y, int64_t len, F f) {
    Call call(ctx, name);
    call.positive(len, "len").device(x, "x").device(y, "y");
    return queue_map(call, x, y, len, f);
}

}  // namespace xpusim

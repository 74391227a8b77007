// Types that operator calls share: status, narrow numbers, and a vector in two copies.
#pragma once

#include <cstdint>

#include "xpu/dll_export.h"
#include "xpu/refactor/context/newcontext.h"
#include "xpu/refactor/util/float16.h"
#include "xpu/xdnn_error.h"

namespace baidu {
namespace xpu {
namespace api {

// Queue a copy of `bytes` host bytes to device memory; the host may reuse them at once.
DLL_EXPORT int do_host2device(Context* ctx, const void* src, void* dst, int64_t bytes);

// `len` elements, once in host memory and once in device memory. Either may be null where a call
// allows it; where both are given, they hold the same values.
template <typename T>
class VectorParam {
public:
    const T* cpu;
    int64_t len;
    T* xpu;

    // The same vector with a device copy. Its `xpu` stays null where memory ran out.
    VectorParam to_xpu(ctx_guard& guard) const {
        VectorParam both{cpu, len, xpu};
        if (both.xpu == nullptr && cpu != nullptr) {
            T* room = guard.alloc<T>(static_cast<size_t>(len));
            const int64_t bytes = len * static_cast<int64_t>(sizeof(T));
            if (room != nullptr && do_host2device(guard.ctx_, cpu, room, bytes) == SUCCESS) {
                both.xpu = room;
            }
        }
        return both;
    }
};

}  // namespace api
}  // namespace xpu
}  // namespace baidu

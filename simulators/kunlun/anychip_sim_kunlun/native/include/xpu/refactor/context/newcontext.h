// A context: the device, the queue and the scratch memory that operator calls use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "xpu/dll_export.h"
#include "xpu/refactor/context/buffer_mgr.h"
#include "xpu/refactor/context/xpu_act_type.h"
#include "xpu/refactor/core/device.h"
#include "xpu/runtime.h"

namespace baidu {
namespace xpu {
namespace api {

using GMAllocFunc = std::function<void*(size_t)>;
using GMSaveFunc = std::function<void(void)>;
using GMFreeFunc = std::function<void(void)>;

struct DLL_EXPORT Context {
    explicit Context(Device device);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    Device dev() const { return dev_; }

    // Null is the default queue of the device. The old queue is destroyed where this context was
    // told to own it.
    void set_stream(XPUStream stream, bool destroy_new_stream_at_destruction = false) {
        if (xpu_stream != nullptr && owns_stream_) {
            xpu_stream_destroy(xpu_stream);
        }
        xpu_stream = stream;
        owns_stream_ = destroy_new_stream_at_destruction;
    }
    XPUStream get_stream() { return xpu_stream; }

    // Scratch comes from these instead of from xpu_malloc: the caller's own pool.
    void set_overload_alloc(GMAllocFunc alloc, GMFreeFunc free, GMSaveFunc save = nullptr) {
        overload_alloc_gm = std::move(alloc);
        overload_free_gm = std::move(free);
        overload_save_gm = std::move(save);
    }
    void unset_overload_alloc() { set_overload_alloc(nullptr, nullptr, nullptr); }

    ContextImpl* impl = nullptr;  // nothing behind it in the simulator
    BufferMgr _gm_mgr;
    BufferMgr _l3_mgr;

private:
    Device dev_;
    bool owns_stream_ = false;

public:
    XPUStream xpu_stream = nullptr;
    GMAllocFunc overload_alloc_gm;
    GMFreeFunc overload_free_gm;
    GMSaveFunc overload_save_gm;
};

// A context on the calling thread's current device, on its default queue. Null where there is no
// usable device.
DLL_EXPORT Context* create_context();
DLL_EXPORT void destroy_context(Context* ctx);

// Scratch memory for one scope. Reuse is ordered by the queue: what a guard gave back may be
// handed out again at once, to work that comes later on the same queue.
class DLL_EXPORT ctx_guard {
public:
    explicit ctx_guard(Context* ctx);
    ~ctx_guard();
    ctx_guard(const ctx_guard&) = delete;
    ctx_guard& operator=(const ctx_guard&) = delete;

    // `count` elements of device memory, or null where there is none.
    template <typename T>
    T* alloc(size_t count) {
        return static_cast<T*>(take(sizeof(T) * count));
    }
    template <typename T>
    T* alloc_l3(size_t count) {
        return static_cast<T*>(take_l3(sizeof(T) * count));
    }
    template <typename T>
    T* alloc_l3_or_gm(size_t count) {
        void* fast = take_l3(sizeof(T) * count);
        return static_cast<T*>(fast != nullptr ? fast : take(sizeof(T) * count));
    }

private:
    template <typename T>
    friend class VectorParam;
    void* take(size_t bytes);
    void* take_l3(size_t bytes);

    Context* ctx_;
    GMAllocFunc overload_alloc_;
    GMFreeFunc overload_free_;
};

}  // namespace api
}  // namespace xpu
}  // namespace baidu

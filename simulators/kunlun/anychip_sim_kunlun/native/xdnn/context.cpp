// Contexts and their scratch memory.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "call.h"
#include "xpu/xdnn.h"

namespace baidu {
namespace xpu {
namespace api {

namespace {

constexpr size_t kGrowth = size_t{4} << 20;

DeviceType generation(int id) {
    uint64_t model = 0;
    if (xpu_device_get_attr(&model, XPUATTR_MODEL, id) != XPU_SUCCESS) {
        return kCPU;
    }
    if (model >= KL3) {
        return kXPU3;
    }
    return model <= K100 ? kXPU1 : kXPU2;
}

size_t round_up(size_t size, size_t step) { return (size + step - 1) / step * step; }

// Another device than the thread's current one, for one call of the runtime. -1: the current one.
class OnDevice {
public:
    explicit OnDevice(int device) {
        if (device < 0) {
            return;
        }
        status_ = xpu_current_device(&before_);
        moved_ = status_ == XPU_SUCCESS && before_ != device;
        if (moved_) {
            status_ = xpu_set_device(device);
        }
    }
    ~OnDevice() {
        const int back = moved_ ? xpu_set_device(before_) : static_cast<int>(XPU_SUCCESS);
        if (back != XPU_SUCCESS) {
            std::fprintf(stderr, "[xdnn] device %d cannot be made current again: %s\n",
                         before_, xpu_strerror(back));
        }
    }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

    int status() const { return status_; }

private:
    int before_ = 0;
    int status_ = XPU_SUCCESS;
    bool moved_ = false;
};

}  // namespace

Context* create_context() {
    int id = 0;
    if (xpu_current_device(&id) != XPU_SUCCESS) {
        return nullptr;
    }
    const DeviceType type = generation(id);
    return type == kCPU ? nullptr : new Context(Device(type, id));
}

void destroy_context(Context* ctx) { delete ctx; }

Context::Context(Device device) : _gm_mgr(true), _l3_mgr(false), dev_(device) {
    if (device.type() != kCPU) {
        _gm_mgr.device_ = device.id();
        _l3_mgr.device_ = device.id();
    }
}

Context::~Context() { set_stream(nullptr); }

BufferMgr::BufferMgr(bool do_malloc_when_run_out) : grows_(do_malloc_when_run_out) {}

// xpu_free waits for what still uses the memory only as far as the runtime does; whoever destroys
// a context waits for its queue first, as with the vendor's.
BufferMgr::~BufferMgr() { release(); }

void BufferMgr::release() {
    const OnDevice here(device_);
    for (const Block& block : blocks_) {
        if (!block.owned) {
            continue;
        }
        const int freed = here.status() == XPU_SUCCESS ? xpu_free(block.start) : here.status();
        if (freed != XPU_SUCCESS) {
            std::fprintf(stderr, "[xdnn] scratch of %zu bytes at %p is not given back: %s\n",
                         block.size, static_cast<void*>(block.start), xpu_strerror(freed));
        }
    }
    blocks_.clear();
}

int BufferMgr::set(void* ptr, size_t size, bool owned) {
    if (!levels_.empty() || (ptr == nullptr) != (size == 0)) {
        return INVALID_PARAM;
    }
    release();
    first_ = ptr != nullptr ? 1 : 0;
    if (ptr != nullptr) {
        blocks_.push_back(Block{static_cast<char*>(ptr), size, 0, owned});
    }
    return SUCCESS;
}

void* BufferMgr::get_ptr() const { return first_ == 1 ? blocks_[0].start : nullptr; }

size_t BufferMgr::get_size() const { return first_ == 1 ? blocks_[0].size : 0; }

void* BufferMgr::alloc(ContextImpl*, size_t size, void*) {
    const size_t need = round_up(std::max<size_t>(size, 1), alignment);
    for (Block& block : blocks_) {
        if (block.size - block.used >= need) {
            void* place = block.start + block.used;
            block.used += need;
            return place;
        }
    }
    return grows_ ? grow(need) : nullptr;
}

void* BufferMgr::grow(size_t size) {
    void* start = nullptr;
    const size_t room = std::max(size, kGrowth);
    const OnDevice here(device_);
    if (here.status() != XPU_SUCCESS || xpu_malloc(&start, room, XPU_MEM_MAIN) != XPU_SUCCESS) {
        return nullptr;
    }
    blocks_.push_back(Block{static_cast<char*>(start), room, size, true});
    return start;
}

void BufferMgr::save() {
    std::vector<size_t> used;
    for (const Block& block : blocks_) {
        used.push_back(block.used);
    }
    levels_.push_back(std::move(used));
}

// Blocks stay for the next guard: kernels that still run may use them, and on one queue whoever
// gets them next runs later.
void BufferMgr::restore(void*) {
    const std::vector<size_t>& used = levels_.back();
    for (size_t i = 0; i < blocks_.size(); ++i) {
        blocks_[i].used = i < used.size() ? used[i] : 0;
    }
    levels_.pop_back();
}

ctx_guard::ctx_guard(Context* ctx) : ctx_(ctx) {
    if (ctx_ == nullptr) {
        return;
    }
    overload_alloc_ = ctx_->overload_alloc_gm;
    overload_free_ = ctx_->overload_free_gm;
    if (ctx_->overload_save_gm) {
        ctx_->overload_save_gm();
    }
    ctx_->_gm_mgr.save();
    ctx_->_l3_mgr.save();
}

ctx_guard::~ctx_guard() {
    if (overload_free_) {
        overload_free_();
    }
    if (ctx_ != nullptr) {
        ctx_->_gm_mgr.restore(ctx_->xpu_stream);
        ctx_->_l3_mgr.restore(ctx_->xpu_stream);
    }
}

void* ctx_guard::take(size_t bytes) {
    if (ctx_ == nullptr) {
        return nullptr;
    }
    if (overload_alloc_) {
        return overload_alloc_(bytes);
    }
    return ctx_->_gm_mgr.alloc(ctx_->impl, bytes, ctx_->xpu_stream);
}

void* ctx_guard::take_l3(size_t bytes) {
    return ctx_ == nullptr ? nullptr : ctx_->_l3_mgr.alloc(ctx_->impl, bytes, ctx_->xpu_stream);
}

int do_host2device(Context* ctx, const void* src, void* dst, int64_t bytes) {
    xpusim::Call call(ctx, "do_host2device");
    call.positive(bytes, "bytes").device(static_cast<const char*>(src), "src");
    call.device(static_cast<char*>(dst), "dst");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    const char* first = static_cast<const char*>(src);
    auto kept = std::make_shared<std::vector<char>>(first, first + bytes);
    return call.run([=] {
        std::memcpy(xpusim::reach(dst, static_cast<uint64_t>(bytes)), kept->data(), kept->size());
    });
}

}  // namespace api
}  // namespace xpu
}  // namespace baidu

// Contexts and their scratch memory.
#include <algorithm>
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

Context::Context(Device device) : _gm_mgr(true), _l3_mgr(false), dev_(device) {}

Context::~Context() { set_stream(nullptr); }

BufferMgr::BufferMgr(bool do_malloc_when_run_out) : grows_(do_malloc_when_run_out) {}

// xpu_free waits for what still uses the memory only as far as the runtime does; whoever destroys
// a context waits for its queue first, as with the vendor's.
BufferMgr::~BufferMgr() { release(); }

void BufferMgr::release() {
    for (const Block& block : blocks_) {
        if (block.owned) {
            xpu_free(block.start);
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
    if (xpu_malloc(&start, room, XPU_MEM_MAIN) != XPU_SUCCESS) {
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

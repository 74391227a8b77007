// Context and tensors of libxft_blocks.
#include "xft/core/context.h"

#include <utility>

namespace baidu {
namespace xpu {
namespace xftblock {

RuntimeGuard::RuntimeGuard(api::Context* ctx) : scratch_(ctx) {}

void* RuntimeGuard::alloc(DataType type, int64_t count, AllocType where, bool* use_l3) {
    const size_t bytes = static_cast<size_t>(count) * size_of(type);
    void* fast = where == AllocType::L3 ? scratch_.alloc_l3<char>(bytes) : nullptr;
    if (use_l3 != nullptr) {
        *use_l3 = fast != nullptr;
    }
    return fast != nullptr ? fast : scratch_.alloc<char>(bytes);
}

XFTContext::XFTContext(api::Context* ctx, void*)
    : ctx_(ctx), guard_(std::make_shared<RuntimeGuard>(ctx)) {}

Tensor::Tensor(void* data, DataType type, std::vector<int64_t> dims)
    : data_(data), type_(type), dims_(std::move(dims)) {}

Tensor::Tensor(void* data, float* max_data, float* pc_scale, DataType type,
               std::vector<int64_t> dims)
    : data_(data), max_data_(max_data), pc_scale_(pc_scale), type_(type), dims_(std::move(dims)) {}

Tensor::Tensor(const std::shared_ptr<RuntimeGuard>& guard, DataType type,
               std::vector<int64_t> dims, bool need_max, bool use_l3)
    : type_(type), dims_(std::move(dims)) {
    const AllocType where = use_l3 ? AllocType::L3 : AllocType::GM;
    data_ = guard->alloc(type, numel(), where, nullptr);
    if (need_max) {
        constexpr int64_t kMostSlots = 12;
        void* maxima = guard->alloc(DataType::DT_FLOAT, kMostSlots, where, nullptr);
        max_data_ = static_cast<float*>(maxima);
    }
}

int64_t Tensor::numel() const {
    int64_t count = 1;
    for (int64_t size : dims_) {
        count *= size;
    }
    return count;
}

}  // namespace xftblock
}  // namespace xpu
}  // namespace baidu

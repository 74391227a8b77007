// The context of libxft_blocks, and its tensors. Built from FastDeploy's call sites; how the
// vendor's classes lie in memory is unknown, so code is compiled against the SDK that it runs on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "types.h"
#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace xftblock {

// Scratch of one scope, in the order of the context's queue. (The class's name is a guess.)
class DLL_EXPORT RuntimeGuard {
public:
    explicit RuntimeGuard(api::Context* ctx);

    // `count` elements of device memory, or null. *use_l3: whether it came from L3.
    void* alloc(DataType type, int64_t count, AllocType where, bool* use_l3);

private:
    api::ctx_guard scratch_;
};

class DLL_EXPORT XFTContext {
public:
    // Borrows the context. `extra` is null at every call site.
    XFTContext(api::Context* ctx, void* extra);

    std::shared_ptr<RuntimeGuard> get_rt_guard() { return guard_; }
    XPUStream get_main_stream() { return ctx_->xpu_stream; }
    api::Context* get_context() { return ctx_; }

private:
    api::Context* ctx_;
    std::shared_ptr<RuntimeGuard> guard_;
};

// A shape over device memory that someone else owns. pc_scale: maxima of a quantized tensor.
class DLL_EXPORT Tensor {
public:
    Tensor() = default;
    Tensor(void* data, DataType type, std::vector<int64_t> dims);
    Tensor(void* data, float* max_data, float* pc_scale, DataType type, std::vector<int64_t> dims);
    // Memory from `guard`; both flags are false at every call site that gives them.
    Tensor(const std::shared_ptr<RuntimeGuard>& guard, DataType type, std::vector<int64_t> dims,
           bool need_max = false, bool use_l3 = false);

    template <typename T>
    T* data() const {
        return static_cast<T*>(data_);
    }
    template <typename T>
    T* mutable_data() {
        return static_cast<T*>(data_);
    }
    DataType type() const { return type_; }
    float* max_data() const { return max_data_; }
    float* pc_scale() const { return pc_scale_; }
    const std::vector<int64_t>& get_dims() const { return dims_; }
    int64_t get_dim(int axis) const { return dims_.at(static_cast<size_t>(axis)); }
    int64_t numel() const;

private:
    void* data_ = nullptr;
    float* max_data_ = nullptr;
    float* pc_scale_ = nullptr;
    DataType type_ = DataType::DT_FLOAT;
    std::vector<int64_t> dims_;
};

}  // namespace xftblock
}  // namespace xpu
}  // namespace baidu

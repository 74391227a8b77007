// Scratch memory of a context: blocks handed out from the front, given back by level.
#pragma once

#include <cstddef>
#include <vector>

#include "xpu/dll_export.h"

namespace baidu {
namespace xpu {
namespace api {

class ContextImpl;
struct Context;

class DLL_EXPORT BufferMgr {
public:
    static const int alignment = 64;

    // `do_malloc_when_run_out`: take more device memory when the block is full, instead of
    // answering null.
    BufferMgr(bool do_malloc_when_run_out = true);
    ~BufferMgr();
    BufferMgr(const BufferMgr&) = delete;
    BufferMgr& operator=(const BufferMgr&) = delete;

    // Use this device memory from now on; `owned`: free it when replaced or destroyed. Returns an
    // Error_t; null with size 0 leaves none.
    int set(void* ptr, size_t size, bool owned = false);
    void* get_ptr() const;
    size_t get_size() const;

private:
    friend class ctx_guard;
    friend struct Context;
    struct Block {
        char* start;
        size_t size;
        size_t used;
        bool owned;
    };

    void* alloc(ContextImpl* impl, size_t size, void* stream);
    void save();
    void restore(void* stream);
    void* grow(size_t size);
    void release();

    bool grows_;
    int device_ = -1;    // its context's, where the blocks are; -1: the thread's current one
    size_t first_ = 0;  // 1 where blocks_[0] came from set()
    std::vector<Block> blocks_;
    std::vector<std::vector<size_t>> levels_;
};

}  // namespace api
}  // namespace xpu
}  // namespace baidu

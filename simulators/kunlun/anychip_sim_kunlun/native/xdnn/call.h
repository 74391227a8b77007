// The rules of one operator call, checked before anything is queued. Compiled into each library of
// operators; what those of language models add is in llm/engine/call.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "device.h"
#include "xpu/xdnn_types.h"

namespace xpusim {

using Context = baidu::xpu::api::Context;
using Shape = std::vector<int64_t>;

constexpr size_t kMaxRank = 8;  // a guess: public call sites go up to 6

int64_t product(const Shape& shape);

// Collects the first broken rule. With XPUAPI_DEBUG set to anything but 0 the rule is written to
// stderr, since the caller sees no more than INVALID_PARAM.
class Call {
public:
    Call(Context* ctx, const char* name);

    Call& rule(bool holds, const char* text);
    // 1 or more, and few enough that its bytes can be counted.
    Call& positive(int64_t value, const char* what);
    // Rank 1 to kMaxRank, every size positive, and no overflow of the element count.
    Call& shape(const Shape& shape, const char* what);
    Call& axis(int64_t axis, const Shape& shape);
    // Not null and aligned to its element. Whether it is device memory shows in the kernel.
    template <typename T>
    Call& device(const T* pointer, const char* what) {
        return address(pointer, alignof(T), what);
    }
    Call& apart(const void* x, const void* y);
    // For arguments whose effect no public source shows: NOT_IMPLEMENT rather than a guess.
    Call& unknown(bool holds, const char* text);
    Call& unquantized(const float* max_x, const float* max_y);

    // Whether every rule held so far: later ones may then rely on the arguments.
    bool holds() const { return status_ == 0; }
    // Queue the kernel, or return why not: an Error_t.
    int run(std::function<void()> kernel) const;

protected:
    void refuse(int status, const char* text, const char* what = "");

private:
    Call& address(const void* pointer, size_t alignment, const char* what);

    Context* ctx_;
    const char* name_;
    int status_ = 0;
};

// Ends the kernel that calls it; the runtime adds which one it was.
[[noreturn]] void fault(const char* text, int64_t value);

}  // namespace xpusim

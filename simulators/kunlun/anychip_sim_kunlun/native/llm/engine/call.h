// The rules of one operator call, checked before anything is queued. Headers of this folder are
// compiled into each library of language-model operators.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "xpu/xdnn_types.h"

namespace xpusim {
namespace llm {

namespace api = baidu::xpu::api;

// In a kernel; the runtime says which one it was.
[[noreturn]] inline void fault(const std::string& text) {
    throw KernelFault{text};
}

// A length pair: the host half, copied at the call, and the device half, which must say the same.
template <typename T>
struct Pair {
    std::vector<T> host;
    const T* device = nullptr;
    const char* what = "";

    // In the kernel: a device half that differs is the caller's mistake that no result shows.
    void verify() const {
        if (device == nullptr) {
            return;
        }
        const T* seen = at(device, static_cast<int64_t>(host.size()));
        for (size_t i = 0; i < host.size(); ++i) {
            if (seen[i] != host[i]) {
                fault(std::string(what) + " differs between host and device at " +
                      std::to_string(i));
            }
        }
    }
};

// Collects the first broken rule. With XPUAPI_DEBUG set to anything but 0 the rule is written to
// stderr, since the caller sees a status alone.
class Call {
public:
    Call(api::Context* ctx, const char* name) : ctx_(ctx), name_(name) {
        rule(ctx != nullptr, "no context");
        if (ctx != nullptr && ctx->dev().type() == api::kCPU) {
            refuse(api::NOT_IMPLEMENT, "the simulator has no host context");
        }
    }

    Call& rule(bool holds, const char* text) {
        if (!holds) {
            refuse(api::INVALID_PARAM, text);
        }
        return *this;
    }

    // What the vendor may do and the simulator does not.
    Call& served(bool holds, const char* text) {
        if (!holds) {
            refuse(api::NOT_IMPLEMENT, text);
        }
        return *this;
    }

    Call& positive(std::initializer_list<int64_t> sizes) {
        for (int64_t size : sizes) {
            rule(size > 0, "a size must be positive");
        }
        return *this;
    }

    // Not null and aligned to its element. Whether it is device memory shows in the kernel.
    template <typename T>
    Call& device(const T* pointer, const char* what) {
        if (pointer == nullptr) {
            refuse(api::INVALID_PARAM, "null: ", what);
        } else if (reinterpret_cast<uintptr_t>(pointer) % alignof(T) != 0) {
            refuse(api::INVALID_PARAM, "not aligned to its element: ", what);
        }
        return *this;
    }

    // Both halves of a pair of `length` elements; the host half must be there.
    template <typename T>
    Pair<T> pair(const api::VectorParam<T>& given, int64_t length, const char* what) {
        if (given.cpu == nullptr || length <= 0 || given.len != length || is_device(given.cpu)) {
            refuse(api::INVALID_PARAM, "a length pair needs its host half, complete: ", what);
            return {};
        }
        return {std::vector<T>(given.cpu, given.cpu + length), given.xpu, what};
    }

    bool holds() const { return status_ == api::SUCCESS; }

    // Queue the kernel, or return why not: an Error_t.
    int run(std::function<void()> kernel) const {
        if (!holds()) {
            return status_;
        }
        const int status = launch(ctx_->xpu_stream, name_, std::move(kernel));
        return status == XPU_SUCCESS ? api::SUCCESS : api::RUNTIME_ERROR;
    }

private:
    void refuse(int status, const char* text, const char* what = "") {
        const char* level = std::getenv("XPUAPI_DEBUG");
        if (holds() && level != nullptr && std::string(level) != "0") {
            std::fprintf(stderr, "[llm] %s: %s%s\n", name_, text, what);
        }
        status_ = holds() ? status : status_;
    }

    api::Context* ctx_;
    const char* name_;
    int status_ = api::SUCCESS;
};

// Offsets of a ragged batch: from 0 on, never falling.
template <typename T>
bool is_lod(const std::vector<T>& lod) {
    bool fine = !lod.empty() && lod[0] == 0;
    for (size_t i = 1; i < lod.size(); ++i) {
        fine = fine && lod[i] >= lod[i - 1];
    }
    return fine;
}

}  // namespace llm
}  // namespace xpusim

// The rules of a call with length pairs. Headers of this folder are compiled into each library of
// language-model operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "xdnn/call.h"
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

class Call : public xpusim::Call {
public:
    using xpusim::Call::Call;

    // What the vendor may do and the simulator does not.
    Call& served(bool holds, const char* text) {
        unknown(holds, text);
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

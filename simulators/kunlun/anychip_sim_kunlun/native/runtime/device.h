// What the simulated libraries know of the simulated device. Not a vendor interface: libxpurt.so
// exports it in a namespace of its own, and only libraries of this simulator may use it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "xpu/runtime.h"

#define XPUSIM_PUBLIC __attribute__((visibility("default")))

namespace xpusim {

// Thrown inside a kernel: the queue records a kernel exception (714), which surfaces at the next
// wait on it and taints the process. Any other std::exception of a kernel counts as one too.
struct XPUSIM_PUBLIC KernelFault {
    std::string text;
};

// Queue a kernel. It runs later, on the thread of its queue; `stream` null is the default queue of
// the calling thread's current device. `name` must live as long as the process (a literal).
// Returns at once: 0, or a negative XRE code as every entry point of the runtime does.
XPUSIM_PUBLIC int launch(XPUStream stream, const char* name, std::function<void()> kernel);

// Inside a kernel, on the queue's own thread: the host view of `bytes` bytes of device memory.
// Throws KernelFault where the range is not inside one living allocation of the queue's device.
XPUSIM_PUBLIC void* reach(const void* device, uint64_t bytes);

// Whether the address lies in the address range of a simulated device (living or not).
XPUSIM_PUBLIC bool is_device(const void* address);

// What XPUSIM_FAULTS says of one fault of FAULTS.md: nothing when it is not armed, else the text
// after `=` or `@` (empty for a bare name). A name that the list does not hold aborts.
XPUSIM_PUBLIC std::optional<std::string> fault(const char* name);

template <typename T>
T* at(const T* device, int64_t count) {
    return static_cast<T*>(reach(device, static_cast<uint64_t>(count) * sizeof(T)));
}

}  // namespace xpusim

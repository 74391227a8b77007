// Kernels for the tests of the simulated runtime, queued as the simulator's own libraries do it.
#include <chrono>
#include <cstring>
#include <thread>

#include "device.h"

extern "C" {

__attribute__((visibility("default"))) int probe_fill(XPUStream stream, void* to, int64_t bytes,
                                                      int value) {
    return xpusim::launch(stream, "fill", [=] {
        std::memset(xpusim::reach(to, static_cast<uint64_t>(bytes)), value,
                    static_cast<size_t>(bytes));
    });
}

__attribute__((visibility("default"))) int probe_sleep(XPUStream stream, int milliseconds) {
    return xpusim::launch(stream, "sleep", [=] {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    });
}

__attribute__((visibility("default"))) int probe_empty(XPUStream stream, int count) {
    for (int i = 0; i < count; ++i) {
        if (int code = xpusim::launch(stream, "empty", [] {})) return code;
    }
    return 0;
}

// Outside a kernel: 1 where reach() refuses, as it must.
__attribute__((visibility("default"))) int probe_reach_outside(void* to) {
    try {
        xpusim::reach(to, 1);
    } catch (const xpusim::KernelFault&) {
        return 1;
    }
    return 0;
}

__attribute__((visibility("default"))) int probe_is_device(const void* address) {
    return xpusim::is_device(address) ? 1 : 0;
}

__attribute__((visibility("default"))) int probe_fault(const char* name) {
    return xpusim::fault(name).has_value() ? 1 : 0;
}

}  // extern "C"

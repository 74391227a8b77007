// Entry points: launches of device code, measurement and debugging; and how this simulator's own
// libraries queue their kernels.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "answer.h"
#include "device.h"
#include "faults.h"
#include "process.h"
#include "xpu/runtime.h"

namespace xpusim {

namespace {

// A kernel that never ends. No signal handler of the program can end it either.
void hang() {
    for (;;) pause();
}

// Faults take the kernel's place; the order of the checks is that of FAULTS.md.
std::function<void()> afflicted(Device& device, std::function<void()> kernel) {
    bool exception = faults().kernel_exception.now();
    bool hangs = faults().hang.now() || faults().sick_device == device.physical;
    if (hangs) return hang;
    if (exception) return [] { throw KernelFault{"fault kexception of XPUSIM_FAULTS"}; };
    return kernel;
}

int queue_kernel(XPUStream stream, const char* name, std::function<void()> kernel) {
    std::shared_ptr<Queue> queue;
    Process& process = Process::self();
    if (int code = process.queue(stream, &queue)) return code;
    Device& device = queue->device();
    if (device.number != process.current_number()) return XPUERR_INVALID_PARAM;
    if (faults().lost.now()) {
        process.lose(device);
        return XPUERR_HWEXCEPTION;
    }
    Task task{};
    task.name = name;
    task.body = afflicted(device, std::move(kernel));
    task.is_kernel = true;
    int code = queue->submit(std::move(task));
    if (code == XPU_SUCCESS) __atomic_fetch_add(&device.entry->launches, 1, __ATOMIC_RELAXED);
    return code;
}

}  // namespace

int launch(XPUStream stream, const char* name, std::function<void()> kernel) {
    if (!name || !kernel) return answer(XPUERR_INVALID_PARAM);
    return answer(queue_kernel(stream, name, std::move(kernel)));
}

void* reach(const void* address, uint64_t bytes) {
    Device* device = kernel_device();
    if (!device) throw KernelFault{"device memory reached outside a kernel"};
    if (void* view = device->memory->reach(address, bytes)) return view;
    char text[128];
    std::snprintf(text, sizeof text, "%llu bytes at %p are not inside one living allocation",
                  static_cast<unsigned long long>(bytes), address);
    throw KernelFault{text};
}

bool is_device(const void* address) { return Process::self().memory_of(address) != nullptr; }

}  // namespace xpusim

using namespace xpusim;

namespace {

constexpr size_t most_arguments = 4096;  // bytes; the vendor's limit is not known

struct Configuration {
    bool set = false;
    std::shared_ptr<Queue> queue;
};

thread_local Configuration configuration;

// There is no device code here, and so no function that could be launched.
int create_function(XPUFunc* pfunc, uint64_t code, uint32_t bytes) {
    if (int problem = Process::self().ready()) return problem;
    if (!pfunc || code == 0 || bytes == 0) return XPUERR_INVALID_PARAM;
    return XPUERR_NOSUPPORT;
}

int configure(int nclusters, int ncores, XPUStream stream) {
    Device* device = nullptr;
    std::shared_ptr<Queue> queue;
    if (int code = Process::self().current(&device)) return code;
    if (int code = Process::self().queue(stream, &queue)) return code;
    if (nclusters < 1 || ncores < 1 || &queue->device() != device) return XPUERR_INVALID_PARAM;
    configuration = {true, queue};
    return XPU_SUCCESS;
}

bool profiling() {
    const char* mode = std::getenv("XPURT_DISPATCH_MODE");
    return mode && std::strcmp(mode, "PROFILING") == 0;
}

// The device-side print buffer is of second-generation cards alone, by the vendor's header.
int kernel_print() {
    Device* device = nullptr;
    if (int code = Process::self().current(&device)) return code;
    bool second_generation = device->card->model >= R200 && device->card->model < KL3;
    return second_generation ? XPU_SUCCESS : XPUERR_NOSUPPORT;
}

}  // namespace

int xpu_create_sd_func(XPUFunc* pfunc, uint64_t code_addr, uint32_t code_byte_size, uint32_t,
                       uint32_t, uint64_t, const char*, bool) {
    return answer(create_function(pfunc, code_addr, code_byte_size));
}

int xpu_create_cl_func(XPUFunc* pfunc, uint64_t code_addr, uint32_t code_byte_size, uint32_t,
                       uint32_t, uint64_t, const char*, bool) {
    return answer(create_function(pfunc, code_addr, code_byte_size));
}

int xpu_launch_config(int nclusters, int ncores, XPUStream stream) {
    return answer(configure(nclusters, ncores, stream));
}

// Arguments are checked and not kept: no function can be created that would take them.
int xpu_launch_argument_set(const void* arg, size_t size, size_t offset) {
    if (int code = Process::self().ready()) return answer(code);
    bool fits = size <= most_arguments && offset <= most_arguments - size;
    bool good = arg && size > 0 && offset % 4 == 0 && fits;
    return answer(good ? XPU_SUCCESS : XPUERR_INVALID_PARAM);
}

// No handle of a function can exist here.
int xpu_launch_async(XPUFunc) {
    if (int code = Process::self().ready()) return answer(code);
    return answer(configuration.set ? XPUERR_NOXPUFUNC : XPUERR_INVALID_PARAM);
}

int xpu_last_kernel_exec_time(uint64_t* value) {
    Device* device = nullptr;
    if (int code = Process::self().current(&device)) return answer(code);
    if (!value) return answer(XPUERR_INVALID_PARAM);
    if (!profiling()) return answer(XPUERR_NOSUPPORT);
    *value = device->last_kernel;
    return XPU_SUCCESS;
}

// They steer a daemon of the vendor's profiler, which is not here.
int xpu_profiler_start() { return answer(XPUERR_NOSUPPORT); }

int xpu_profiler_stop() { return answer(XPUERR_NOSUPPORT); }

int xpu_kernel_debug(XPUStream stream) {
    std::shared_ptr<Queue> queue;
    if (int code = Process::self().queue(stream, &queue)) return answer(code);
    return answer(kernel_print());
}

int xpu_kernel_debug_reset() { return answer(kernel_print()); }

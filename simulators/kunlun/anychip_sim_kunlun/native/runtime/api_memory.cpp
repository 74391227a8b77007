// Entry points: device memory, locked host memory, copies.
#include "answer.h"
#include "copies.h"
#include "device.h"
#include "faults.h"
#include "host_memory.h"
#include "xpu/runtime.h"

using namespace xpusim;

namespace {

// Runs on a queue's thread; what was freed meanwhile is an exception there.
Task task_of(const Copy& copy) {
    Task task{};
    task.name = "copy";
    task.body = [copy] {
        if (!perform(copy)) throw KernelFault{"copy of memory that was freed"};
    };
    return task;
}

// A copy inside one card is queued; one over the link is done when this returns, and waits for no
// queue.
int copy_now(void* dst, const void* src, uint64_t sz, XPUMemcpyKind kind) {
    Device* device = nullptr;
    Copy copy{};
    if (int code = Process::self().current(&device)) return code;
    if (int code = check(*device, dst, src, sz, kind, &copy)) return code;
    if (kind == XPU_DEVICE_TO_DEVICE) return device->queue->submit(task_of(copy));
    return perform(copy) ? XPU_SUCCESS : XPUERR_INVALID_PARAM;
}

int copy_between(int dst_device, void* dst, int src_device, const void* src, uint64_t sz) {
    Device *target = nullptr, *source = nullptr;
    Copy copy{};
    if (int code = Process::self().device(dst_device, &target)) return code;
    if (int code = Process::self().device(src_device, &source)) return code;
    if (int code = check_peer(*target, dst, *source, src, sz, &copy)) return code;
    return perform(copy) ? XPU_SUCCESS : XPUERR_INVALID_PARAM;
}

}  // namespace

int xpu_malloc(void** pdevptr, uint64_t sz, XPUMemoryKind kind) {
    Device* device = nullptr;
    if (int code = Process::self().current(&device)) return answer(code);
    if (faults().oom.now()) return answer(XPUERR_NOMEM);
    return answer(device->memory->allocate(pdevptr, sz, kind));
}

int xpu_free(void* devptr) {
    Device* device = nullptr;
    if (int code = Process::self().current(&device)) return answer(code);
    return answer(device->memory->release(devptr));
}

int xpu_mmap(void** pcpuptr, void* devptr, size_t sz) {
    Device* device = nullptr;
    if (int code = Process::self().current(&device)) return answer(code);
    return answer(device->memory->map_for_host(pcpuptr, devptr, sz));
}

int xpu_host_register(void* ptr, uint64_t sz, unsigned int flags) {
    if (int code = Process::self().ready()) return answer(code);
    return answer(host_memory().add(ptr, sz, flags));
}

int xpu_host_unregister(void* ptr) {
    if (int code = Process::self().ready()) return answer(code);
    return answer(host_memory().remove(ptr));
}

int xpu_host_alloc(void** ptr, uint64_t sz, unsigned int flags) {
    if (int code = Process::self().ready()) return answer(code);
    return answer(host_memory().allocate(ptr, sz, flags));
}

int xpu_host_free(void* ptr) {
    if (int code = Process::self().ready()) return answer(code);
    return answer(host_memory().release(ptr));
}

int xpu_memcpy(void* dst, const void* src, uint64_t sz, XPUMemcpyKind kind) {
    return answer(copy_now(dst, src, sz, kind));
}

int xpu_memcpy_peer(int dst_device, void* dst_addr, int src_device, const void* src_addr,
                    uint64_t sz) {
    return answer(copy_between(dst_device, dst_addr, src_device, src_addr, sz));
}

#if XPURT_VERSION_MAJOR >= 5
int xpu_memcpy_async(void* dst, const void* src, uint64_t sz, XPUMemcpyKind kind,
                     XPUStream stream) {
    std::shared_ptr<Queue> queue;
    Copy copy{};
    if (int code = Process::self().queue(stream, &queue)) return answer(code);
    if (int code = check(queue->device(), dst, src, sz, kind, &copy)) return answer(code);
    return answer(queue->submit(task_of(copy)));
}
#endif

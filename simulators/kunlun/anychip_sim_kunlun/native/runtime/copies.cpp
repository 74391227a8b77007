#include "copies.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "device.h"
#include "faults.h"

namespace xpusim {

namespace {

using Clock = std::chrono::steady_clock;

// Host addresses belong to no card; a device side lies whole in one living allocation.
bool side_fits(const Device* device, const void* address, uint64_t bytes) {
    if (!device) return !Process::self().memory_of(address);
    return device->memory->reach(address, bytes) != nullptr;
}

int checked(const Copy& wanted, Copy* copy) {
    if (!wanted.to || !wanted.from || wanted.bytes == 0) return XPUERR_INVALID_PARAM;
    if (!side_fits(wanted.target, wanted.to, wanted.bytes)) return XPUERR_INVALID_PARAM;
    if (!side_fits(wanted.source, wanted.from, wanted.bytes)) return XPUERR_INVALID_PARAM;
    *copy = wanted;
    return XPU_SUCCESS;
}

// Fault `slow_link`: the copy takes as long as the link would.
void drag(const Copy& copy, Clock::time_point start) {
    bool over_link = copy.kind != XPU_DEVICE_TO_DEVICE;
    int slow = faults().slow_device;
    bool touches = (copy.target && copy.target->physical == slow) ||
                   (copy.source && copy.source->physical == slow);
    if (!over_link || !touches) return;
    double seconds = static_cast<double>(copy.bytes) / faults().slow_bytes_second;
    std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(seconds)));
}

void account(const Copy& copy, uint64_t bytes, Clock::time_point start) {
    auto gone = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    const Device* device = copy.target ? copy.target : copy.source;
    CopyCount& count = device->entry->copies[copy.kind];
    __atomic_fetch_add(&count.copies, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&count.bytes, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&count.nanoseconds, static_cast<uint64_t>(gone.count()), __ATOMIC_RELAXED);
}

}  // namespace

int check(Device& device, void* to, const void* from, uint64_t bytes, int kind, Copy* copy) {
    switch (kind) {
        case XPU_DEVICE_TO_HOST: return checked({to, from, bytes, kind, nullptr, &device}, copy);
        case XPU_HOST_TO_DEVICE: return checked({to, from, bytes, kind, &device, nullptr}, copy);
        case XPU_DEVICE_TO_DEVICE: return checked({to, from, bytes, kind, &device, &device}, copy);
        default: return XPUERR_INVALID_PARAM;
    }
}

int check_peer(Device& target, void* to, Device& source, const void* from, uint64_t bytes,
               Copy* copy) {
    if (&target == &source) return XPUERR_INVALID_PARAM;
    return checked({to, from, bytes, copy_peer, &target, &source}, copy);
}

bool perform(const Copy& copy) {
    Clock::time_point start = Clock::now();
    void* to = copy.target ? copy.target->memory->reach(copy.to, copy.bytes) : copy.to;
    const void* from =
        copy.source ? copy.source->memory->reach(copy.from, copy.bytes) : copy.from;
    if (!to || !from) return false;
    // Fault `short_copy`: the last quarter, at least one byte, never arrives.
    uint64_t missing = faults().short_copy.now() ? (copy.bytes + 3) / 4 : 0;
    std::memmove(to, from, copy.bytes - missing);
    drag(copy, start);
    account(copy, copy.bytes - missing, start);
    return true;
}

}  // namespace xpusim

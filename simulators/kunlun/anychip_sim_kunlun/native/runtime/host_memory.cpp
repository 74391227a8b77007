#include "host_memory.h"

#include <sys/mman.h>

#include <iterator>

#include "xpu/defs.h"

namespace xpusim {

namespace {

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

}  // namespace

bool HostMemory::overlaps(uint64_t start, uint64_t bytes) const {
    auto after = ranges_.lower_bound(start + bytes);
    if (after == ranges_.begin()) return false;
    auto before = std::prev(after);
    return before->first + before->second.bytes > start;
}

bool HostMemory::forget(void* start, bool ours, uint64_t* bytes) {
    auto place = ranges_.find(number(start));
    if (place == ranges_.end() || place->second.ours != ours) return false;
    *bytes = place->second.bytes;
    ranges_.erase(place);
    return true;
}

int HostMemory::add(void* start, uint64_t bytes, unsigned flags) {
    if (!start || bytes == 0 || flags != 0) return XPUERR_INVALID_PARAM;
    std::lock_guard<std::mutex> guard(lock_);
    if (overlaps(number(start), bytes)) return XPUERR_HOSTMEM_ALREADY_REGISTERED;
    ranges_[number(start)] = Range{bytes, false};
    return XPU_SUCCESS;
}

int HostMemory::remove(void* start) {
    uint64_t bytes = 0;
    std::lock_guard<std::mutex> guard(lock_);
    return forget(start, false, &bytes) ? XPU_SUCCESS : XPUERR_INVALID_PARAM;
}

int HostMemory::allocate(void** start, uint64_t bytes, unsigned flags) {
    if (!start || bytes == 0 || flags != 0) return XPUERR_INVALID_PARAM;
    void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return XPUERR_NOCPUMEM;
    std::lock_guard<std::mutex> guard(lock_);
    ranges_[number(fresh)] = Range{bytes, true};
    *start = fresh;
    return XPU_SUCCESS;
}

int HostMemory::release(void* start) {
    uint64_t bytes = 0;
    std::lock_guard<std::mutex> guard(lock_);
    if (!forget(start, true, &bytes)) return XPUERR_INVALID_PARAM;
    return munmap(start, bytes) == 0 ? XPU_SUCCESS : XPUERR_UNEXPECT;
}

HostMemory& host_memory() {
    static HostMemory* all = new HostMemory();
    return *all;
}

}  // namespace xpusim

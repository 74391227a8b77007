// Locked host memory. Locking changes nothing in the simulator; the rules about it are kept.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace xpusim {

class HostMemory {
public:
    // 707: null, size 0, flags other than 0. 816: overlaps what is registered already.
    int add(void* start, uint64_t bytes, unsigned flags);
    int remove(void* start);
    int allocate(void** start, uint64_t bytes, unsigned flags);
    int release(void* start);

private:
    struct Range {
        uint64_t bytes;
        bool ours;  // from allocate(), so that unregistering does not take it
    };
    bool overlaps(uint64_t start, uint64_t bytes) const;
    bool forget(void* start, bool ours, uint64_t* bytes);

    std::mutex lock_;
    std::map<uint64_t, Range> ranges_;
};

HostMemory& host_memory();

}  // namespace xpusim

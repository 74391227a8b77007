// One memory of one simulated card: an address range that no host code can touch, and a second
// mapping of the same bytes, elsewhere, for kernels and copies.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace xpusim {

// One living allocation; `bytes` as asked for, `held` in whole pages.
struct Allocation {
    uint64_t offset;
    uint64_t bytes;
    uint64_t held;
    int kind;
};

// Not thread-safe: its owner locks.
class Arena {
public:
    // `block` zero: no boundary rule. The ranges are address space alone until they are written.
    Arena(uint64_t capacity, uint64_t page, uint64_t block);
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    uint64_t whole_pages(uint64_t bytes) const;
    bool contains(const void* address) const;

    // First fit. Null: no hole is large enough, or (unless `may_cross`) none inside one block.
    void* take(uint64_t bytes, int kind, bool may_cross);
    // Bytes given back; nothing where `address` does not start a living allocation.
    std::optional<uint64_t> give_back(const void* address);
    // The living allocation that holds the whole range; null where there is none.
    const Allocation* find(const void* address, uint64_t bytes) const;
    // The kernels' view of an address that find() has found.
    void* view(const void* address) const;
    // A host mapping of device memory, for xpu_mmap. Null where the system refuses.
    void* map_for_host(const void* address, uint64_t bytes) const;

private:
    std::optional<uint64_t> hole(uint64_t held, bool may_cross) const;
    uint64_t place(uint64_t start, uint64_t held, bool may_cross) const;
    void poison(const Allocation& allocation);
    void widen(uint64_t start, uint64_t length);

    uint64_t capacity_, page_, block_;
    int file_ = -1;
    char* base_ = nullptr;   // what the host sees: no access
    char* bytes_ = nullptr;  // what kernels see
    std::map<uint64_t, uint64_t> free_;          // offset -> length
    std::map<uint64_t, Allocation> living_;      // by offset
};

}  // namespace xpusim

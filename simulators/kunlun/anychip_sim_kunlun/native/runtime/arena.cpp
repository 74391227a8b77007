#include "arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace xpusim {

namespace {

constexpr uint64_t poison_whole = 16u << 20;  // up to this size every byte is poisoned
constexpr uint64_t poison_edge = 1u << 20;    // beyond it, so much at each end

void* must(void* mapping, const char* what) {
    if (mapping != MAP_FAILED) return mapping;
    std::perror(what);
    std::abort();
}

}  // namespace

Arena::Arena(uint64_t capacity, uint64_t page, uint64_t block)
    : capacity_(capacity), page_(page), block_(block) {
    file_ = memfd_create("xpu-memory", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(capacity)) != 0) {
        std::perror("simulated device memory");
        std::abort();
    }
    constexpr int quiet = MAP_NORESERVE;
    base_ = static_cast<char*>(must(
        mmap(nullptr, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | quiet, -1, 0),
        "simulated device addresses"));
    bytes_ = static_cast<char*>(must(
        mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | quiet, file_, 0),
        "simulated device memory"));
    free_[0] = capacity;
}

uint64_t Arena::whole_pages(uint64_t bytes) const { return (bytes + page_ - 1) / page_ * page_; }

bool Arena::contains(const void* address) const {
    const char* place = static_cast<const char*>(address);
    return place >= base_ && place < base_ + capacity_;
}

// Where an allocation may start in a hole that begins at `start`: inside one block, or anywhere.
uint64_t Arena::place(uint64_t start, uint64_t held, bool may_cross) const {
    if (may_cross || block_ == 0) return start;
    uint64_t last = start + held - 1;
    return start / block_ == last / block_ ? start : (start / block_ + 1) * block_;
}

std::optional<uint64_t> Arena::hole(uint64_t held, bool may_cross) const {
    if (!may_cross && block_ != 0 && held > block_) return std::nullopt;
    for (const auto& [start, length] : free_) {
        uint64_t at = place(start, held, may_cross);
        if (at + held <= start + length) return at;
    }
    return std::nullopt;
}

void* Arena::take(uint64_t bytes, int kind, bool may_cross) {
    uint64_t held = whole_pages(bytes);
    if (held < bytes || held > capacity_) return nullptr;
    std::optional<uint64_t> at = hole(held, may_cross);
    if (!at) return nullptr;
    auto around = std::prev(free_.upper_bound(*at));
    auto [start, length] = *around;
    free_.erase(around);
    if (*at > start) free_[start] = *at - start;
    if (*at + held < start + length) free_[*at + held] = start + length - *at - held;
    Allocation& fresh = living_[*at] = Allocation{*at, bytes, held, kind};
    poison(fresh);
    return base_ + *at;
}

// A value that was never written is then a NaN or an index far out of range, and shows.
void Arena::poison(const Allocation& allocation) {
    char* start = bytes_ + allocation.offset;
    if (allocation.held <= poison_whole) {
        std::memset(start, 0xFF, allocation.held);
        return;
    }
    std::memset(start, 0xFF, poison_edge);
    std::memset(start + allocation.held - poison_edge, 0xFF, poison_edge);
}

std::optional<uint64_t> Arena::give_back(const void* address) {
    auto place = living_.find(static_cast<uint64_t>(static_cast<const char*>(address) - base_));
    if (place == living_.end()) return std::nullopt;
    const Allocation gone = place->second;
    living_.erase(place);
    int punched = fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            static_cast<off_t>(gone.offset), static_cast<off_t>(gone.held));
    if (punched != 0) {
        std::perror("simulated device memory: give back");
        std::abort();
    }
    widen(gone.offset, gone.held);
    return gone.held;
}

// Adds a range to the holes, joined with the holes that it touches.
void Arena::widen(uint64_t start, uint64_t length) {
    auto after = free_.upper_bound(start);
    if (after != free_.end() && start + length == after->first) {
        length += after->second;
        after = free_.erase(after);
    }
    if (after != free_.begin()) {
        auto before = std::prev(after);
        if (before->first + before->second == start) {
            before->second += length;
            return;
        }
    }
    free_[start] = length;
}

const Allocation* Arena::find(const void* address, uint64_t bytes) const {
    if (!contains(address)) return nullptr;
    uint64_t offset = static_cast<uint64_t>(static_cast<const char*>(address) - base_);
    auto after = living_.upper_bound(offset);
    if (after == living_.begin()) return nullptr;
    const Allocation& found = std::prev(after)->second;
    uint64_t inside = offset - found.offset;
    bool fits = inside <= found.bytes && bytes <= found.bytes - inside;
    return fits ? &found : nullptr;
}

void* Arena::view(const void* address) const {
    return bytes_ + (static_cast<const char*>(address) - base_);
}

void* Arena::map_for_host(const void* address, uint64_t bytes) const {
    off_t offset = static_cast<off_t>(static_cast<const char*>(address) - base_);
    void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, offset);
    return view == MAP_FAILED ? nullptr : view;
}

}  // namespace xpusim

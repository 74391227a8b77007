#include "memory.h"

#include <mutex>

#include "xpu/defs.h"

namespace xpusim {

namespace {

// Kind 17 is of second-generation cards alone (their header names it so); that others refuse it,
// and that kind 16 lies in main memory, are guesses.
bool known_kind(XPUMemoryKind kind, uint32_t model) {
    bool second_generation = model >= R200 && model < KL3;
    return kind == XPU_MEM_MAIN || kind == XPU_MEM_L3 || kind == XPU_MEM_MMAPPABLE ||
           (kind == XPU_MEM_MAIN_KL2_HUGE && second_generation);
}

}  // namespace

Memory::Memory(BoardFile& file, BoardDevice& card, BoardProcess& entry)
    : file_(file),
      card_(card),
      entry_(entry),
      main_(card.capacity, card.page, card.block),
      l3_(card.l3_capacity, card.l3_page, 0) {}

// All processes share the card's capacity, so the sum is taken and changed under one lock.
bool Memory::account(uint64_t held, bool l3) {
    std::lock_guard<BoardFile> guard(file_);
    reclaim(card_);
    BoardUse use = usage(card_);
    uint64_t taken = l3 ? use.l3_used : use.used;
    uint64_t capacity = l3 ? card_.l3_capacity : card_.capacity;
    if (held > capacity - taken) return false;
    __atomic_fetch_add(l3 ? &entry_.l3_used : &entry_.used, held, __ATOMIC_RELAXED);
    return true;
}

void Memory::give_account_back(uint64_t held, bool l3) {
    __atomic_fetch_sub(l3 ? &entry_.l3_used : &entry_.used, held, __ATOMIC_RELAXED);
}

int Memory::allocate(void** address, uint64_t bytes, XPUMemoryKind kind) {
    if (!address || bytes == 0 || !known_kind(kind, card_.model)) return XPUERR_INVALID_PARAM;
    bool l3 = kind == XPU_MEM_L3;
    Arena& arena = l3 ? l3_ : main_;
    uint64_t held = arena.whole_pages(bytes);
    if (held < bytes || !account(held, l3)) return XPUERR_NOMEM;
    std::unique_lock<std::shared_mutex> guard(lock_);
    void* found = arena.take(bytes, kind, kind == XPU_MEM_MAIN_KL2_HUGE);
    if (!found) {
        give_account_back(held, l3);
        return XPUERR_NOMEM;
    }
    *address = found;
    return XPU_SUCCESS;
}

int Memory::release(const void* address) {
    std::unique_lock<std::shared_mutex> guard(lock_);
    bool l3 = l3_.contains(address);
    if (!l3 && !main_.contains(address)) return XPUERR_INVALID_PARAM;
    std::optional<uint64_t> held = (l3 ? l3_ : main_).give_back(address);
    if (!held) return XPUERR_INVALID_PARAM;
    give_account_back(*held, l3);
    return XPU_SUCCESS;
}

// That only memory of kind 16 can be mapped is a guess from the kind's name.
int Memory::map_for_host(void** host, const void* address, uint64_t bytes) {
    std::shared_lock<std::shared_mutex> guard(lock_);
    const Allocation* found = main_.find(address, bytes);
    if (!host || bytes == 0 || !found || found->kind != XPU_MEM_MMAPPABLE) {
        return XPUERR_INVALID_PARAM;
    }
    void* view = main_.map_for_host(address, bytes);
    if (view) *host = view;
    return view ? XPU_SUCCESS : XPUERR_NOCPUMEM;
}

bool Memory::contains(const void* address) const {
    return main_.contains(address) || l3_.contains(address);
}

const Arena* Memory::arena_of(const void* address) const {
    if (main_.contains(address)) return &main_;
    return l3_.contains(address) ? &l3_ : nullptr;
}

void* Memory::reach(const void* address, uint64_t bytes) const {
    const Arena* arena = arena_of(address);
    if (!arena) return nullptr;
    std::shared_lock<std::shared_mutex> guard(lock_);
    return arena->find(address, bytes) ? arena->view(address) : nullptr;
}

}  // namespace xpusim

// The memories of one card as one process holds them, with their share of the board's accounts.
#pragma once

#include <cstdint>
#include <shared_mutex>

#include "arena.h"
#include "board_file.h"
#include "xpu/runtime.h"

namespace xpusim {

// Every status is 0 or a positive code of xpu/defs.h; the entry points turn the sign.
class Memory {
public:
    Memory(BoardFile& file, BoardDevice& card, BoardProcess& entry);

    int allocate(void** address, uint64_t bytes, XPUMemoryKind kind);
    int release(const void* address);
    int map_for_host(void** host, const void* address, uint64_t bytes);

    bool contains(const void* address) const;
    // The view of a range inside one living allocation; null where it is not inside one.
    void* reach(const void* address, uint64_t bytes) const;

private:
    bool account(uint64_t held, bool l3);
    void give_account_back(uint64_t held, bool l3);
    const Arena* arena_of(const void* address) const;

    BoardFile& file_;
    BoardDevice& card_;
    BoardProcess& entry_;
    mutable std::shared_mutex lock_;
    Arena main_, l3_;
};

}  // namespace xpusim

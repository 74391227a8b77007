// Copies between host and device, and between devices: their checks, their faults, their accounts.
#pragma once

#include <cstdint>

#include "process.h"

namespace xpusim {

// One copy, checked. Its device sides are device addresses; the bytes are looked up when it runs,
// so that memory freed meanwhile is noticed.
struct Copy {
    void* to;
    const void* from;
    uint64_t bytes;
    int kind;        // XPUMemcpyKind, or copy_peer
    Device* target;  // the card of `to`, null for the host
    Device* source;  // the card of `from`, null for the host
};

// 0 or 707: size 0, null, a direction that does not match where the addresses lie, an address of
// another card, a range that no living allocation holds whole.
int check(Device& device, void* to, const void* from, uint64_t bytes, int kind, Copy* copy);
int check_peer(Device& target, void* to, Device& source, const void* from, uint64_t bytes,
               Copy* copy);

// Copies now, on this thread. False where a device side has been freed since the check.
bool perform(const Copy& copy);

}  // namespace xpusim

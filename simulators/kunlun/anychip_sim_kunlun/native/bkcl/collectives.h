// What the collectives do, inside a kernel. All device pointers; counts in elements.
#pragma once

#include "comm.h"

namespace bkclsim {

enum class Kind : uint32_t {
    all_reduce = 1,
    all_gather,
    reduce_scatter,
    broadcast,
    reduce,
    all_to_all,
};

// One call's arguments. `count` is what the caller gave: elements of the whole buffer for
// reductions and broadcasts, of one rank's part for the others.
struct Call {
    Kind kind;
    const void* send;
    void* recv;
    uint64_t count;
    BKCLDataType dtype;
    BKCLOp op = BKCL_ADD;
    int root = 0;
};

// Throws Failure and xpusim::KernelFault.
void run(Comm& comm, const Call& call);

}  // namespace bkclsim

// Messages between pairs of ranks, all of a group at once: no order of sends and receives hangs.
#pragma once

#include <vector>

#include "comm.h"

namespace bkclsim {

struct Transfer {
    bool outgoing;
    int peer;
    const void* buffer;  // device memory
    uint64_t bytes;
    BKCLDataType dtype;
    // Progress.
    char* host = nullptr;
    uint64_t done = 0;
    bool begun = false, over = false;
};

// The four arrays are device memory with one entry a rank; all in elements.
struct Parts {
    const void* send;
    const size_t *send_counts, *send_displacements;
    BKCLDataType send_type;
    void* recv;
    const size_t *recv_counts, *recv_displacements;
    BKCLDataType recv_type;
};

// Returns when every message has been handed over. Throws Failure and xpusim::KernelFault.
void exchange(Comm& comm, std::vector<Transfer> transfers);
void all_to_all_v(Comm& comm, const Parts& parts);

}  // namespace bkclsim

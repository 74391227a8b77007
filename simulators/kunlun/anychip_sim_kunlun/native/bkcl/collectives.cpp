#include "collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "reduce.h"
#include "runtime/device.h"

namespace bkclsim {

namespace {

// The kernel's view of a buffer; none where there is nothing in it.
char* view(const void* device, uint64_t bytes) {
    return bytes == 0 ? nullptr : static_cast<char*>(xpusim::reach(device, bytes));
}

// A call cut into rounds: in each, every rank puts a chunk into its slot, all meet, and every
// rank takes what it wants from all slots. Even without data they meet once.
class Rounds {
public:
    Rounds(Comm& comm, const Call& call, int parts)
        : comm_(comm), call_(call), size_(size_of(call.dtype)) {
        per_round_ = kSlotBytes / (size_ * static_cast<uint64_t>(parts));
    }

    template <typename Put, typename Take>
    void each(Put put, Take take) {
        uint64_t at = 0;
        do {
            const uint64_t n = std::min(per_round_, call_.count - at);
            put(comm_.slot(comm_.rank).data, at, n);
            comm_.meet(what(at));
            take(at, n);
            comm_.next_round();
            at += n;
        } while (at < call_.count);
    }

    // Every rank's chunk: part `part` of `n` elements each.
    std::vector<const void*> chunks(uint64_t part, uint64_t n) {
        std::vector<const void*> found;
        for (int rank = 0; rank < comm_.world; ++rank) {
            found.push_back(comm_.slot(rank).data + part * n * size_);
        }
        return found;
    }

private:
    What what(uint64_t at) const {
        return {static_cast<uint32_t>(call_.kind), static_cast<uint32_t>(call_.dtype),
                static_cast<uint32_t>(call_.op), call_.root, call_.count, at};
    }

    Comm& comm_;
    const Call& call_;
    uint64_t size_, per_round_;
};

// all_reduce on every rank; reduce on its root alone.
void reduce(Comm& comm, const Call& call) {
    const uint64_t size = size_of(call.dtype);
    const bool wanted = call.kind == Kind::all_reduce || comm.rank == call.root;
    const char* send = view(call.send, call.count * size);
    char* recv = wanted ? view(call.recv, call.count * size) : nullptr;
    Rounds rounds(comm, call, 1);
    rounds.each(
        [&](void* slot, uint64_t at, uint64_t n) {
            if (n != 0) std::memcpy(slot, send + at * size, n * size);
        },
        [&](uint64_t at, uint64_t n) {
            if (!wanted || n == 0) return;
            combine(call.dtype, call.op, rounds.chunks(0, n), recv + at * size, n);
        });
}

void broadcast(Comm& comm, const Call& call) {
    const uint64_t size = size_of(call.dtype);
    const bool root = comm.rank == call.root;
    const char* send = root ? view(call.send, call.count * size) : nullptr;
    char* recv = view(call.recv, call.count * size);
    Rounds rounds(comm, call, 1);
    rounds.each(
        [&](void* slot, uint64_t at, uint64_t n) {
            if (root && n != 0) std::memcpy(slot, send + at * size, n * size);
        },
        [&](uint64_t at, uint64_t n) {
            if (n == 0) return;
            std::memcpy(recv + at * size, comm.slot(call.root).data, n * size);
        });
}

void all_gather(Comm& comm, const Call& call) {
    const uint64_t size = size_of(call.dtype);
    const auto world = static_cast<uint64_t>(comm.world);
    const char* send = view(call.send, call.count * size);
    char* recv = view(call.recv, world * call.count * size);
    Rounds rounds(comm, call, 1);
    rounds.each(
        [&](void* slot, uint64_t at, uint64_t n) {
            if (n != 0) std::memcpy(slot, send + at * size, n * size);
        },
        [&](uint64_t at, uint64_t n) {
            const auto chunks = rounds.chunks(0, n);
            for (uint64_t rank = 0; n != 0 && rank < world; ++rank) {
                std::memcpy(recv + (rank * call.count + at) * size, chunks[rank], n * size);
            }
        });
}

// A slot holds one part for each rank; a rank takes its own part of every slot.
template <typename Take>
void scatter(Comm& comm, const Call& call, Take take) {
    const uint64_t size = size_of(call.dtype);
    const auto world = static_cast<uint64_t>(comm.world);
    const char* send = view(call.send, world * call.count * size);
    Rounds rounds(comm, call, comm.world);
    rounds.each(
        [&](void* slot, uint64_t at, uint64_t n) {
            for (uint64_t rank = 0; n != 0 && rank < world; ++rank) {
                std::memcpy(static_cast<char*>(slot) + rank * n * size,
                            send + (rank * call.count + at) * size, n * size);
            }
        },
        [&](uint64_t at, uint64_t n) {
            if (n != 0) take(rounds.chunks(static_cast<uint64_t>(comm.rank), n), at, n);
        });
}

void reduce_scatter(Comm& comm, const Call& call) {
    const uint64_t size = size_of(call.dtype);
    char* recv = view(call.recv, call.count * size);
    scatter(comm, call, [&](const std::vector<const void*>& chunks, uint64_t at, uint64_t n) {
        combine(call.dtype, call.op, chunks, recv + at * size, n);
    });
}

void all_to_all(Comm& comm, const Call& call) {
    const uint64_t size = size_of(call.dtype);
    char* recv = view(call.recv, static_cast<uint64_t>(comm.world) * call.count * size);
    scatter(comm, call, [&](const std::vector<const void*>& chunks, uint64_t at, uint64_t n) {
        for (size_t rank = 0; rank < chunks.size(); ++rank) {
            std::memcpy(recv + (rank * call.count + at) * size, chunks[rank], n * size);
        }
    });
}

}  // namespace

void run(Comm& comm, const Call& call) {
    switch (call.kind) {
        case Kind::all_reduce:
        case Kind::reduce: return reduce(comm, call);
        case Kind::broadcast: return broadcast(comm, call);
        case Kind::all_gather: return all_gather(comm, call);
        case Kind::reduce_scatter: return reduce_scatter(comm, call);
        case Kind::all_to_all: return all_to_all(comm, call);
    }
}

}  // namespace bkclsim

// Memory that all ranks of one communicator map, and how they wait for each other in it.
//
// It is a memfd of the process that made the unique id; the others open it through /proc. It has
// no name in any directory, so nothing is left behind whatever dies when.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "xpu/bkcl.h"

namespace bkclsim {

constexpr int kMaxRanks = 64;
constexpr size_t kSlotBytes = 256u << 10;
constexpr size_t kMailBytes = 64u << 10;

// Thrown where a communicator can no longer work; it then stays broken for all ranks.
struct Failure {
    BKCLResult_t status;
    std::string text;
};

// What a rank believes that all ranks are doing now. Ranks that differ are told so.
struct What {
    uint32_t kind, dtype, op;
    int32_t root;
    uint64_t count, offset;
};

bool operator==(const What& a, const What& b);

// A rank's part of one round.
struct Slot {
    What what;
    alignas(64) unsigned char data[kSlotBytes];
};

// One chunk on its way from one rank to another. `full` changes owner: 0 sender, 1 receiver.
struct Mail {
    std::atomic<uint32_t> full;
    uint32_t dtype;
    uint64_t total, bytes;
    alignas(64) unsigned char data[kMailBytes];
};

struct Head {
    uint64_t nonce;
    std::atomic<uint32_t> world;   // 0 until the first rank has come
    std::atomic<uint32_t> broken;  // the BKCLResult_t that ended it, 0 while all is well
    std::atomic<uint32_t> arrived, phase;
    std::atomic<uint32_t> taken[kMaxRanks];
    std::atomic<uint32_t> meetings[kMaxRanks];  // how often each rank has arrived
    std::atomic<uint32_t> bell[kMaxRanks];      // rung when a mailbox of that rank has changed
};

class Segment {
public:
    // Takes `rank`'s place in what `id` names. Throws Failure. timeout: seconds of every wait.
    Segment(const BKCLUniqueId& id, int rank, int world, double timeout);
    ~Segment();
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    static BKCLUniqueId create();                // throws Failure
    static void forget(const BKCLUniqueId& id);  // all ranks have it: the maker lets go

    void meet();  // returns when all ranks have called it
    void check() const;
    void fail(BKCLResult_t status);  // wakes everyone who waits

    Slot& slot(int rank, uint64_t round) const;
    Mail& mail(int source, int target) const;

    uint32_t bell() const { return head().bell[rank_].load(); }
    void ring(int rank);
    void wait_bell(uint32_t heard);  // until it differs from `heard`

private:
    Head& head() const { return *static_cast<Head*>(memory_); }
    void claim();
    void wait(std::atomic<uint32_t>& word, uint32_t while_value, const char* what);
    std::string missing() const;

    int rank_, world_;
    double timeout_;
    size_t bytes_ = 0;
    void* memory_ = nullptr;
};

}  // namespace bkclsim

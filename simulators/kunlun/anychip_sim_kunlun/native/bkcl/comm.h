// One rank of a communicator, and how its operations reach the queue: in the order of the calls,
// one at a time, whatever stream each is on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "segment.h"

namespace bkclsim {

class Comm {
public:
    Comm(int rank, int world, int device);

    // Meets the other ranks that hold `id`. Throws Failure.
    void join(const BKCLUniqueId& id);
    void abort();

    // Queues `body` on `stream`. Under BKCL_FORCE_SYNC it returns when the work is done.
    static BKCLResult_t issue(const std::shared_ptr<Comm>& comm, XPUStream stream,
                              const char* name, std::function<void()> body);

    // One round: all ranks have filled their slots when it returns. Throws Failure where they
    // are not all doing the same.
    void meet(const What& what);
    Slot& slot(int of) { return segment_->slot(of, round_); }
    void next_round() { ++round_; }
    Segment& segment() { return *segment_; }

    const int rank, world, device;

private:
    class Turn;
    struct Job;
    BKCLResult_t queue(XPUStream stream, const char* name, std::function<void()> kernel) const;
    bool usable() const;

    std::unique_ptr<Segment> segment_;
    double timeout_;  // seconds, from BKCL_TIMEOUT
    bool synchronous_;
    uint64_t round_ = 0;  // belongs to the operation whose turn it is

    std::mutex lock_;
    std::condition_variable moved_;
    std::set<uint64_t> pending_;  // operations issued and not yet over, oldest first
    uint64_t issued_ = 0;
};

// Tells the user why a call failed: a status says no more than its number.
void complain(const std::string& text);

}  // namespace bkclsim

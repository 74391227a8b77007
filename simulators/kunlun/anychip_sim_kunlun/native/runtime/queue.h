// Queues ("streams") and events. A queue runs its work in order on a thread of its own; nothing
// waits for a queue by itself. What happens after a kernel exception follows the public driver of
// the second generation.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace xpusim {

struct Device;

class Event {
public:
    explicit Event(int device) : device_(device) {}
    int device() const { return device_; }

    uint64_t record();            // one more record is queued; its number
    void finish(uint64_t number); // the queue has come to that record
    void revoke(int code);        // the queue failed before it came to a record
    int status() const;           // 0: done; 716: still to come; or what it was revoked with

    uint64_t last() const;        // number of the last record, 0 for none
    // Blocks until that record is done. 0, or what the event was revoked with.
    int wait(uint64_t number);

private:
    const int device_;
    mutable std::mutex lock_;
    std::condition_variable changed_;
    uint64_t recorded_ = 0, finished_ = 0;
    int revoked_ = 0;             // the code, 0 while it is not
};

struct Task {
    const char* name;
    std::function<void()> body;     // empty for a record
    std::shared_ptr<Event> record;
    uint64_t number = 0;            // of the record
    bool is_kernel = false;
    bool is_late = false;           // the queue had nothing to do before it
    std::chrono::steady_clock::time_point submitted;  // of a late task
};

class Queue : public std::enable_shared_from_this<Queue> {
public:
    explicit Queue(Device& device) : device_(device) {}

    Device& device() const { return device_; }

    // 0, or 712 once the queue has failed or is tainted.
    int submit(Task task);
    // Blocks until all that was submitted before is done, or the queue has failed: its code, again
    // and again. There is no time limit, as in the vendor's runtime.
    int wait();
    int error() const;

    // The queue fails with `code`; what waits in it is dropped. A taint does not hide an error of
    // the queue's own.
    void fail(int code);
    void taint(int code);
    // No more work is taken; what is queued still runs, then the thread ends.
    void close();

private:
    void start();
    void work();
    bool next(Task& task);
    void run(Task& task);
    void call(Task& task);
    void count_finished();
    void raise(const Task& task, const std::string& text);
    bool set_error(int code, bool own);

    Device& device_;
    mutable std::mutex lock_;
    std::condition_variable work_, done_;
    std::deque<Task> tasks_;
    uint64_t submitted_ = 0, finished_ = 0;
    int waiting_ = 0, error_ = 0;
    bool started_ = false, closed_ = false;
};

// The device of the queue whose thread this is; null elsewhere.
Device* kernel_device();

// From now on no queue starts another task: the process ends, and what a kernel needs may be gone.
void stop_queues();

}  // namespace xpusim

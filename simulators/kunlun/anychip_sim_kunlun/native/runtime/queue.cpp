#include "queue.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "device.h"
#include "faults.h"
#include "process.h"

namespace xpusim {

namespace {

thread_local Device* here = nullptr;
std::atomic<bool> stopped{false};

using Clock = std::chrono::steady_clock;

uint64_t since(Clock::time_point start) {
    auto gone = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    return static_cast<uint64_t>(gone.count());
}

}  // namespace

Device* kernel_device() { return here; }

void stop_queues() { stopped = true; }

uint64_t Event::record() {
    std::lock_guard<std::mutex> guard(lock_);
    return ++recorded_;
}

void Event::finish(uint64_t number) {
    std::lock_guard<std::mutex> guard(lock_);
    if (number > finished_) finished_ = number;
    changed_.notify_all();
}

void Event::revoke(int code) {
    std::lock_guard<std::mutex> guard(lock_);
    revoked_ = code;
    changed_.notify_all();
}

int Event::status() const {
    std::lock_guard<std::mutex> guard(lock_);
    if (finished_ >= recorded_) return XPU_SUCCESS;
    return revoked_ != 0 ? revoked_ : static_cast<int>(XPUERR_BUSY);
}

uint64_t Event::last() const {
    std::lock_guard<std::mutex> guard(lock_);
    return recorded_;
}

int Event::wait(uint64_t number) {
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait(guard, [&] { return finished_ >= number || revoked_ != 0; });
    return finished_ >= number ? static_cast<int>(XPU_SUCCESS) : revoked_;
}

int Queue::submit(Task task) {
    std::lock_guard<std::mutex> guard(lock_);
    if (closed_) return XPUERR_USEAFCLOSE;
    if (error_ != 0) return XPUERR_NOSUPPORT;
    if (task.record) task.number = task.record->record();
    task.is_late = finished_ == submitted_;
    if (task.is_late) task.submitted = Clock::now();
    ++submitted_;
    tasks_.push_back(std::move(task));
    if (!started_) start();
    work_.notify_one();
    return XPU_SUCCESS;
}

int Queue::wait() {
    std::unique_lock<std::mutex> guard(lock_);
    uint64_t target = submitted_;
    ++waiting_;
    done_.wait(guard, [&] { return finished_ >= target || error_ != 0; });
    --waiting_;
    return error_;
}

int Queue::error() const {
    std::lock_guard<std::mutex> guard(lock_);
    return error_;
}

void Queue::fail(int code) { set_error(code, true); }

void Queue::taint(int code) { set_error(code, false); }

// True where an event record was among the tasks that are dropped. Who waits for that event hears
// of a lost card; after a kernel exception, of an event that will not come.
bool Queue::set_error(int code, bool own) {
    std::lock_guard<std::mutex> guard(lock_);
    if (own || error_ == 0) error_ = code;
    int told = code == XPUERR_HWEXCEPTION ? XPUERR_HWEXCEPTION : XPUERR_EVENTWAIT;
    bool record = false;
    for (Task& task : tasks_) {
        if (!task.record) continue;
        task.record->revoke(told);
        record = true;
    }
    finished_ += tasks_.size();
    tasks_.clear();
    done_.notify_all();
    return record;
}

void Queue::close() {
    std::lock_guard<std::mutex> guard(lock_);
    closed_ = true;
    work_.notify_one();
}

// Detached, and its own owner: a kernel that hangs must not keep the process from ending.
void Queue::start() {
    started_ = true;
    std::thread([self = shared_from_this()] { self->work(); }).detach();
}

void Queue::work() {
    here = &device_;
    Task task;
    while (next(task)) run(task);
}

// Blocks for the next task; false where the queue is closed and empty.
bool Queue::next(Task& task) {
    std::unique_lock<std::mutex> guard(lock_);
    work_.wait(guard, [&] { return !tasks_.empty() || closed_; });
    if (tasks_.empty()) return false;
    task = std::move(tasks_.front());
    tasks_.pop_front();
    guard.unlock();
    while (stopped) pause();
    return true;
}

// A queue that was idle starts late, so that host code that forgot to wait sees old bytes.
void Queue::run(Task& task) {
    if (task.is_late) {
        std::this_thread::sleep_until(task.submitted +
                                      std::chrono::microseconds(faults().queue_delay_us));
    }
    if (task.record) {
        task.record->finish(task.number);
    } else {
        call(task);
    }
    task = Task{};  // what the kernel held is released before anyone hears that it is done
    count_finished();
}

void Queue::call(Task& task) {
    Clock::time_point start = Clock::now();
    try {
        task.body();
    } catch (const KernelFault& fault) {
        raise(task, fault.text);
    } catch (const std::exception& error) {
        raise(task, error.what());
    }
    if (!task.is_kernel) return;
    uint64_t nanoseconds = since(start);
    device_.last_kernel = nanoseconds;
    __atomic_fetch_add(&device_.entry->busy, nanoseconds, __ATOMIC_RELAXED);
}

void Queue::count_finished() {
    std::lock_guard<std::mutex> guard(lock_);
    ++finished_;
    if (waiting_ > 0) done_.notify_all();
}

// The error is the process's from here on, if an event was to be recorded behind the kernel: then
// what waits for that event can never be right.
void Queue::raise(const Task& task, const std::string& text) {
    std::fprintf(stderr, "[XPURT simulator] kernel exception on device %d: %s: %s\n",
                 device_.physical, task.name, text.c_str());
    if (set_error(XPUERR_KEXCEPTION, true)) Process::self().taint_others(device_, this);
}

}  // namespace xpusim

// A few threads that share the tasks of one job. The caller works too.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace anychip {

// A worker first counts itself in (active_), then looks whether a job is open. The caller closes
// the job, then waits until nobody is in. So a worker that the system has not woken yet is never
// waited for. Workers spin for a moment after a job, since the next one mostly comes at once.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) once for each task in 0 .. tasks - 1, thread in 0 .. threads() - 1.
  template <class F>
  void run(int64_t tasks, F&& body) {
    if (tasks <= 1 || workers_.empty()) {
      for (int64_t i = 0; i < tasks; ++i) body(i, 0);
      return;
    }
    share(tasks, false, body);
  }

  // The same where neighbours lie side by side in memory, as the panels of a weight do: a thread goes
  // through a share of its own in order, so that it reads one stream, and then helps the others from the
  // ends of theirs. A stream that begins anew costs a core some waits for the memory.
  template <class F>
  void run_streams(int64_t tasks, F&& body) {
    if (tasks <= 1 || workers_.empty()) return run(tasks, body);
    share(tasks, true, body);
  }

 private:
  using Call = void (*)(void*, int64_t, int);

  struct alignas(64) Share {  // tasks that nobody has taken: first << 32 | one past the last
    std::atomic<uint64_t> left{0};
    int64_t take_first();
    int64_t take_last();
  };

  template <class F>
  void share(int64_t tasks, bool streams, F& body) {
    auto call = [](void* context, int64_t task, int thread) { (*static_cast<F*>(context))(task, thread); };
    share(tasks, streams, call, const_cast<void*>(static_cast<const void*>(&body)));
  }

  void share(int64_t tasks, bool streams, Call call, void* context);
  void work(int thread);
  void take_tasks(int thread);
  void take_streams(int thread);
  bool wait_for_job(uint64_t seen);

  Call call_ = nullptr;
  void* context_ = nullptr;
  int64_t tasks_ = 0;
  bool streams_ = false;
  std::unique_ptr<Share[]> shares_;  // a thread one
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int> active_{0};
  alignas(64) std::atomic<uint64_t> job_{0};  // odd while a job is open
  std::atomic<int> asleep_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

// Calls body(first, last) over slices of rows; small work stays on the calling thread.
// cost: elements that one row touches.
template <class F>
inline void for_rows(Pool* pool, int64_t rows, int64_t cost, F body) {
  int64_t slice = 16384 / (cost > 0 ? cost : 1);
  if (slice < 1) slice = 1;
  if (rows <= slice) {
    if (rows > 0) body(int64_t{0}, rows);
    return;
  }
  pool->run((rows + slice - 1) / slice, [&](int64_t task, int) {
    int64_t first = task * slice, last = first + slice;
    body(first, last < rows ? last : rows);
  });
}

}  // namespace anychip

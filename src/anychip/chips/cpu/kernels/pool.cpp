#include "pool.h"

#include "abi.h"

namespace anychip {

namespace {

constexpr int SPINS = 4000;  // about 50 to 150 microseconds

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Pool::Pool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Pool::share(int64_t tasks, Call call, void* context) {
  call_ = call;
  context_ = context;
  tasks_ = tasks;
  next_.store(0);
  job_.fetch_add(1);
  if (asleep_.load() > 0) {
    { std::lock_guard<std::mutex> lock(mutex_); }
    wake_.notify_all();
  }
  take_tasks(0);
  job_.fetch_add(1);
  for (int spins = 0; active_.load() != 0; ++spins) {
    if (spins < SPINS) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void Pool::take_tasks(int thread) {
  int64_t tasks = tasks_;
  for (int64_t i = next_.fetch_add(1); i < tasks; i = next_.fetch_add(1)) {
    call_(context_, i, thread);
  }
}

void Pool::work(int thread) {
  uint64_t seen = 0;
  while (wait_for_job(seen)) {
    active_.fetch_add(1);
    uint64_t job = job_.load();
    if (job & 1) take_tasks(thread);
    seen = job;
    active_.fetch_sub(1);
  }
}

// Returns when the job number has moved past `seen`; false when the pool ends.
bool Pool::wait_for_job(uint64_t seen) {
  for (int i = 0; i < SPINS; ++i) {
    if (stop_.load(std::memory_order_relaxed)) return false;
    if (job_.load() != seen) return true;
    relax();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  asleep_.fetch_add(1);
  wake_.wait(lock, [&] { return stop_.load() || job_.load() != seen; });
  asleep_.fetch_sub(1);
  return !stop_.load();
}

}  // namespace anychip

EXPORT void* anychip_pool_open(int64_t threads) {
  return new anychip::Pool(static_cast<int>(threads));
}

EXPORT void anychip_pool_close(void* pool) { delete static_cast<anychip::Pool*>(pool); }

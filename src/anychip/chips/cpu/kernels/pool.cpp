#include "pool.h"

#include "abi.h"

namespace anychip {

namespace {

constexpr int SPINS = 4000;  // about 50 to 150 microseconds
constexpr uint64_t LOW = 0xffffffff;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Pool::Pool(int threads) : shares_(new Share[threads > 0 ? threads : 1]) {
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

// -1 where none is left.
int64_t Pool::Share::take_first() {
  uint64_t seen = left.load();
  do {
    if (seen >> 32 >= (seen & LOW)) return -1;
  } while (!left.compare_exchange_weak(seen, seen + (LOW + 1)));
  return static_cast<int64_t>(seen >> 32);
}

int64_t Pool::Share::take_last() {
  uint64_t seen = left.load();
  do {
    if (seen >> 32 >= (seen & LOW)) return -1;
  } while (!left.compare_exchange_weak(seen, seen - 1));
  return static_cast<int64_t>(seen & LOW) - 1;
}

void Pool::share(int64_t tasks, bool streams, Call call, void* context) {
  call_ = call;
  context_ = context;
  tasks_ = tasks;
  streams_ = streams && tasks <= static_cast<int64_t>(LOW);
  next_.store(0);
  for (int64_t t = 0; streams_ && t < threads(); ++t) {
    uint64_t first = tasks * t / threads(), last = tasks * (t + 1) / threads();
    shares_[t].left.store(first << 32 | last);
  }
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

void Pool::take_streams(int thread) {
  Share& own = shares_[thread];
  for (int64_t i = own.take_first(); i >= 0; i = own.take_first()) call_(context_, i, thread);
  for (int t = 1; t < threads(); ++t) {
    Share& other = shares_[(thread + t) % threads()];
    for (int64_t i = other.take_last(); i >= 0; i = other.take_last()) call_(context_, i, thread);
  }
}

void Pool::take_tasks(int thread) {
  if (streams_) return take_streams(thread);
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

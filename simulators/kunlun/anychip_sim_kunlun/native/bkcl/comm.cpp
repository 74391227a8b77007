#include "comm.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

#include "runtime/device.h"

namespace bkclsim {

namespace {

// The vendor's default is not public; launch scripts set 1800.
constexpr double kDefaultTimeout = 1800;

double timeout_from_environment() {
    const char* text = getenv("BKCL_TIMEOUT");
    if (text == nullptr || *text == '\0') return kDefaultTimeout;
    char* end = nullptr;
    const double seconds = strtod(text, &end);
    if (*end != '\0' || !std::isfinite(seconds) || seconds <= 0) {
        throw Failure{BKCL_INVALID_ARGUMENT,
                      std::string("BKCL_TIMEOUT=") + text + " is no number of seconds"};
    }
    return seconds;
}

bool synchronous_from_environment() {
    const char* text = getenv("BKCL_FORCE_SYNC");
    return text != nullptr && std::string(text) == "1";
}

}  // namespace

void complain(const std::string& text) { fprintf(stderr, "[ERROR][BKCL] %s\n", text.c_str()); }

// An operation's place in the order of calls, given back even if the queue drops the operation.
class Comm::Turn {
public:
    explicit Turn(Comm& comm) : comm_(comm) {
        std::lock_guard<std::mutex> guard(comm.lock_);
        number_ = comm.issued_++;
        comm.pending_.insert(number_);
    }
    ~Turn() {
        std::lock_guard<std::mutex> guard(comm_.lock_);
        comm_.pending_.erase(number_);
        comm_.moved_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    void await() {
        std::unique_lock<std::mutex> guard(comm_.lock_);
        const auto limit = std::chrono::duration<double>(comm_.timeout_);
        const auto mine = [this] { return *comm_.pending_.begin() == number_; };
        if (!comm_.moved_.wait_for(guard, limit, mine)) {
            throw Failure{BKCL_SYSTEM_ERROR, "an earlier operation on another stream hangs"};
        }
    }

private:
    Comm& comm_;
    uint64_t number_ = 0;
};

struct Comm::Job {
    Job(std::shared_ptr<Comm> owner, std::function<void()> work)
        : comm(std::move(owner)), turn(*comm), body(std::move(work)) {}

    void run() {
        try {
            turn.await();
            comm->segment_->check();
            body();
            over.set_value(BKCL_SUCCESS);
        } catch (const Failure& failure) {
            end(failure.status, failure.text);
        } catch (const xpusim::KernelFault& fault) {
            end(BKCL_INTERNAL_ERROR, fault.text);
        }
    }

    [[noreturn]] void end(BKCLResult_t status, const std::string& text) {
        const std::string who = "rank " + std::to_string(comm->rank) + ": " + text;
        comm->segment_->fail(status);
        complain(who);
        over.set_value(status);
        throw xpusim::KernelFault{who};
    }

    std::shared_ptr<Comm> comm;
    Turn turn;
    std::function<void()> body;
    std::promise<BKCLResult_t> over;
};

Comm::Comm(int rank_, int world_, int device_)
    : rank(rank_),
      world(world_),
      device(device_),
      timeout_(timeout_from_environment()),
      synchronous_(synchronous_from_environment()) {}

void Comm::join(const BKCLUniqueId& id) {
    segment_ = std::make_unique<Segment>(id, rank, world, timeout_);
    try {
        segment_->meet();
    } catch (const Failure& failure) {
        segment_->fail(failure.status);
        Segment::forget(id);  // broken for all ranks: nobody can join by it any more
        throw;
    }
    Segment::forget(id);
}

void Comm::abort() {
    if (segment_) segment_->fail(BKCL_INTERNAL_ERROR);
}

void Comm::meet(const What& what) {
    slot(rank).what = what;
    segment_->meet();
    for (int other = 0; other < world; ++other) {
        if (slot(other).what == what) continue;
        throw Failure{BKCL_INTERNAL_ERROR,
                      "rank " + std::to_string(other) +
                          " is in another operation, or calls this one with other arguments"};
    }
}

BKCLResult_t Comm::queue(XPUStream stream, const char* name,
                         std::function<void()> kernel) const {
    // The default stream is that of the thread's device, which need not be the communicator's.
    int before = 0;
    int status = xpu_current_device(&before);
    const bool move = status == XPU_SUCCESS && stream == nullptr && before != device;
    if (move) status = xpu_set_device(device);
    if (status == XPU_SUCCESS) status = xpusim::launch(stream, name, std::move(kernel));
    if (move) xpu_set_device(before);
    if (status == XPU_SUCCESS) return BKCL_SUCCESS;
    complain(std::string(name) + " cannot be queued: " + xpu_strerror(status));
    return BKCL_RUNTIME_ERROR;
}

bool Comm::usable() const {
    if (!segment_) {
        complain("the context never joined, or the group that makes it has not ended");
        return false;
    }
    return true;
}

BKCLResult_t Comm::issue(const std::shared_ptr<Comm>& comm, XPUStream stream, const char* name,
                         std::function<void()> body) {
    if (!comm->usable()) return BKCL_INVALID_ARGUMENT;
    try {
        comm->segment_->check();
    } catch (const Failure& failure) {
        complain(failure.text);
        return failure.status;
    }
    auto job = std::make_shared<Job>(comm, std::move(body));
    std::future<BKCLResult_t> over = job->over.get_future();
    const BKCLResult_t status = comm->queue(stream, name, [job] { job->run(); });
    job.reset();  // a job that the queue drops breaks its promise
    if (status != BKCL_SUCCESS || !comm->synchronous_) return status;
    try {
        return over.get();
    } catch (const std::future_error&) {
        complain(std::string(name) + " never ran: its stream is broken");
        return BKCL_RUNTIME_ERROR;
    }
}

}  // namespace bkclsim

#include "segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

namespace bkclsim {

namespace {

constexpr uint64_t kMagic = 0x4b42204d49535058;  // "XPSIM BK"
constexpr size_t kHeadBytes = (sizeof(Head) + 4095) / 4096 * 4096;

// What a unique id of the simulator says: which open file of which process the memory is.
struct Ticket {
    uint64_t magic, nonce;
    int32_t process, file;
};
static_assert(sizeof(Ticket) <= BKCL_UNIQUE_ID_BYTES, "an id holds a ticket");

Ticket read_ticket(const BKCLUniqueId& id) {
    Ticket ticket;
    std::memcpy(&ticket, id.internal, sizeof ticket);
    if (ticket.magic != kMagic) {
        throw Failure{BKCL_INVALID_ARGUMENT, "the unique id is not of this library"};
    }
    return ticket;
}

// Files of ids that were made here and not yet handed to all ranks, by nonce. Never destroyed:
// queues may still run while the process ends.
struct OpenIds {
    std::mutex lock;
    std::map<uint64_t, int> files;
};

OpenIds& open_ids() {
    static OpenIds& ids = *new OpenIds;
    return ids;
}

[[noreturn]] void system_failure(const std::string& what) {
    throw Failure{BKCL_SYSTEM_ERROR, what + ": " + strerror(errno)};
}

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void wake(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

size_t bytes_of(int world) {
    const auto ranks = static_cast<size_t>(world);
    return kHeadBytes + 2 * ranks * sizeof(Slot) + ranks * ranks * sizeof(Mail);
}

}  // namespace

bool operator==(const What& a, const What& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
           a.count == b.count && a.offset == b.offset;
}

BKCLUniqueId Segment::create() {
    const int file = memfd_create("bkcl", MFD_CLOEXEC);
    if (file < 0) system_failure("memfd_create");
    Ticket ticket{kMagic, 0, getpid(), file};
    const ssize_t drawn = getrandom(&ticket.nonce, sizeof ticket.nonce, 0);
    // Room for every number of ranks; pages that nobody touches cost nothing.
    const bool written = drawn == sizeof ticket.nonce &&
                         ftruncate(file, static_cast<off_t>(bytes_of(kMaxRanks))) == 0 &&
                         pwrite(file, &ticket.nonce, sizeof ticket.nonce,
                                offsetof(Head, nonce)) == sizeof ticket.nonce;
    if (!written) {
        close(file);
        system_failure("memory for a unique id");
    }
    std::lock_guard<std::mutex> guard(open_ids().lock);
    open_ids().files[ticket.nonce] = file;
    BKCLUniqueId id{};
    std::memcpy(id.internal, &ticket, sizeof ticket);
    return id;
}

void Segment::forget(const BKCLUniqueId& id) {
    const Ticket ticket = read_ticket(id);
    if (ticket.process != getpid()) return;
    std::lock_guard<std::mutex> guard(open_ids().lock);
    const auto found = open_ids().files.find(ticket.nonce);
    if (found == open_ids().files.end()) return;
    close(found->second);
    open_ids().files.erase(found);
}

Segment::Segment(const BKCLUniqueId& id, int rank, int world, double timeout)
    : rank_(rank), world_(world), timeout_(timeout), bytes_(bytes_of(world)) {
    const Ticket ticket = read_ticket(id);
    const std::string path =
        "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) system_failure("the process that made the unique id cannot be reached");
    // The number may name another file of that process by now.
    uint64_t nonce = 0;
    const bool same = pread(file, &nonce, sizeof nonce, offsetof(Head, nonce)) == sizeof nonce &&
                      nonce == ticket.nonce;
    if (same) memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory_ == nullptr || memory_ == MAP_FAILED) {
        memory_ = nullptr;
        throw Failure{BKCL_SYSTEM_ERROR, "the unique id is used up, or its memory is gone"};
    }
    claim();
}

Segment::~Segment() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
}

void Segment::claim() {
    uint32_t agreed = 0;
    const auto world = static_cast<uint32_t>(world_);
    const bool first = head().world.compare_exchange_strong(agreed, world);
    std::string wrong;
    if (!first && agreed != world) {
        wrong = "rank " + std::to_string(rank_) + " says " + std::to_string(world_) +
                " ranks, another one said " + std::to_string(agreed);
    } else if (head().taken[rank_].exchange(1) != 0) {
        wrong = "rank " + std::to_string(rank_) + " is taken";
    }
    if (wrong.empty()) return;
    munmap(memory_, bytes_);
    memory_ = nullptr;
    throw Failure{BKCL_INVALID_ARGUMENT, wrong};
}

void Segment::check() const {
    const uint32_t status = head().broken.load();
    if (status != 0) {
        throw Failure{static_cast<BKCLResult_t>(status),
                      "the communicator is broken since an earlier error of some rank"};
    }
}

void Segment::fail(BKCLResult_t status) {
    uint32_t well = 0;
    head().broken.compare_exchange_strong(well, static_cast<uint32_t>(status));
    // Waiters sleep on these words: they must change, or a sleeper just about to wait misses it.
    head().phase.fetch_add(1);
    wake(head().phase);
    for (int rank = 0; rank < world_; ++rank) ring(rank);
}

void Segment::wait(std::atomic<uint32_t>& word, uint32_t while_value, const char* what) {
    const double end = now() + timeout_;
    while (word.load() == while_value) {
        check();
        const double left = end - now();
        if (left <= 0) {
            char limit[32];
            snprintf(limit, sizeof limit, " took over %g s", timeout_);
            throw Failure{BKCL_SYSTEM_ERROR, what + std::string(limit) + missing()};
        }
        timespec rest;
        rest.tv_sec = static_cast<time_t>(left);
        rest.tv_nsec = static_cast<long>((left - static_cast<double>(rest.tv_sec)) * 1e9);
        syscall(SYS_futex, &word, FUTEX_WAIT, while_value, &rest, nullptr, 0);
    }
    check();
}

std::string Segment::missing() const {
    std::string names;
    const uint32_t mine = head().meetings[rank_].load();
    for (int rank = 0; rank < world_; ++rank) {
        if (static_cast<int32_t>(head().meetings[rank].load() - mine) < 0) {
            names += (names.empty() ? ": no sign of rank " : ", ") + std::to_string(rank);
        }
    }
    return names;
}

void Segment::meet() {
    check();
    const uint32_t phase = head().phase.load();
    head().meetings[rank_].fetch_add(1);
    if (head().arrived.fetch_add(1) + 1 == static_cast<uint32_t>(world_)) {
        head().arrived.store(0);
        head().phase.fetch_add(1);
        wake(head().phase);
        return;
    }
    wait(head().phase, phase, "waiting for the other ranks");
}

Slot& Segment::slot(int rank, uint64_t round) const {
    auto* slots = reinterpret_cast<Slot*>(static_cast<char*>(memory_) + kHeadBytes);
    return slots[2 * rank + static_cast<int>(round % 2)];
}

Mail& Segment::mail(int source, int target) const {
    auto* mails = reinterpret_cast<Mail*>(static_cast<char*>(memory_) + kHeadBytes +
                                          2 * static_cast<size_t>(world_) * sizeof(Slot));
    return mails[source * world_ + target];
}

void Segment::ring(int rank) {
    head().bell[rank].fetch_add(1);
    wake(head().bell[rank]);
}

void Segment::wait_bell(uint32_t heard) {
    wait(head().bell[rank_], heard, "waiting for a message of another rank");
}

}  // namespace bkclsim

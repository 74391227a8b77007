#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "xpuml/library.h"

namespace xpuml {

namespace {

constexpr uint64_t second = 1000000000;
constexpr uint64_t period = second / 6;

uint64_t now_ns() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * second + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_ns(uint64_t nanoseconds) {
    timespec left = {static_cast<time_t>(nanoseconds / second),
                     static_cast<long>(nanoseconds % second)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

// A counter falls when a process ends: its past is no longer counted.
double share(uint64_t before, uint64_t after, uint64_t elapsed) {
    if (after <= before || elapsed == 0) return 0;
    return std::min(1.0, static_cast<double>(after - before) / static_cast<double>(elapsed));
}

}  // namespace

Sampler::Counters Sampler::read(const xpusim::BoardDevice& device) {
    Counters sum = {};
    for (const xpusim::BoardProcess& entry : device.processes) {
        if (entry.pid == 0) continue;
        sum.busy += __atomic_load_n(&entry.busy, __ATOMIC_RELAXED);
        for (const xpusim::CopyCount& copy : entry.copies) {
            sum.copying += __atomic_load_n(&copy.nanoseconds, __ATOMIC_RELAXED);
        }
    }
    return sum;
}

void Sampler::start(const xpusim::Board& board) {
    known_ = false;
    taken_ns_ = now_ns();
    for (unsigned int i = 0; i < board.devices; ++i) counters_[i] = read(board.device[i]);
}

Rates Sampler::rates(const xpusim::Board& board, unsigned int device) {
    uint64_t passed = now_ns() - taken_ns_;
    if (!known_ && passed < period) {
        sleep_ns(period - passed);
        passed = period;
    }
    if (passed >= period) refresh(board);
    return rates_[device];
}

void Sampler::refresh(const xpusim::Board& board) {
    uint64_t now = now_ns();
    for (unsigned int i = 0; i < board.devices; ++i) {
        Counters fresh = read(board.device[i]);
        rates_[i] = {share(counters_[i].busy, fresh.busy, now - taken_ns_),
                     share(counters_[i].copying, fresh.copying, now - taken_ns_)};
        counters_[i] = fresh;
    }
    taken_ns_ = now;
    known_ = true;
}

xpumlReturn_t Session::open() {
    if (file_) {
        ++users_;
        return XPUML_SUCCESS;
    }
    auto file = std::make_unique<xpusim::BoardFile>();
    errno = 0;
    if (!file->open(tree_board())) {
        return errno == EACCES ? XPUML_ERROR_NO_PERMISSION : XPUML_ERROR_DRIVER_NOT_LOADED;
    }
    file_ = std::move(file);
    users_ = 1;
    sampler_.start(board());
    return XPUML_SUCCESS;
}

xpumlReturn_t Session::close() {
    if (!file_) return XPUML_ERROR_UNINITIALIZED;
    if (--users_ == 0) file_.reset();
    return XPUML_SUCCESS;
}

xpumlDevice_t Session::handle(unsigned int index) {
    handles_[index].index = index;
    return {&handles_[index]};
}

xpusim::BoardDevice* Session::device(xpumlDevice_t handle) const {
    for (unsigned int i = 0; i < board().devices; ++i) {
        if (handle.handle == &handles_[i]) return &file_->board()->device[i];
    }
    return nullptr;
}

xpusim::BoardUse Session::use(xpusim::BoardDevice& device) {
    std::lock_guard<xpusim::BoardFile> held(*file_);
    xpusim::reclaim(device);
    return xpusim::usage(device);
}

unsigned int Session::processes(xpusim::BoardDevice& device, xpumlProcessInfo_t* infos,
                                unsigned int room) {
    std::lock_guard<xpusim::BoardFile> held(*file_);
    xpusim::reclaim(device);
    unsigned int count = 0;
    for (const xpusim::BoardProcess& entry : device.processes) {
        if (entry.pid == 0) continue;
        if (count < room) {
            infos[count] = {};
            infos[count].pid = static_cast<unsigned int>(entry.pid);
            infos[count].root_ns_pid = infos[count].pid;
            infos[count].usedGlobalMemory = entry.used;
            infos[count].usedL3Memory = entry.l3_used;
        }
        ++count;
    }
    return count;
}

Session& session() {
    static Session only;
    return only;
}

std::mutex& guard() {
    static std::mutex only;
    return only;
}

}  // namespace xpuml

// What stands behind the telemetry functions: the open board, how often it was opened, and the
// samples from which utilization is told. Also linked into xpu_smi.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/board_file.h"
#include "xpu/xpuml.h"

struct xpumlDevice_st {
    unsigned int index;
};

namespace xpuml {

// Path of the board that this library, or this program, belongs to.
std::string tree_board();

struct Rates {
    double kernels;  // share of the sample period in which kernels ran, 0 to 1
    double copies;   // the same for copies
};

// Remembers what the counters said, so that the next question can be answered with a difference.
class Sampler {
public:
    void start(const xpusim::Board& board);
    // Of a period of at least a sixth of a second; waits where that has not passed since start().
    Rates rates(const xpusim::Board& board, unsigned int device);

private:
    struct Counters {
        uint64_t busy;
        uint64_t copying;
    };
    static Counters read(const xpusim::BoardDevice& device);
    void refresh(const xpusim::Board& board);

    uint64_t taken_ns_ = 0;
    bool known_ = false;
    Counters counters_[xpusim::board_devices] = {};
    Rates rates_[xpusim::board_devices] = {};
};

// The library while it is initialized.
class Session {
public:
    xpumlReturn_t open();
    xpumlReturn_t close();
    bool is_open() const { return file_ != nullptr; }
    const xpusim::Board& board() const { return *file_->board(); }

    xpumlDevice_t handle(unsigned int index);
    // The device behind a handle, null where the handle is not one of ours.
    xpusim::BoardDevice* device(xpumlDevice_t handle) const;
    // Sums over the living processes; dead ones are reclaimed first.
    xpusim::BoardUse use(xpusim::BoardDevice& device);
    Rates rates(unsigned int device) { return sampler_.rates(board(), device); }
    // Fills as many as there is room for; how many there are.
    unsigned int processes(xpusim::BoardDevice& device, xpumlProcessInfo_t* infos,
                           unsigned int room);

private:
    std::unique_ptr<xpusim::BoardFile> file_;
    int users_ = 0;
    Sampler sampler_;
    xpumlDevice_st handles_[xpusim::board_devices] = {};
};

// One session a process; the lock is held for the whole of each call.
Session& session();
std::mutex& guard();

}  // namespace xpuml

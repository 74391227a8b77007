// What this process has of the simulated machine: its visible cards, its current one for each
// thread, its queues and events.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "handles.h"
#include "memory.h"
#include "queue.h"
#include "xpu/runtime.h"

namespace xpusim {

// One visible card, opened at its first use.
struct Device {
    int number;        // as this process counts
    int physical;      // as the board counts
    BoardDevice* card;
    BoardProcess* entry = nullptr;
    std::unique_ptr<Memory> memory;
    std::shared_ptr<Queue> queue;          // the default stream
    std::atomic<bool> opened{false}, lost{false}, tainted{false};
    std::atomic<uint64_t> last_kernel{0};  // nanoseconds

    Device(int number, int physical, BoardDevice* card)
        : number(number), physical(physical), card(card) {}
};

class Process {
public:
    static Process& self();

    // 0, or why no call can work: 702 after a fork, 703 no driver, 704 driver and runtime do not
    // fit each other.
    int ready() const;
    Board* board() const { return file_.board(); }
    int count() const { return static_cast<int>(devices_.size()); }

    // The card with that number, ready for use: 0, or ready(), 701, 802 (lost), 716 (too many
    // processes).
    int device(int number, Device** device);
    int current(Device** device);
    int current_number() const;
    void set_current(int number);

    // A stream as a caller names it: null is the default queue of the current card.
    int queue(XPUStream stream, std::shared_ptr<Queue>* queue);

    // The card lies in an error state for all: its queues end with 802.
    void lose(Device& device);
    // After an exception before a recorded event: every other queue of the card reports 720.
    void taint_others(Device& device, const Queue* failed);

    Memory* memory_of(const void* address, int* number = nullptr);

    Handles<Queue> streams{0x100000};
    Handles<Event> events{0x200000000};

private:
    Process();
    int open(Device& device);
    bool driver_fits() const;
    std::vector<std::shared_ptr<Queue>> queues_of(const Device& device);

    BoardFile file_;
    int problem_ = 0;
    std::mutex opening_;
    std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace xpusim

// Faults on demand, read once from XPUSIM_FAULTS. FAULTS.md is the list for people.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace xpusim {

// A fault that strikes at the n-th event of its kind, or at each one (bare name).
class Strike {
public:
    explicit Strike(const char* name);
    bool now();  // counts one event; true where the fault strikes it

private:
    bool armed_ = false;
    uint64_t at_ = 0;
    std::atomic<uint64_t> seen_{0};
};

struct Faults {
    Strike oom{"oom"};
    Strike kernel_exception{"kexception"};
    Strike hang{"hang"};
    Strike lost{"lost"};
    Strike short_copy{"short_copy"};
    int sick_device = -1;           // physical number of the card whose kernels all hang
    int slow_device = -1;           // physical number of the card with a slow link
    double slow_bytes_second = 0;
    uint64_t queue_delay_us = 200;  // an idle queue starts this much later
    bool no_event_order = false;

    Faults();
};

Faults& faults();

// A fault of a card that the board does not have would never strike: the process ends.
void refuse_absent_cards(uint32_t cards);

}  // namespace xpusim

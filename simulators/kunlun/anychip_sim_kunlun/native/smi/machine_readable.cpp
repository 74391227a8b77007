// `-m`: one line a card, 32 fields. The tool's own help names them in this order: bus address,
// board id, device id, serial, temperature, 0, memory temperature, 0, power, six clocks, L3 used
// and total, memory used and total, use, firmware, model, index on the board, and nine numbers of
// the media engines.
#include <cstdio>

#include "smi/card.h"

namespace smi {

namespace {

constexpr int clocks = 6;
constexpr int media_fields = 9;

// First-generation cards tell milliwatts here, later ones watts.
unsigned int power_field(const Card& card) {
    bool first = card.architecture == XPUML_DEVICE_ARCH_KL1;
    return first ? card.milliwatts : (card.milliwatts + 500) / 1000;
}

unsigned long long mib(unsigned long long bytes) { return bytes >> 20; }

void print_card(const Card& card) {
    std::printf("%s %u %u %s %u 0 0 0 %u", card.pci.busId, card.index, card.index,
                card.serial.c_str(), card.celsius, power_field(card));
    for (int i = 0; i < clocks; ++i) std::printf(" %u", card.clock_mhz);
    std::printf(" %llu %llu %llu %llu %u %s \"%s\" %u", mib(card.memory.usedL3Memory),
                mib(card.memory.totalL3Memory), mib(card.memory.usedGlobalMemory),
                mib(card.memory.totalGlobalMemory), card.percent, card.board->firmware,
                card.board->model_name, card.board->onboard_id);
    for (int i = 0; i < media_fields; ++i) std::printf(" 0");
    std::printf("\n");
}

}  // namespace

void print_machine_readable(const Machine& machine) {
    for (const Card& card : machine.cards) {
        if (!card.lost) print_card(card);
    }
}

}  // namespace smi

// One card as xpu_smi tells it: through the telemetry library, and from the board where that has
// no function for it.
#pragma once

#include <string>
#include <vector>

#include "runtime/board.h"
#include "xpu/xpuml.h"

namespace smi {

struct Card {
    unsigned int index;
    bool lost;
    const xpusim::BoardDevice* board;
    std::string serial;
    xpumlPciInfo_t pci;
    xpumlMemory_t memory;
    unsigned int percent;
    unsigned int celsius;
    unsigned int milliwatts;
    unsigned int clock_mhz;
    unsigned int architecture;
    std::vector<xpumlProcessInfo_t> processes;
};

struct Machine {
    std::string driver;
    std::string xpu_rt;
    unsigned int attached;  // of which `cards` may hold one alone
    std::vector<Card> cards;
};

// False where the driver is missing.
bool read_machine(Machine& machine);

// In the form of the vendor's tool; all print to standard output.
void print_machine_readable(const Machine& machine);
void print_query(const Machine& machine);
void print_table(const Machine& machine);
void print_list(const Machine& machine);

}  // namespace smi

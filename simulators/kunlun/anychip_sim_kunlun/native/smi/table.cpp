// Without an option: a table for people, with both versions in its head. Public tools read it too,
// by its columns.
#include <cstdio>

#include "smi/card.h"

namespace smi {

namespace {

const char* const wide =
    "+-----------------------------------------------------------------------------+";
const char* const split =
    "+-------------------------------+----------------------+----------------------+";
const char* const head[] = {
    "| XPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |",
    "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | XPU-Util  Compute M. |",
    "|                               |             L3-Usage |            SR-IOV M. |",
    "|===============================+======================+======================|",
};

void print_head(const Machine& machine) {
    std::printf("%s\n", wide);
    std::printf("| XPU-SMI               Driver Version: %-12s XPU-RT Version: %-8s |\n",
                machine.driver.c_str(), machine.xpu_rt.c_str());
    std::printf("%s\n", split);
    for (const char* line : head) std::printf("%s\n", line);
}

void print_card(const Card& card) {
    if (card.lost) {
        std::printf("| %3u  %-24s | lost                 |                      |\n", card.index,
                    card.board->model_name);
        std::printf("%s\n", split);
        return;
    }
    std::printf("| %3u  %-18s N/A   | %s N/A |                    0 |\n", card.index,
                card.board->model_name, card.pci.busId);
    std::printf("| N/A  %3uC  N/A   %4uW / %3uW | %6lluMiB / %5lluMiB | %6u%%      Default |\n",
                card.celsius, (card.milliwatts + 500) / 1000, card.board->busy_milliwatts / 1000,
                card.memory.usedGlobalMemory >> 20, card.memory.totalGlobalMemory >> 20,
                card.percent);
    std::printf("|                               | %6lluMiB / %5lluMiB |             Disabled |\n",
                card.memory.usedL3Memory >> 20, card.memory.totalL3Memory >> 20);
    std::printf("%s\n", split);
}

void print_processes(const Machine& machine) {
    bool found = false;
    std::printf("\n%s\n| %-75s |\n", wide, "Processes:");
    for (const Card& card : machine.cards) {
        for (const xpumlProcessInfo_t& process : card.processes) {
            found = true;
            std::printf("| %3u  %10u  %50lluMiB      |\n", card.index, process.pid,
                        process.usedGlobalMemory >> 20);
        }
    }
    if (!found) std::printf("| %-75s |\n", "No running processes found");
    std::printf("%s\n", wide);
}

}  // namespace

void print_table(const Machine& machine) {
    print_head(machine);
    for (const Card& card : machine.cards) print_card(card);
    print_processes(machine);
}

}  // namespace smi

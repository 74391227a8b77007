// `-q`: a tree of "name : value" lines.
#include <cstdio>
#include <string>

#include "smi/card.h"

namespace smi {

namespace {

constexpr int name_width = 42;

void line(int depth, const char* name, const std::string& value) {
    int indent = depth * 4;
    std::printf("%*s%-*s: %s\n", indent, "", name_width - indent, name, value.c_str());
}

void heading(int depth, const char* name) { std::printf("%*s%s\n", depth * 4, "", name); }

std::string number(unsigned long long value, const char* unit = "") {
    return std::to_string(value) + unit;
}

std::string hex(unsigned int value, int digits) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%0*X", digits, value);
    return text;
}

std::string watts(unsigned int milliwatts) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f W", milliwatts / 1000.0);
    return text;
}

void print_memory(const char* name, unsigned long long total, unsigned long long used) {
    heading(1, name);
    line(2, "Total", number(total >> 20, " MiB"));
    line(2, "Reserved", "0 MiB");
    line(2, "Used", number(used >> 20, " MiB"));
    line(2, "Free", number((total - used) >> 20, " MiB"));
}

void print_identity(const Card& card) {
    line(1, "Product Name", card.board->model_name);
    line(1, "Product Brand", "KUNLUNXIN (simulated)");
    line(1, "Product Architecture", "KL" + number(card.architecture));
    line(1, "Serial Number", card.serial);
    line(1, "Minor Number", number(card.board->minor));
    heading(1, "Firmware Version");
    line(2, "ALL Version", card.board->firmware);
}

void print_pci(const Card& card) {
    heading(1, "PCI");
    line(2, "Bus", hex(card.pci.bus, 2));
    line(2, "Device", hex(card.pci.device, 2));
    line(2, "Function", hex(card.pci.function, 1));
    line(2, "Domain", hex(card.pci.domain, 4));
    line(2, "Device Id", hex(card.pci.pciDeviceId, 8));
    line(2, "Bus Id", card.pci.busId);
    line(2, "Sub System Id", hex(card.pci.pciSubSystemId, 8));
}

void print_state(const Card& card) {
    print_memory("Memory Usage", card.memory.totalGlobalMemory, card.memory.usedGlobalMemory);
    print_memory("L3 Usage", card.memory.totalL3Memory, card.memory.usedL3Memory);
    heading(1, "Utilization");
    line(2, "Xpu", number(card.percent, " %"));
    heading(1, "Temperature");
    line(2, "XPU Current Temp", number(card.celsius, " C"));
    heading(1, "Power Readings");
    line(2, "Enforced Power Limit", watts(card.board->busy_milliwatts));
    line(2, "Power Draw", watts(card.milliwatts));
    heading(1, "Clocks");
    line(2, "Cluster", number(card.clock_mhz, " MHz"));
}

void print_processes(const Card& card) {
    if (card.processes.empty()) {
        line(1, "Processes", "None");
        return;
    }
    heading(1, "Processes");
    for (const xpumlProcessInfo_t& process : card.processes) {
        line(2, "Process ID", number(process.pid));
        line(3, "Used XPU Memory", number(process.usedGlobalMemory >> 20, " MiB"));
        line(3, "Used L3 Memory", number(process.usedL3Memory >> 20, " MiB"));
    }
}

void print_card(const Card& card) {
    if (card.lost) {
        std::printf("XPU %u\n", card.index);
        line(1, "Minor Number", number(card.board->minor));
        line(1, "State", xpumlErrorString(XPUML_ERROR_XPU_IS_LOST));
        return;
    }
    std::printf("XPU %s\n", card.pci.busId);
    print_identity(card);
    print_pci(card);
    print_state(card);
    print_processes(card);
}

}  // namespace

void print_query(const Machine& machine) {
    std::printf("\n==============XPUSMI LOG==============\n\n");
    line(0, "Driver Version", machine.driver);
    line(0, "XPU-RT Version", machine.xpu_rt);
    std::printf("\n");
    line(0, "Attached XPUs", number(machine.attached));
    for (const Card& card : machine.cards) print_card(card);
}

void print_list(const Machine& machine) {
    for (const Card& card : machine.cards) {
        std::printf("XPU %u: %s (%s)\n", card.index, card.board->model_name,
                    card.lost ? "lost" : card.serial.c_str());
    }
}

}  // namespace smi

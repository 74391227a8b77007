#include "smi/card.h"

#include "xpuml/library.h"

#ifndef XPUSIM_XPU_RT
#define XPUSIM_XPU_RT "N/A"  // as the vendor's tool says where it finds no runtime
#endif

// DIR/bin/xpu_smi: the tree is two folders up.
std::string xpuml::tree_board() { return xpusim::board_path(nullptr, 2); }

namespace smi {

namespace {

std::vector<xpumlProcessInfo_t> processes_of(xpumlDevice_t device) {
    std::vector<xpumlProcessInfo_t> found(xpusim::board_processes);
    unsigned int count = static_cast<unsigned int>(found.size());
    if (xpumlDeviceGetComputeRunningProcesses(device, &count, found.data()) != XPUML_SUCCESS) {
        count = 0;  // lost since the last question: then it is told as lost
    }
    found.resize(count);
    return found;
}

// Whether every question was answered: a card may get lost in between.
bool read_values(xpumlDevice_t device, Card& card) {
    char serial[XPUML_DEVICE_SERIAL_BUFFER_SIZE] = "";
    xpumlUtilization_t rates = {};
    bool answered =
        xpumlDeviceGetSerial(device, serial, sizeof serial) == XPUML_SUCCESS &&
        xpumlDeviceGetPciInfo(device, &card.pci) == XPUML_SUCCESS &&
        xpumlDeviceGetMemoryInfo(device, &card.memory) == XPUML_SUCCESS &&
        xpumlDeviceGetUtilizationRates(device, &rates) == XPUML_SUCCESS &&
        xpumlDeviceGetTemperature(device, XPUML_TEMPERATURE_XPU, &card.celsius) == XPUML_SUCCESS &&
        xpumlDeviceGetPowerUsage(device, &card.milliwatts) == XPUML_SUCCESS &&
        xpumlDeviceGetClockInfo(device, XPUML_CLOCK_XPU, &card.clock_mhz) == XPUML_SUCCESS &&
        xpumlDeviceGetArchitecture(device, &card.architecture) == XPUML_SUCCESS;
    card.serial = serial;
    card.percent = rates.xpu;
    card.processes = processes_of(device);
    return answered;
}

Card read_card(unsigned int index) {
    Card card = {};
    card.index = index;
    card.board = &xpuml::session().board().device[index];
    xpumlDevice_t device = {};
    card.lost = xpumlDeviceGetHandleByIndex(index, &device) != XPUML_SUCCESS ||
                !read_values(device, card);
    return card;
}

}  // namespace

bool read_machine(Machine& machine) {
    char driver[XPUML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
    unsigned int count = 0;
    if (xpumlInit() != XPUML_SUCCESS) return false;
    if (xpumlSystemGetDriverVersion(driver, sizeof driver) != XPUML_SUCCESS) return false;
    if (xpumlDeviceGetCount(&count) != XPUML_SUCCESS) return false;
    machine.driver = driver;
    machine.xpu_rt = XPUSIM_XPU_RT;
    machine.attached = count;
    for (unsigned int i = 0; i < count; ++i) machine.cards.push_back(read_card(i));
    return true;
}

}  // namespace smi

// The exported functions. Each holds the lock, and checks in this order: initialized, arguments,
// device still there.
#include <cstdio>
#include <cstring>
#include <functional>

#include "xpu/version.h"
#include "xpuml/library.h"

namespace {

using xpuml::Session;
using xpuml::session;

#define XPUML_TEXT_OF(number) #number
#define XPUML_TEXT(number) XPUML_TEXT_OF(number)
// A guess: that the library's version is the runtime's.
constexpr const char* own_version = XPUML_TEXT(XPURT_VERSION_MAJOR) "." XPUML_TEXT(
    XPURT_VERSION_MINOR) "." XPUML_TEXT(XPURT_VERSION_THIRD);

xpumlReturn_t copy_text(const char* text, char* target, unsigned int room) {
    if (!target) return XPUML_ERROR_INVALID_ARGUMENT;
    size_t needed = std::strlen(text) + 1;
    if (needed > room) return XPUML_ERROR_INSUFFICIENT_SIZE;
    std::memcpy(target, text, needed);
    return XPUML_SUCCESS;
}

// Runs `body` on the device behind the handle, unless a check before it fails.
xpumlReturn_t on_device(xpumlDevice_t handle, const void* result,
                        const std::function<xpumlReturn_t(xpusim::BoardDevice&)>& body) {
    std::lock_guard<std::mutex> held(xpuml::guard());
    if (!session().is_open()) return XPUML_ERROR_UNINITIALIZED;
    xpusim::BoardDevice* device = session().device(handle);
    if (!device || !result) return XPUML_ERROR_INVALID_ARGUMENT;
    if (session().use(*device).lost) return XPUML_ERROR_XPU_IS_LOST;
    return body(*device);
}

unsigned int percent(double share) { return static_cast<unsigned int>(share * 100 + 0.5); }

unsigned int between(uint32_t idle, uint32_t busy, double share) {
    double span = static_cast<double>(busy) - static_cast<double>(idle);
    return static_cast<unsigned int>(idle + span * share + 0.5);
}

double load_of(xpumlDevice_t device) { return session().rates(device.handle->index).kernels; }

// The ranges of DeviceModel in the public defs.h.
xpumlDeviceArch_t architecture(uint32_t model) {
    if (model <= 1) return XPUML_DEVICE_ARCH_KL1;
    if (model <= 299) return XPUML_DEVICE_ARCH_KL2;
    return model <= 599 ? XPUML_DEVICE_ARCH_KL3 : XPUML_DEVICE_ARCH_UNKNOWN;
}

// The public header names no board of the third generation.
xpumlDeviceBoard_t board_kind(uint32_t model) {
    switch (model) {
        case 0: return XPUML_DEVICE_BOARD_KL1_K200;
        case 1: return XPUML_DEVICE_BOARD_KL1_K100;
        case 2: return XPUML_DEVICE_BOARD_KL2_R200;
        case 3: return XPUML_DEVICE_BOARD_KL2_R300;
        case 4: return XPUML_DEVICE_BOARD_KL2_R200_8F;
        default: return XPUML_DEVICE_BOARD_UNKNOWN;
    }
}

void fill(const xpusim::BoardDevice& from, xpumlPciInfo_t& to) {
    to = {};
    to.domain = from.pci_address >> 16 & 0xffff;
    to.bus = from.pci_address >> 8 & 0xff;
    to.device = from.pci_address >> 3 & 0x1f;
    to.function = from.pci_address & 0x7;
    to.pciDeviceId = from.pci_device << 16 | 0x1d22;
    std::snprintf(to.busId, sizeof to.busId, XPUML_DEVICE_PCI_BUS_ID_FMT, to.domain, to.bus,
                  to.device, to.function);
}

void fill(const xpusim::BoardDevice& from, const xpusim::BoardUse& use, xpumlMemory_t& to) {
    to = {};
    to.pageSizeGlobalMemory = from.page;
    to.totalGlobalMemory = from.capacity;
    to.usedGlobalMemory = use.used;
    to.freeGlobalMemory = from.capacity - use.used;
    to.pageSizeL3Memory = from.l3_page;
    to.totalL3Memory = from.l3_capacity;
    to.usedL3Memory = use.l3_used;
    to.freeL3Memory = from.l3_capacity - use.l3_used;
}

void fill(const xpusim::BoardDevice& from, xpumlDeviceAttributes_t& to) {
    to = {};
    to.archId = architecture(from.model);
    to.boardId = board_kind(from.model);
    to.modelId = static_cast<int>(from.model);
    to.clusterCount = from.clusters;
    to.sdnnCount = from.sdnn;
    to.dmaEngineCount = from.copy_engines;
    to.decoderCount = from.decoders;
    to.encoderCount = from.encoders;
    to.imgProcCount = from.image_units;
    to.globalMemorySizeMB = from.capacity >> 20;
    to.l3MemorySizeMB = from.l3_capacity >> 20;
    // A guess: the first sixteen letters of the serial number.
    std::memcpy(to.sn, from.serial, sizeof to.sn);
}

}  // namespace

xpumlReturn_t xpumlInit(void) {
    std::lock_guard<std::mutex> held(xpuml::guard());
    return session().open();
}

xpumlReturn_t xpumlShutdown(void) {
    std::lock_guard<std::mutex> held(xpuml::guard());
    return session().close();
}

xpumlReturn_t xpumlSystemGetDriverVersion(char* version, unsigned int length) {
    std::lock_guard<std::mutex> held(xpuml::guard());
    if (!session().is_open()) return XPUML_ERROR_UNINITIALIZED;
    const uint32_t* number = session().board().driver;
    char text[XPUML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
    std::snprintf(text, sizeof text, "%u.%u.%u.%u", number[0], number[1], number[2], number[3]);
    return copy_text(text, version, length);
}

xpumlReturn_t xpumlSystemGetXPUMLVersion(char* version, unsigned int length) {
    return copy_text(own_version, version, length);
}

xpumlReturn_t xpumlDeviceGetCount(unsigned int* deviceCount) {
    std::lock_guard<std::mutex> held(xpuml::guard());
    if (!session().is_open()) return XPUML_ERROR_UNINITIALIZED;
    if (!deviceCount) return XPUML_ERROR_INVALID_ARGUMENT;
    *deviceCount = session().board().devices;
    return XPUML_SUCCESS;
}

xpumlReturn_t xpumlDeviceGetHandleByIndex(unsigned int index, xpumlDevice_t* device) {
    std::lock_guard<std::mutex> held(xpuml::guard());
    if (!session().is_open()) return XPUML_ERROR_UNINITIALIZED;
    if (!device || index >= session().board().devices) return XPUML_ERROR_INVALID_ARGUMENT;
    xpumlDevice_t found = session().handle(index);
    if (session().use(*session().device(found)).lost) return XPUML_ERROR_XPU_IS_LOST;
    *device = found;
    return XPUML_SUCCESS;
}

xpumlReturn_t xpumlDeviceGetAttributes(xpumlDevice_t device, xpumlDeviceAttributes_t* attributes) {
    return on_device(device, attributes, [&](xpusim::BoardDevice& card) {
        fill(card, *attributes);
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetSerial(xpumlDevice_t device, char* serial, unsigned int length) {
    return on_device(device, serial, [&](xpusim::BoardDevice& card) {
        return copy_text(card.serial, serial, length);
    });
}

xpumlReturn_t xpumlDeviceGetPciInfo(xpumlDevice_t device, xpumlPciInfo_t* pci) {
    return on_device(device, pci, [&](xpusim::BoardDevice& card) {
        fill(card, *pci);
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetClockInfo(xpumlDevice_t device, xpumlClockType_t type,
                                      unsigned int* clock) {
    return on_device(device, clock, [&](xpusim::BoardDevice& card) {
        if (type != XPUML_CLOCK_XPU) return XPUML_ERROR_NOT_SUPPORTED;
        *clock = card.clock_mhz;
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetState(xpumlDevice_t device, xpumlDeviceState_t* state) {
    return on_device(device, state, [&](xpusim::BoardDevice& card) {
        // A guess: that "unused" means that no process holds the device.
        bool used = session().use(card).processes > 0;
        *state = used ? XPUML_DEVICE_STATE_RUNNING : XPUML_DEVICE_STATE_UNUSED;
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetTemperature(xpumlDevice_t device,
                                        xpumlTemperatureSensors_t sensorType,
                                        unsigned int* temp) {
    return on_device(device, temp, [&](xpusim::BoardDevice& card) {
        if (sensorType != XPUML_TEMPERATURE_XPU) return XPUML_ERROR_INVALID_ARGUMENT;
        *temp = between(card.idle_celsius, card.busy_celsius, load_of(device));
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetPowerUsage(xpumlDevice_t device, unsigned int* power) {
    return on_device(device, power, [&](xpusim::BoardDevice& card) {
        *power = between(card.idle_milliwatts, card.busy_milliwatts, load_of(device));
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetMemoryInfo(xpumlDevice_t device, xpumlMemory_t* memory) {
    return on_device(device, memory, [&](xpusim::BoardDevice& card) {
        fill(card, session().use(card), *memory);
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetBoardId(xpumlDevice_t device, unsigned int* boardId) {
    return on_device(device, boardId, [&](xpusim::BoardDevice&) {
        // Field logs show the index there, on machines with eight cards.
        *boardId = device.handle->index;
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetUtilizationRates(xpumlDevice_t device,
                                             xpumlUtilization_t* utilization) {
    return on_device(device, utilization, [&](xpusim::BoardDevice&) {
        xpuml::Rates rates = session().rates(device.handle->index);
        *utilization = {};
        utilization->xpu = percent(rates.kernels);
        utilization->memory = percent(rates.copies);
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetComputeRunningProcesses(xpumlDevice_t device, unsigned int* infoCount,
                                                    xpumlProcessInfo_t* infos) {
    return on_device(device, infoCount, [&](xpusim::BoardDevice& card) {
        unsigned int room = *infoCount;
        if (room > 0 && !infos) return XPUML_ERROR_INVALID_ARGUMENT;
        *infoCount = session().processes(card, infos, room);
        return *infoCount > room ? XPUML_ERROR_INSUFFICIENT_SIZE : XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetArchitecture(xpumlDevice_t device, xpumlDeviceArchitecture_t* arch) {
    return on_device(device, arch, [&](xpusim::BoardDevice& card) {
        *arch = architecture(card.model);
        return XPUML_SUCCESS;
    });
}

xpumlReturn_t xpumlDeviceGetHostVxpuMode(xpumlDevice_t device, xpumlHostVxpuMode_t* pHostVxpuMode) {
    return on_device(device, pHostVxpuMode, [&](xpusim::BoardDevice&) {
        *pHostVxpuMode = XPUML_HOST_VXPU_MODE_NON_SRIOV;
        return XPUML_SUCCESS;
    });
}

// The simulated cards cannot be divided.
xpumlReturn_t xpumlDeviceSetSriovVfNum(xpumlDevice_t device, int) {
    return on_device(device, device.handle,
                     [](xpusim::BoardDevice&) { return XPUML_ERROR_NOT_SUPPORTED; });
}

// Entry points: versions and devices.
#include <cstdio>

#include "answer.h"
#include "process.h"
#include "xpu/runtime.h"

using namespace xpusim;

namespace {

// Versions can be asked for where driver and runtime do not fit: that is how a user finds out.
int driver_numbers(uint32_t* major, uint32_t* minor) {
    const Board* board = Process::self().board();
    if (!board) return XPUERR_NODEV;
    *major = board->driver[0];
    *minor = board->driver[1];
    return XPU_SUCCESS;
}

uint64_t attribute(const Device& device, XPUDeviceAttr attr) {
    const BoardDevice& card = *device.card;
    switch (attr) {
        case XPUATTR_PCI_ADDRESS: return card.pci_address;
        case XPUATTR_DEVID: return static_cast<uint64_t>(device.physical);
        case XPUATTR_BOARDID: return card.board_id;
        case XPUATTR_ONBOARDID: return card.onboard_id;
        case XPUATTR_MODEL: return card.model;
        case XPUATTR_MEM_MAIN_CAPACITY: return card.capacity;
        case XPUATTR_MEM_L3_CAPACITY: return card.l3_capacity;
        case XPUATTR_NUM_CLUSTER: return card.clusters;
        case XPUATTR_NUM_SDNN: return card.sdnn;
        case XPUATTR_NUM_DMACH: return card.copy_engines;
        case XPUATTR_NUM_HWQ: return card.hardware_queues;
        case XPUATTR_NUM_ENC: return card.encoders;
        case XPUATTR_NUM_DEC: return card.decoders;
        case XPUATTR_NUM_IMGPROC: return card.image_units;
    }
    return 0;
}

bool known(XPUDeviceAttr attr) {
    return attr >= XPUATTR_PCI_ADDRESS && attr <= XPUATTR_NUM_IMGPROC;
}

int commit(char* text, const char* of) {
    if (!text) return XPUERR_INVALID_PARAM;
    std::snprintf(text, XPU_MAX_STRLEN, "anychip-simulated-%s", of);
    return XPU_SUCCESS;
}

}  // namespace

int xpu_get_driver_version(uint32_t* major, uint32_t* minor) {
    if (!major || !minor) return answer(XPUERR_INVALID_PARAM);
    return answer(driver_numbers(major, minor));
}

int xpu_get_driver_commit(char* text) {
    return answer(Process::self().board() ? commit(text, "driver") : XPUERR_NODEV);
}

int xpu_get_runtime_version(uint32_t* major, uint32_t* minor) {
    if (!major || !minor) return answer(XPUERR_INVALID_PARAM);
    *major = XPURT_VERSION_MAJOR;
    *minor = XPURT_VERSION_MINOR;
    return XPU_SUCCESS;
}

int xpu_get_runtime_commit(char* text) { return answer(commit(text, "runtime")); }

// The vendor's own simulator counts its devices from 64 on (Paddle's xpu_info.cc).
int DEVICE_SIMULATOR(int devid) { return devid + MAX_DEVICE_NUM; }

int xpu_set_device(int devid) {
    Process& process = Process::self();
    // There is no vendor simulator behind this one.
    if (devid >= MAX_DEVICE_NUM) return answer(XPUERR_SIMULATOR);
    Device* device = nullptr;
    if (int code = process.device(devid, &device)) return answer(code);
    process.set_current(devid);
    return XPU_SUCCESS;
}

int xpu_current_device(int* devid) {
    if (!devid) return answer(XPUERR_INVALID_PARAM);
    if (int code = Process::self().ready()) return answer(code);
    *devid = Process::self().current_number();
    return XPU_SUCCESS;
}

int xpu_device_count(int* dev_count) {
    if (!dev_count) return answer(XPUERR_INVALID_PARAM);
    if (int code = Process::self().ready()) return answer(code);
    *dev_count = Process::self().count();
    return XPU_SUCCESS;
}

int xpu_device_list(int* dev_list) {
    if (!dev_list) return answer(XPUERR_INVALID_PARAM);
    if (int code = Process::self().ready()) return answer(code);
    for (int i = 0; i < Process::self().count(); ++i) dev_list[i] = i;
    return XPU_SUCCESS;
}

int xpu_device_get_attr(uint64_t* v, XPUDeviceAttr attr, int devid) {
    if (!v || !known(attr)) return answer(XPUERR_INVALID_PARAM);
    Device* device = nullptr;
    if (int code = Process::self().device(devid, &device)) return answer(code);
    *v = attribute(*device, attr);
    return XPU_SUCCESS;
}

// The simulated cards have no links of this kind (ports 0 to 3), so no port has a peer.
int xpu_get_ccix_peer_id(int dev_id, int port, int* peer_dev_id) {
    if (!peer_dev_id || port < 0 || port > 3) return answer(XPUERR_INVALID_PARAM);
    Device* device = nullptr;
    if (int code = Process::self().device(dev_id, &device)) return answer(code);
    *peer_dev_id = -1;
    return XPU_SUCCESS;
}

// The board file (DIR/state/board): one memory-mapped struct that stands for the driver and its
// cards. Every process with the simulated runtime accounts here what it holds and does; telemetry
// reads it. Numbers only ever come from here, so that all tools tell the same. board_file.h opens
// it.
#pragma once

#include <cstdint>

namespace xpusim {

constexpr uint64_t board_magic = 0x584244524f415244;  // changes with nothing but the file's meaning
constexpr uint32_t board_layout = 1;
constexpr int board_devices = 16;
constexpr int board_processes = 64;

// Copies by direction: the indices are XPUMemcpyKind, and one more for copies between devices.
enum { copy_kinds = 4, copy_peer = 3 };

struct CopyCount {
    uint64_t copies;
    uint64_t bytes;
    uint64_t nanoseconds;
};

// What one process holds on one device. Free where pid is 0.
struct BoardProcess {
    int32_t pid;
    uint32_t lost;         // 1: the device is lost for all, until this process ends (fault `lost`)
    uint64_t started;      // start time of the process, in clock ticks since boot
    uint64_t used;         // bytes of main memory, whole pages
    uint64_t l3_used;      // bytes of L3, whole pages
    uint64_t busy;         // nanoseconds that its queues ran kernels, so far
    uint64_t launches;     // kernels queued
    CopyCount copies[copy_kinds];
};

struct BoardDevice {
    uint64_t pci_address;  // bits 31..16 domain, 15..8 bus, 7..3 slot, 2..0 function
    uint32_t pci_device;   // 0x3688 and so on; the vendor is 0x1d22
    uint32_t minor;        // number of the device file, which need not be the index
    uint32_t board_id;
    uint32_t onboard_id;
    uint32_t model;        // DeviceModel of xpu/defs.h
    uint32_t clusters;
    uint32_t sdnn;
    uint32_t copy_engines;
    uint32_t hardware_queues;
    uint32_t encoders;
    uint32_t decoders;
    uint32_t image_units;
    char model_name[32];   // as the telemetry tool shows it
    char serial[32];
    char firmware[32];
    uint64_t capacity;     // bytes of main memory
    uint64_t page;         // every allocation counts in whole pages of this many bytes
    uint64_t block;        // a plain allocation may not cross a multiple of this; 0: no such rule
    uint64_t l3_capacity;
    uint64_t l3_page;
    uint32_t idle_celsius;
    uint32_t busy_celsius;
    uint32_t idle_milliwatts;
    uint32_t busy_milliwatts;
    uint32_t clock_mhz;
    uint32_t memory_clock_mhz;
    BoardProcess processes[board_processes];
};

struct Board {
    uint64_t magic;
    uint32_t layout;
    uint32_t bytes;        // sizeof(Board)
    char profile[16];
    uint32_t driver[4];    // version of the driver, four numbers
    uint32_t runtime[4];   // version of the runtime that the tree was built with
    uint32_t devices;
    uint32_t unused;
    BoardDevice device[board_devices];
};

}  // namespace xpusim

// Numbers shared by every layer of the simulated stack: error codes, memory kinds, copy
// directions, device models. Written by hand from public facts; the values are the vendor's.
#ifndef BAIDU_XPU_RUNTIME_INCLUDE_XPU_DEFS_H
#define BAIDU_XPU_RUNTIME_INCLUDE_XPU_DEFS_H

#include <stdint.h>
#include <string.h>

#define XPU_ERRNO_BASE 700
#define XPU_ERRNO(e) (XPU_ERRNO_BASE + (e))

typedef enum {
    XPU_SUCCESS = 0,

    XPUERR_INVALID_DEVICE = XPU_ERRNO(1),
    XPUERR_UNINIT = XPU_ERRNO(2),
    XPUERR_NODEV = XPU_ERRNO(3),
    XPUERR_VERSION = XPU_ERRNO(4),
    XPUERR_NOMEM = XPU_ERRNO(5),
    XPUERR_NOCPUMEM = XPU_ERRNO(6),
    XPUERR_INVALID_PARAM = XPU_ERRNO(7),
    XPUERR_NOXPUFUNC = XPU_ERRNO(8),
    XPUERR_LDSO = XPU_ERRNO(9),
    XPUERR_LDSYM = XPU_ERRNO(10),
    XPUERR_SIMULATOR = XPU_ERRNO(11),
    XPUERR_NOSUPPORT = XPU_ERRNO(12),
    XPUERR_ABNORMAL = XPU_ERRNO(13),
    XPUERR_KEXCEPTION = XPU_ERRNO(14),
    XPUERR_TIMEOUT = XPU_ERRNO(15),
    XPUERR_BUSY = XPU_ERRNO(16),
    XPUERR_USEAFCLOSE = XPU_ERRNO(17),
    XPUERR_UCECC = XPU_ERRNO(18),
    XPUERR_OVERHEAT = XPU_ERRNO(19),
    XPUERR_EVENTWAIT = XPU_ERRNO(20),

    XPUERR_UNEXPECT = XPU_ERRNO(100),
    XPUERR_DEVRESET = XPU_ERRNO(101),
    XPUERR_HWEXCEPTION = XPU_ERRNO(102),
    XPUERR_HBM_INIT = XPU_ERRNO(103),
    XPUERR_DEVINIT = XPU_ERRNO(104),
    XPUERR_PEERRESET = XPU_ERRNO(105),
    XPUERR_MAXDEV = XPU_ERRNO(106),
    XPUERR_NOIOC = XPU_ERRNO(107),
    XPUERR_DMATIMEOUT = XPU_ERRNO(108),
    XPUERR_DMAABORT = XPU_ERRNO(109),
    XPUERR_MCUUNINIT = XPU_ERRNO(110),
    XPUERR_OLDFW = XPU_ERRNO(111),
    XPUERR_PCIE = XPU_ERRNO(112),
    XPUERR_FAULT = XPU_ERRNO(113),
    XPUERR_INTERRUPTED = XPU_ERRNO(114),
    XPUERR_AESTIMEOUT = XPU_ERRNO(115),
    XPUERR_HOSTMEM_ALREADY_REGISTERED = XPU_ERRNO(116),
    XPUERR_TRACER = XPU_ERRNO(117),
} XPUError_t;

typedef enum {
    K200 = 0,
    K100 = 1,
    R200 = 2,
    R300 = 3,
    R200_8F = 4,
    R200_8FS = 5,
    R100 = 6,
    R200_DEBUG_BOARD = 7,
    R420 = 8,
    RG800 = 9,
    RG800_PRO = 10,
    RM80 = 11,
    KL3 = 300,
} DeviceModel;

typedef enum {
    XPU_MEM_HBM = 0,
    XPU_MEM_MAIN = 0,
    XPU_MEM_L3 = 1,
    XPU_USER_ALLOCABLE_MEM_COUNT = 2,
    XPU_MEM_MMAPPABLE = 16,
    // Second-generation chips only: may cross a 4 GiB boundary.
    XPU_MEM_MAIN_KL2_HUGE = 17,
} XPUMemoryKind;

typedef enum {
    XPU_DEVICE_TO_HOST = 0,
    XPU_HOST_TO_DEVICE = 1,
    XPU_DEVICE_TO_DEVICE = 2,
} XPUMemcpyKind;

enum {
    MAX_DEVICE_NUM = 64,
    XPU_MAX_STRLEN = 64,
};

// The texts are ours. As in the vendor's header, the sign does not matter, a code below 700 is an
// errno, and three codes (703, 704, 815) have no text of their own.
static inline const char* xpu_strerror(int e) {
    int code = e < 0 ? -e : e;
    if (code < XPU_ERRNO_BASE) return strerror(code);
    switch (code) {
        case XPUERR_INVALID_DEVICE: return "no such device";
        case XPUERR_UNINIT: return "runtime not initialised";
        case XPUERR_NOMEM: return "out of device memory";
        case XPUERR_NOCPUMEM: return "out of host memory";
        case XPUERR_INVALID_PARAM: return "bad parameter";
        case XPUERR_NOXPUFUNC: return "no such device function";
        case XPUERR_LDSO: return "a library did not load";
        case XPUERR_LDSYM: return "a symbol is missing from a library";
        case XPUERR_SIMULATOR: return "simulator error";
        case XPUERR_NOSUPPORT: return "not supported";
        case XPUERR_ABNORMAL: return "device abnormal since an earlier error";
        case XPUERR_KEXCEPTION: return "kernel exception";
        case XPUERR_TIMEOUT: return "kernel timed out";
        case XPUERR_BUSY: return "resource busy";
        case XPUERR_USEAFCLOSE: return "stream used after it was closed";
        case XPUERR_UCECC: return "uncorrectable memory error";
        case XPUERR_OVERHEAT: return "device too hot";
        case XPUERR_EVENTWAIT: return "event failed, or its stream is tainted";
        case XPUERR_UNEXPECT: return "unexpected state";
        case XPUERR_DEVRESET: return "device in reset";
        case XPUERR_HWEXCEPTION: return "hardware exception";
        case XPUERR_HBM_INIT: return "device memory did not initialise";
        case XPUERR_DEVINIT: return "device did not initialise";
        case XPUERR_PEERRESET: return "peer device in reset";
        case XPUERR_MAXDEV: return "too many devices";
        case XPUERR_NOIOC: return "unknown driver command";
        case XPUERR_DMATIMEOUT: return "copy engine timed out";
        case XPUERR_DMAABORT: return "copy engine aborted";
        case XPUERR_MCUUNINIT: return "firmware not initialised";
        case XPUERR_OLDFW: return "firmware too old";
        case XPUERR_PCIE: return "bus error";
        case XPUERR_FAULT: return "driver could not reach host memory";
        case XPUERR_INTERRUPTED: return "interrupted";
        case XPUERR_HOSTMEM_ALREADY_REGISTERED: return "host memory registered twice";
        case XPUERR_TRACER: return "tracer error";
        default: return "unknown error";
    }
}

static inline const char* xpu_device_model_str(int model) {
    switch (model) {
        case K200: return "K200";
        case K100: return "K100";
        case R200: return "R200";
        case R300: return "R300";
        case R200_8F: return "R200-8F";
        case R200_8FS: return "R200-8FS";
        case R100: return "R100";
        case R200_DEBUG_BOARD: return "R200_DEBUG_BOARD";
        case R420: return "R420";
        case RG800: return "RG800";
        case RG800_PRO: return "RG800-PRO";
        case RM80: return "RM80";
        case KL3: return "KL3";
        default: return "Unknown model";
    }
}

#endif

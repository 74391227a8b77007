#include "xpu/xpuml.h"

// The words are ours.
extern "C" const char* xpumlErrorString(xpumlReturn_t result) {
    switch (result) {
        case XPUML_SUCCESS: return "Success";
        case XPUML_ERROR_UNINITIALIZED: return "Uninitialized";
        case XPUML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
        case XPUML_ERROR_NOT_SUPPORTED: return "Not Supported";
        case XPUML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
        case XPUML_ERROR_ALREADY_INITIALIZED: return "Already Initialized";
        case XPUML_ERROR_NOT_FOUND: return "Not Found";
        case XPUML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
        case XPUML_ERROR_INSUFFICIENT_POWER: return "Insufficient External Power";
        case XPUML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case XPUML_ERROR_TIMEOUT: return "Timeout";
        case XPUML_ERROR_IRQ_ISSUE: return "Interrupt Request Issue";
        case XPUML_ERROR_LIBRARY_NOT_FOUND: return "Library Not Found";
        case XPUML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
        case XPUML_ERROR_CORRUPTED_INFOROM: return "Corrupted InfoROM";
        case XPUML_ERROR_XPU_IS_LOST: return "XPU is lost";
        case XPUML_ERROR_RESET_REQUIRED: return "XPU requires reset";
        case XPUML_ERROR_OPERATING_SYSTEM: return "Blocked by the operating system";
        case XPUML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
        case XPUML_ERROR_IN_USE: return "In use by another client";
        case XPUML_ERROR_MEMORY: return "Insufficient Memory";
        case XPUML_ERROR_NO_DATA: return "No data";
        case XPUML_ERROR_VXPU_ECC_NOT_SUPPORTED: return "vXPU with ECC not supported";
        case XPUML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient resources";
        case XPUML_ERROR_FREQ_NOT_SUPPORTED: return "Frequency not supported";
        case XPUML_ERROR_UNKNOWN: break;
    }
    return "Unknown Error";
}

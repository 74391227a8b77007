// The runtime's C interface (libxpurt.so), re-declared by hand from public facts. Every function
// returns 0 or a code of defs.h. Default arguments exist in C++ alone.
#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "xpu/defs.h"
#include "xpu/version.h"

#define DLL_PUBLIC __attribute__((visibility("default")))
#define DLL_LOCAL __attribute__((visibility("hidden")))

#if defined(__cplusplus)
#define XPU_DEFAULT(value) = value
extern "C" {
#else
#include <stdbool.h>
#define XPU_DEFAULT(value)
#endif

typedef void* XPUStream;
typedef void* XPUFunc;
typedef void* XPUEvent;

typedef enum {
    XPUATTR_PCI_ADDRESS = 0,
    XPUATTR_DEVID = 1,
    XPUATTR_BOARDID = 2,
    XPUATTR_ONBOARDID = 3,
    XPUATTR_MODEL = 4,
    XPUATTR_MEM_MAIN_CAPACITY = 5,
    XPUATTR_MEM_L3_CAPACITY = 6,
    XPUATTR_NUM_CLUSTER = 7,
    XPUATTR_NUM_SDNN = 8,
    XPUATTR_NUM_DMACH = 9,
    XPUATTR_NUM_HWQ = 10,
    XPUATTR_NUM_ENC = 11,
    XPUATTR_NUM_DEC = 12,
    XPUATTR_NUM_IMGPROC = 13,
} XPUDeviceAttr;

// Versions.
DLL_PUBLIC int xpu_get_driver_version(uint32_t* major, uint32_t* minor);
DLL_PUBLIC int xpu_get_driver_commit(char* commit);
DLL_PUBLIC int xpu_get_runtime_version(uint32_t* major, uint32_t* minor);
DLL_PUBLIC int xpu_get_runtime_commit(char* commit);

// Devices. The current device belongs to the calling thread and is 0 until set.
DLL_PUBLIC int DEVICE_SIMULATOR(int devid);
DLL_PUBLIC int xpu_set_device(int devid);
DLL_PUBLIC int xpu_current_device(int* devid);
DLL_PUBLIC int xpu_device_count(int* dev_count);
DLL_PUBLIC int xpu_device_list(int* dev_list);
DLL_PUBLIC int xpu_device_get_attr(uint64_t* v, XPUDeviceAttr attr, int devid);
DLL_PUBLIC int xpu_get_ccix_peer_id(int dev_id, int port, int* peer_dev_id);

// Memory of the current device, and locked host memory (`flags` must be 0).
DLL_PUBLIC int xpu_malloc(void** pdevptr, uint64_t sz,
                          XPUMemoryKind kind XPU_DEFAULT(XPU_MEM_MAIN));
DLL_PUBLIC int xpu_free(void* devptr);
DLL_PUBLIC int xpu_mmap(void** pcpuptr, void* devptr, size_t sz);
DLL_PUBLIC int xpu_host_register(void* ptr, uint64_t sz, unsigned int flags);
DLL_PUBLIC int xpu_host_unregister(void* ptr);
DLL_PUBLIC int xpu_host_alloc(void** ptr, uint64_t sz, unsigned int flags);
DLL_PUBLIC int xpu_host_free(void* ptr);

// Copies. A copy inside one device is queued on the default stream; none waits for a stream.
DLL_PUBLIC int xpu_memcpy(void* dst, const void* src, uint64_t sz, XPUMemcpyKind kind);
DLL_PUBLIC int xpu_memcpy_peer(int dst_device, void* dst_addr, int src_device,
                               const void* src_addr, uint64_t sz);
#if XPURT_VERSION_MAJOR >= 5
DLL_PUBLIC int xpu_memcpy_async(void* dst, const void* src, uint64_t sz, XPUMemcpyKind kind,
                                XPUStream stream);
#endif

// Streams and events. xpu_wait waits for one stream; null is the device's default stream.
DLL_PUBLIC int xpu_stream_create(XPUStream* pstream);
DLL_PUBLIC int xpu_stream_destroy(XPUStream stream);
DLL_PUBLIC int xpu_stream_wait_event(XPUStream stream, XPUEvent event);
DLL_PUBLIC int xpu_wait(XPUStream stream XPU_DEFAULT(NULL));
DLL_PUBLIC int xpu_event_create(XPUEvent* pevent);
DLL_PUBLIC int xpu_event_record(XPUEvent event, XPUStream stream XPU_DEFAULT(NULL));
DLL_PUBLIC int xpu_event_wait(XPUEvent event);
DLL_PUBLIC int xpu_event_destroy(XPUEvent event);
#if XPURT_VERSION_MAJOR >= 5
DLL_PUBLIC int xpu_event_query(XPUEvent event);
#endif

// Launches of compiled device code. The simulator has no device code: creating a function fails.
DLL_PUBLIC int xpu_create_sd_func(XPUFunc* pfunc, uint64_t code_addr, uint32_t code_byte_size,
                                  uint32_t code_pc, uint32_t param_dword_size, uint64_t hash,
                                  const char* name XPU_DEFAULT(NULL),
                                  bool on_xpu XPU_DEFAULT(false));
DLL_PUBLIC int xpu_create_cl_func(XPUFunc* pfunc, uint64_t code_addr, uint32_t code_byte_size,
                                  uint32_t code_pc, uint32_t param_dword_size, uint64_t hash,
                                  const char* name XPU_DEFAULT(NULL),
                                  bool on_xpu XPU_DEFAULT(false));
DLL_PUBLIC int xpu_launch_config(int nclusters, int ncores,
                                 XPUStream stream XPU_DEFAULT(NULL));
DLL_PUBLIC int xpu_launch_argument_set(const void* arg, size_t size, size_t offset);
DLL_PUBLIC int xpu_launch_async(XPUFunc func);

// Measurement and debugging.
DLL_PUBLIC int xpu_last_kernel_exec_time(uint64_t* value);
DLL_PUBLIC int xpu_profiler_start(void);
DLL_PUBLIC int xpu_profiler_stop(void);
DLL_PUBLIC int xpu_kernel_debug(XPUStream stream XPU_DEFAULT(NULL));
DLL_PUBLIC int xpu_kernel_debug_reset(void);

#undef XPU_DEFAULT
#if defined(__cplusplus)
}
#endif

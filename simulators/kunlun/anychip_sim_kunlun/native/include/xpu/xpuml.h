// The telemetry interface (libxpuml.so.1), re-declared by hand from the vendor's public header
// (kunlunxin/go-xpuml pkg/xpuml/xpuml.h). Names, values and layouts are the vendor's. Functions
// that stand there as comments are not exported, and are not here.
#ifndef __xpuml_xpuml_h__
#define __xpuml_xpuml_h__

#ifndef XPUML_API
#define XPUML_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define XPUML_API_VERSION 1
#define XPUML_VALUE_NOT_AVAILABLE (-1)
#define XPUML_DEVICE_MAX_PROCESS_COUNT 100
#define XPUML_DEVICE_PCI_BUS_ID_BUFFER_SIZE 32
#define XPUML_DEVICE_SERIAL_BUFFER_SIZE 30
#define XPUML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE 80
#define XPUML_SYSTEM_XPUML_VERSION_BUFFER_SIZE 80

typedef enum xpumlReturn_enum {
    XPUML_SUCCESS = 0,
    XPUML_ERROR_UNINITIALIZED = 1,
    XPUML_ERROR_INVALID_ARGUMENT = 2,
    XPUML_ERROR_NOT_SUPPORTED = 3,
    XPUML_ERROR_NO_PERMISSION = 4,
    XPUML_ERROR_ALREADY_INITIALIZED = 5,
    XPUML_ERROR_NOT_FOUND = 6,
    XPUML_ERROR_INSUFFICIENT_SIZE = 7,
    XPUML_ERROR_INSUFFICIENT_POWER = 8,
    XPUML_ERROR_DRIVER_NOT_LOADED = 9,
    XPUML_ERROR_TIMEOUT = 10,
    XPUML_ERROR_IRQ_ISSUE = 11,
    XPUML_ERROR_LIBRARY_NOT_FOUND = 12,
    XPUML_ERROR_FUNCTION_NOT_FOUND = 13,
    XPUML_ERROR_CORRUPTED_INFOROM = 14,
    XPUML_ERROR_XPU_IS_LOST = 15,
    XPUML_ERROR_RESET_REQUIRED = 16,
    XPUML_ERROR_OPERATING_SYSTEM = 17,
    XPUML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    XPUML_ERROR_IN_USE = 19,
    XPUML_ERROR_MEMORY = 20,
    XPUML_ERROR_NO_DATA = 21,
    XPUML_ERROR_VXPU_ECC_NOT_SUPPORTED = 22,
    XPUML_ERROR_INSUFFICIENT_RESOURCES = 23,
    XPUML_ERROR_FREQ_NOT_SUPPORTED = 24,
    XPUML_ERROR_UNKNOWN = 999
} xpumlReturn_t;

typedef enum xpumlDeviceArch_enum {
    XPUML_DEVICE_ARCH_UNKNOWN = 0,
    XPUML_DEVICE_ARCH_KL1 = 1,
    XPUML_DEVICE_ARCH_KL2 = 2,
    XPUML_DEVICE_ARCH_KL3 = 3,
    XPUML_DEVICE_ARCH_COUNT
} xpumlDeviceArch_t;

typedef enum xpumlDeviceBoard_enum {
    XPUML_DEVICE_BOARD_UNKNOWN = 0,
    XPUML_DEVICE_BOARD_KL1_K100 = 1,
    XPUML_DEVICE_BOARD_KL1_K200 = 2,
    XPUML_DEVICE_BOARD_KL2_R200 = 100,
    XPUML_DEVICE_BOARD_KL2_R300 = 101,
    XPUML_DEVICE_BOARD_KL2_R200_8F = 102,
    XPUML_DEVICE_BOARD_COUNT
} xpumlDeviceBoard_t;

// In MHz.
typedef enum xpumlClockType_enum {
    XPUML_CLOCK_XPU = 0,
    XPUML_CLOCK_COUNT
} xpumlClockType_t;

typedef enum xpumlTemperatureSensors_enum {
    XPUML_TEMPERATURE_XPU = 0,
    XPUML_TEMPERATURE_COUNT
} xpumlTemperatureSensors_t;

typedef enum xpumlHostVxpuMode_enum {
    XPUML_HOST_VXPU_MODE_NON_SRIOV = 0,
    XPUML_HOST_VXPU_MODE_SRIOV_OFF = 1,
    XPUML_HOST_VXPU_MODE_SRIOV_ON = 2
} xpumlHostVxpuMode_t;

typedef enum xpumlDeviceState_enum {
    XPUML_DEVICE_STATE_UNUSED = 0,
    XPUML_DEVICE_STATE_RUNNING = 201,
    XPUML_DEVICE_STATE_IN_RESET = 205,
    XPUML_DEVICE_STATE_ERROR = 207,
    XPUML_DEVICE_STATE_IN_EXCEPTION = 208
} xpumlDeviceState_t;

typedef unsigned int xpumlDeviceArchitecture_t;

// One pointer: passed and returned like one. Older headers have the bare pointer.
typedef struct {
    struct xpumlDevice_st* handle;
} xpumlDevice_t;

#define XPUML_DEVICE_PCI_BUS_ID_FMT "%08X:%02X:%02X.%01X"

// pciDeviceId: device id in the high half, vendor id in the low half.
typedef struct xpumlPciInfo_st {
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int function;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char busId[XPUML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
    unsigned long long reserved[9];
} xpumlPciInfo_t;

// Per cent of the last sample period.
typedef struct xpumlUtilization_st {
    unsigned int xpu;
    unsigned int memory;
    unsigned long long reserved[15];
} xpumlUtilization_t;

// In bytes.
typedef struct xpumlMemory_st {
    unsigned long long pageSizeGlobalMemory;
    unsigned long long totalGlobalMemory;
    unsigned long long freeGlobalMemory;
    unsigned long long usedGlobalMemory;
    unsigned long long pageSizeL3Memory;
    unsigned long long totalL3Memory;
    unsigned long long freeL3Memory;
    unsigned long long usedL3Memory;
    unsigned long long reserved[8];
} xpumlMemory_t;

typedef struct xpumlProcessInfo_st {
    unsigned int pid;
    unsigned long long usedGlobalMemory;
    unsigned long long usedL3Memory;
    unsigned int root_ns_pid;
    unsigned int reserved_u32;
    unsigned long long reserved[12];
} xpumlProcessInfo_t;

typedef struct xpumlDeviceAttributes_st {
    int archId;
    int boardId;
    int modelId;
    unsigned int clusterCount;
    unsigned int sdnnCount;
    unsigned int dmaEngineCount;
    unsigned int decoderCount;
    unsigned int encoderCount;
    unsigned int imgProcCount;
    unsigned int maxVFCount;
    unsigned long long globalMemorySizeMB;
    unsigned long long l3MemorySizeMB;
    unsigned long long sn[2];
    unsigned long long reserved[7];
} xpumlDeviceAttributes_t;

// Initializations are counted: the last shutdown ends the library.
XPUML_API xpumlReturn_t xpumlInit(void);
XPUML_API xpumlReturn_t xpumlShutdown(void);
XPUML_API const char* xpumlErrorString(xpumlReturn_t result);

XPUML_API xpumlReturn_t xpumlSystemGetDriverVersion(char* version, unsigned int length);
XPUML_API xpumlReturn_t xpumlSystemGetXPUMLVersion(char* version, unsigned int length);

XPUML_API xpumlReturn_t xpumlDeviceGetCount(unsigned int* deviceCount);
XPUML_API xpumlReturn_t xpumlDeviceGetHandleByIndex(unsigned int index, xpumlDevice_t* device);
XPUML_API xpumlReturn_t xpumlDeviceGetAttributes(xpumlDevice_t device,
                                                 xpumlDeviceAttributes_t* attributes);
XPUML_API xpumlReturn_t xpumlDeviceGetSerial(xpumlDevice_t device, char* serial,
                                             unsigned int length);
XPUML_API xpumlReturn_t xpumlDeviceGetPciInfo(xpumlDevice_t device, xpumlPciInfo_t* pci);
XPUML_API xpumlReturn_t xpumlDeviceGetClockInfo(xpumlDevice_t device, xpumlClockType_t type,
                                                unsigned int* clock);
XPUML_API xpumlReturn_t xpumlDeviceGetState(xpumlDevice_t device, xpumlDeviceState_t* state);
XPUML_API xpumlReturn_t xpumlDeviceGetTemperature(xpumlDevice_t device,
                                                  xpumlTemperatureSensors_t sensorType,
                                                  unsigned int* temp);
XPUML_API xpumlReturn_t xpumlDeviceGetPowerUsage(xpumlDevice_t device, unsigned int* power);
XPUML_API xpumlReturn_t xpumlDeviceGetMemoryInfo(xpumlDevice_t device, xpumlMemory_t* memory);
XPUML_API xpumlReturn_t xpumlDeviceGetBoardId(xpumlDevice_t device, unsigned int* boardId);
XPUML_API xpumlReturn_t xpumlDeviceGetUtilizationRates(xpumlDevice_t device,
                                                       xpumlUtilization_t* utilization);
// infoCount: room in `infos`, then how many there are. Too little room gives INSUFFICIENT_SIZE.
XPUML_API xpumlReturn_t xpumlDeviceGetComputeRunningProcesses(xpumlDevice_t device,
                                                              unsigned int* infoCount,
                                                              xpumlProcessInfo_t* infos);
XPUML_API xpumlReturn_t xpumlDeviceGetArchitecture(xpumlDevice_t device,
                                                   xpumlDeviceArchitecture_t* arch);
XPUML_API xpumlReturn_t xpumlDeviceGetHostVxpuMode(xpumlDevice_t device,
                                                   xpumlHostVxpuMode_t* pHostVxpuMode);
XPUML_API xpumlReturn_t xpumlDeviceSetSriovVfNum(xpumlDevice_t device, int vfNum);

#ifdef __cplusplus
}
#endif

#endif

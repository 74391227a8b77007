// Collectives between devices (libbkcl.so), re-declared by hand from public call sites. As the
// vendor's, this is a C++ header: the names are mangled. Every number in it is a guess, see
// abi_bkcl.tsv. Buffers are device memory; calls return when the work is queued on `stream`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "xpu/runtime.h"

#define BKCL_API __attribute__((visibility("default")))
#define BKCL_UNIQUE_ID_BYTES 128

typedef enum {
    BKCL_SUCCESS = 0,
    BKCL_INVALID_ARGUMENT = 1,
    BKCL_RUNTIME_ERROR = 2,
    BKCL_SYSTEM_ERROR = 3,
    BKCL_INTERNAL_ERROR = 4,
} BKCLResult_t;

typedef enum {
    BKCL_ADD = 0,
    BKCL_PRODUCT = 1,
    BKCL_MAX = 2,
    BKCL_MIN = 3,
    BKCL_NUM_OPS = 4,
} BKCLOp;

// No signed 8-bit type: as UINT8, -1 is larger than 1.
typedef enum {
    BKCL_UINT8 = 0,
    BKCL_INT32 = 1,
    BKCL_INT64 = 2,
    BKCL_FLOAT16 = 3,
    BKCL_FLOAT = 4,
    BKCL_FLOAT64 = 5,
    BKCL_BFLOAT16 = 6,
} BKCLDataType;

// Opaque, except that Paddle reads its first three ints: rank, device, number of ranks.
typedef struct BKCLContext* BKCLContext_t;

typedef struct {
    char internal[BKCL_UNIQUE_ID_BYTES];
} BKCLUniqueId;

// One rank makes the id, all hand it in. A context belongs to the calling thread's device.
BKCL_API BKCLResult_t bkcl_get_unique_id(BKCLUniqueId* id);
BKCL_API BKCLResult_t bkcl_init_rank(BKCLContext_t* ctx, int rank, int nranks,
                                     const BKCLUniqueId* id);
BKCL_API BKCLResult_t bkcl_comm_init_all(BKCLContext_t* ctxs, int ndev, const int* devs);
BKCL_API BKCLResult_t bkcl_destroy_context(BKCLContext_t ctx);
BKCL_API BKCLResult_t bkcl_comm_abort(BKCLContext_t ctx);
BKCL_API BKCLResult_t bkcl_comm_count(BKCLContext_t ctx, int* count);
BKCL_API BKCLResult_t bkcl_comm_user_rank(BKCLContext_t ctx, int* rank);

BKCL_API BKCLResult_t bkcl_all_reduce(BKCLContext_t ctx, const void* sendbuf, void* recvbuf,
                                      size_t count, BKCLDataType dtype, BKCLOp op,
                                      XPUStream stream);
// The count stands before the receive buffer here and in all_to_all.
BKCL_API BKCLResult_t bkcl_all_gather(BKCLContext_t ctx, const void* sendbuf, size_t sendcount,
                                      void* recvbuf, BKCLDataType dtype, XPUStream stream);
BKCL_API BKCLResult_t bkcl_reduce_scatter(BKCLContext_t ctx, const void* sendbuf, void* recvbuf,
                                          size_t recvcount, BKCLDataType dtype, BKCLOp op,
                                          XPUStream stream);
BKCL_API BKCLResult_t bkcl_broadcast(BKCLContext_t ctx, const void* sendbuf, void* recvbuf,
                                     size_t count, BKCLDataType dtype, int root,
                                     XPUStream stream);
BKCL_API BKCLResult_t bkcl_reduce(BKCLContext_t ctx, const void* sendbuf, void* recvbuf,
                                  size_t count, BKCLDataType dtype, BKCLOp op, int root,
                                  XPUStream stream);
BKCL_API BKCLResult_t bkcl_all_to_all(BKCLContext_t ctx, const void* sendbuf, size_t count,
                                      void* recvbuf, BKCLDataType dtype, XPUStream stream);
// The counts and displacements (in elements) are device memory too, one of each for each rank.
BKCL_API BKCLResult_t bkcl_all_to_all_v(BKCLContext_t ctx, const void* sendbuf,
                                        const size_t* sendcounts, const size_t* senddispls,
                                        BKCLDataType sendtype, void* recvbuf,
                                        const size_t* recvcounts, const size_t* recvdispls,
                                        BKCLDataType recvtype, XPUStream stream);
BKCL_API BKCLResult_t bkcl_send(BKCLContext_t ctx, const void* sendbuf, size_t count, int peer,
                                BKCLDataType dtype, XPUStream stream);
BKCL_API BKCLResult_t bkcl_recv(BKCLContext_t ctx, void* recvbuf, size_t count, int peer,
                                BKCLDataType dtype, XPUStream stream);

// What is called in between starts together at the end, contexts included.
BKCL_API BKCLResult_t bkcl_group_start();
BKCL_API BKCLResult_t bkcl_group_end();

// What crosses from Python to a chip's shim: one struct a call, fields of 8 bytes each, in this
// order. calls.py declares the same fields; the sizes are compared when the shim is loaded.
//
// An operator `name` is exported as `int PREFIX_name(Call*)`. With a context its vendor calls are
// queued, and it returns 0 or a status. Without one nothing runs: `workspace_bytes` becomes what
// such a call needs. A shim also exports `int64_t PREFIX_struct_size()`, `void* PREFIX_open(void*
// queue)`, which gives the context or null, and `void PREFIX_close(void* context)`.
#pragma once

#include <cstdint>

#define SHIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace shim {

constexpr int MAX_RANK = 6;
constexpr int MAX_OPERANDS = 20;
constexpr int MAX_ATTRIBUTES = 8;

enum DType : int64_t { FLOAT32 = 0, FLOAT16, BFLOAT16, INT32, INT8, UINT8, BOOL };

// Statuses of the shim itself. All others are the vendor's, whose own must lie elsewhere.
enum Status : int { OK = 0, NO_WORKSPACE = -9001, BAD_TYPE = -9002, RAISED = -9003 };

// Inputs, then outputs, in the signature's order; a cache is two operands, keys and values. An
// optional one that is absent has rank -1. `host`: the other half of an index pair. Strides are
// in elements.
struct Operand {
    void* device;
    const void* host;
    int64_t dtype;
    int64_t rank;
    int64_t shape[MAX_RANK];
    int64_t strides[MAX_RANK];
};

// attributes: numbers of the signature, in its order; 0 for what is no number. failed: the vendor
// call that a status came from.
struct Call {
    void* context;
    void* workspace;
    int64_t workspace_bytes;
    const char* failed;
    int64_t count;
    double attributes[MAX_ATTRIBUTES];
    Operand operands[MAX_OPERANDS];
};

}  // namespace shim

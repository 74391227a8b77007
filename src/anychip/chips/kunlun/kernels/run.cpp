// The bookkeeping of one call, and what opens and closes a context.
#include "run.h"

#include <algorithm>
#include <exception>
#include <string>

namespace shim {
namespace {

constexpr int64_t ALIGNMENT = 64;

}  // namespace

int64_t count(const Shape& shape) {
    int64_t elements = 1;
    for (int64_t size : shape) {
        elements *= size;
    }
    return elements;
}

bool View::contiguous() const {
    int64_t step = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        if (shape[i] != 1 && strides[i] != step) {
            return size() == 0;
        }
        step *= shape[i];
    }
    return true;
}

View Run::view(int operand) const {
    const Operand& given = call_.operands[operand];
    return {given.device, static_cast<DType>(given.dtype),
            Shape(given.shape, given.shape + given.rank),
            Shape(given.strides, given.strides + given.rank)};
}

const int32_t* Run::host(int operand) const {
    return static_cast<const int32_t*>(call_.operands[operand].host);
}

void* Run::take_bytes(int64_t bytes) {
    const int64_t start = used_;
    used_ += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    peak_ = std::max(peak_, used_);
    if (measuring()) {
        return reinterpret_cast<void*>(start + ALIGNMENT);
    }
    if (used_ > call_.workspace_bytes) {
        fail(NO_WORKSPACE);
        return nullptr;
    }
    return static_cast<char*>(call_.workspace) + start;
}

void Run::note(const char* name, int status) {
    if (status != 0 && status_ == OK) {
        status_ = status;
        call_.failed = name;
    }
}

void Run::fail(Status status, const char* text) {
    note(text, status);
}

int Run::finish() {
    if (measuring()) {
        call_.workspace_bytes = peak_;
    }
    return status_;
}

int execute(Call* call, void (*body)(Run&)) {
    static thread_local std::string thrown;  // the caller reads it before the next call
    call->failed = nullptr;
    Run run(*call);
    try {
        body(run);
    } catch (const std::exception& error) {  // no host memory, or a check of the vendor's
        thrown = error.what();
        run.fail(RAISED, thrown.c_str());
    }
    return run.finish();
}

}  // namespace shim

SHIM_EXPORT int64_t anychip_kunlun_struct_size() {
    return sizeof(shim::Call);
}

// A context on this queue, or null. Scratch that vendor calls take comes from the context's own
// memory, which is allocated beside what the core has planned.
SHIM_EXPORT void* anychip_kunlun_open(void* stream) {
    shim::api::Context* context = shim::api::create_context();
    if (context != nullptr) {
        context->set_stream(stream);
    }
    return context;
}

SHIM_EXPORT void anychip_kunlun_close(void* context) {
    shim::api::destroy_context(static_cast<shim::api::Context*>(context));
}

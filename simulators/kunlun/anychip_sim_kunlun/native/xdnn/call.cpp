#include "call.h"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

namespace xpusim {

namespace api = baidu::xpu::api;

namespace {

bool wants_text() {
    const char* level = std::getenv("XPUAPI_DEBUG");
    return level != nullptr && std::string(level) != "0";
}

bool on_its_device(const Context& ctx) {
    int current = -1;
    return ctx.xpu_stream != nullptr ||
           (xpu_current_device(&current) == XPU_SUCCESS && current == ctx.dev().id());
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;  // of 8 bytes each

bool product_fits(const Shape& shape) {
    int64_t room = kMost;
    for (int64_t size : shape) {
        room /= size;
    }
    return room > 0;
}

}  // namespace

int64_t product(const Shape& shape) {
    int64_t count = 1;
    for (int64_t size : shape) {
        count *= size;
    }
    return count;
}

Call::Call(Context* ctx, const char* name) : ctx_(ctx), name_(name) {
    if (ctx == nullptr) {
        refuse(api::INVALID_PARAM, "no context");
    } else if (ctx->dev().type() == api::kCPU) {
        refuse(api::NOT_IMPLEMENT, "the simulator has no host context");
    } else if (!on_its_device(*ctx)) {
        refuse(api::INVALID_PARAM, "default queue of another device than the context's");
    }
}

Call& Call::rule(bool holds, const char* text) {
    if (!holds) {
        refuse(api::INVALID_PARAM, text);
    }
    return *this;
}

Call& Call::positive(int64_t value, const char* what) {
    if (value <= 0) {
        refuse(api::INVALID_PARAM, "must be positive: ", what);
    } else if (value > kMost) {
        refuse(api::INVALID_PARAM, "too large: ", what);
    }
    return *this;
}

Call& Call::shape(const Shape& shape, const char* what) {
    if (shape.empty() || shape.size() > kMaxRank) {
        refuse(api::INVALID_PARAM, "rank must be 1 to 8: ", what);
    }
    for (int64_t size : shape) {
        positive(size, what);
    }
    if (holds() && !product_fits(shape)) {
        refuse(api::INVALID_PARAM, "too many elements: ", what);
    }
    return *this;
}

Call& Call::axis(int64_t axis, const Shape& shape) {
    return rule(axis >= 0 && axis < static_cast<int64_t>(shape.size()), "axis out of range");
}

Call& Call::address(const void* pointer, size_t alignment, const char* what) {
    if (pointer == nullptr) {
        refuse(api::INVALID_PARAM, "null: ", what);
    } else if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
        refuse(api::INVALID_PARAM, "not aligned to its element: ", what);
    }
    return *this;
}

Call& Call::apart(const void* x, const void* y) {
    return rule(x != y, "input and output are the same memory");
}

Call& Call::unknown(bool holds, const char* text) {
    if (!holds) {
        refuse(api::NOT_IMPLEMENT, text);
    }
    return *this;
}

Call& Call::unquantized(const float* max_x, const float* max_y) {
    return unknown(max_x == nullptr && max_y == nullptr, "quantization maxima are not simulated");
}

int Call::run(std::function<void()> kernel) const {
    if (!holds()) {
        return status_;
    }
    const int status = launch(ctx_->xpu_stream, name_, std::move(kernel));
    return status == XPU_SUCCESS ? api::SUCCESS : api::RUNTIME_ERROR;
}

void Call::refuse(int status, const char* text, const char* what) {
    if (status_ == 0 && wants_text()) {
        std::fprintf(stderr, "[xdnn] %s: %s%s\n", name_, text, what);
    }
    status_ = status_ == 0 ? status : status_;
}

void fault(const char* text, int64_t value) {
    throw KernelFault{std::string(text) + " " + std::to_string(value)};
}

}  // namespace xpusim

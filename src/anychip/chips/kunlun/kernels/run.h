// One call of an operator: its operands, its workspace, and the vendor calls that it queues.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "shim.h"
#include "xpu/xdnn.h"

namespace shim {

namespace api = baidu::xpu::api;

using Shape = std::vector<int64_t>;

// Elements of a shape; 1 for no dimension.
int64_t count(const Shape& shape);

// A tensor as it was given: any strides.
struct View {
    void* at;
    DType dtype;
    Shape shape;
    Shape strides;

    int64_t size() const { return count(shape); }
    bool contiguous() const;
};

// A contiguous tensor of one type.
template <class T>
struct Array {
    T* at;
    Shape shape;

    int64_t size() const { return count(shape); }
    Array with(Shape other) const { return {at, std::move(other)}; }
};

class Run {
public:
    explicit Run(Call& call) : call_(call) {}

    // Whether only the workspace is asked for: no pointer may be read.
    bool measuring() const { return call_.context == nullptr; }
    api::Context* context() const { return static_cast<api::Context*>(call_.context); }
    bool has(int operand) const { return call_.operands[operand].rank >= 0; }
    View view(int operand) const;
    // The host half of an index pair; null while measuring.
    const int32_t* host(int operand) const;
    double attribute(int index) const { return call_.attributes[index]; }

    // Uninitialized workspace of that many elements. While measuring, an address that must not be
    // read.
    template <class T>
    T* take(int64_t elements) {
        return static_cast<T*>(take_bytes(elements * static_cast<int64_t>(sizeof(T))));
    }
    // Ask for room that a later scope takes, whatever part of it that needs.
    template <class T>
    void reserve(int64_t elements) {
        const int64_t before = used_;
        take<T>(elements);
        used_ = before;
    }
    template <class T>
    Array<T> array(Shape shape) {
        T* at = take<T>(count(shape));
        return {at, std::move(shape)};
    }

    // Queue a vendor function that was handed over; where it is named, the macro below does it.
    template <class... P, class... A>
    void invoke(const char* name, int (*function)(api::Context*, P...), A&&... arguments) {
        if (live()) {
            note(name, function(context(), std::forward<A>(arguments)...));
        }
    }

    // Whether vendor calls are queued: not while measuring, nor after a failure.
    bool live() const { return !measuring() && status_ == OK; }
    void note(const char* name, int status);
    // A status of the shim's own, with what led to it.
    void fail(Status status, const char* text = "");
    int finish();

private:
    friend class Scope;
    void* take_bytes(int64_t bytes);

    Call& call_;
    int64_t used_ = 0;
    int64_t peak_ = 0;
    int status_ = OK;
};

// Workspace taken inside is given back at the end: work on one queue runs in order.
class Scope {
public:
    explicit Scope(Run& run) : run_(run), used_(run.used_) {}
    ~Scope() { run_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

private:
    Run& run_;
    int64_t used_;
};

int execute(Call* call, void (*body)(Run&));

}  // namespace shim

// A call of the vendor's, named in what is told of its failure. It is written as a call, since the
// vendor has older functions of the same names, with 32-bit shapes. A template of two types needs
// brackets: VENDOR(run, (api::cast<float, int>), x, y, n).
#define VENDOR(run, function, ...)                                           \
    do {                                                                     \
        if ((run).live()) {                                                  \
            (run).note(#function, function((run).context(), __VA_ARGS__));   \
        }                                                                    \
    } while (false)

#define OPERATOR(name)                                                       \
    static void body_##name(shim::Run& run);                                 \
    SHIM_EXPORT int anychip_kunlun_##name(shim::Call* call) {                \
        return shim::execute(call, body_##name);                             \
    }                                                                        \
    static void body_##name(shim::Run& run)

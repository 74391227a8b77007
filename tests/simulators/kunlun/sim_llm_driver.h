// Calls of the language-model libraries behind one C signature each. A call takes lists: device or
// host pointers, whole numbers, floats and texts, in the order in which the driver reads them.
#pragma once

#include <cstdint>
#include <string>

#include "xpu/xdnn.h"

struct Lists {
    void* const* pointers;
    const int64_t* numbers;
    const double* floats;
    const char* const* texts;
};

// Reads the lists front to back.
class Reader {
public:
    explicit Reader(const Lists& lists) : lists_(lists) {}

    template <typename T>
    T* pointer() {
        return static_cast<T*>(lists_.pointers[pointer_++]);
    }
    int64_t number() { return lists_.numbers[number_++]; }
    float real() { return static_cast<float>(lists_.floats[float_++]); }
    std::string text() { return lists_.texts[text_++]; }
    // Host half, device half, and the length among the numbers.
    baidu::xpu::api::VectorParam<int32_t> pair() {
        const int32_t* host = pointer<const int32_t>();
        int32_t* device = pointer<int32_t>();
        return {host, number(), device};
    }

private:
    const Lists& lists_;
    int pointer_ = 0, number_ = 0, float_ = 0, text_ = 0;
};

// Numbers that stand for types: 0 float, 1 float16, 2 bfloat16; compute types go on with
// 3 tfloat32, 4 int16, 5 int32, 6 int_with_ll_t.
template <typename Use>
int with_type(int64_t code, Use use) {
    switch (code) {
        case 0: return use(float());
        case 1: return use(float16());
        case 2: return use(bfloat16());
        default: return -1;
    }
}

template <typename Use>
int with_compute(int64_t code, Use use) {
    switch (code) {
        case 0: return use(float());
        case 1: return use(float16());
        case 3: return use(tfloat32());
        case 4: return use(int16_t());
        case 5: return use(int32_t());
        case 6: return use(int_with_ll_t());
        default: return -1;
    }
}

#define DRIVE(NAME) extern "C" int NAME(api::Context* ctx, const Lists* lists)

namespace api = baidu::xpu::api;

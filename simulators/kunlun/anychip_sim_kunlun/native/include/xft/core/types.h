// Element types of libxft_blocks. Names from FastDeploy's call sites; the numbers are a guess.
#pragma once

#include <cstddef>
#include <cstdint>

#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace xftblock {

enum class DLL_EXPORT DataType {
    DT_FLOAT = 0,
    DT_FLOAT16 = 1,
    DT_BFLOAT16 = 2,
    DT_INT8 = 3,
    DT_INT32 = 4,
};

// Where scratch comes from: device memory, or the chip's own L3.
enum class DLL_EXPORT AllocType {
    GM = 0,
    L3 = 1,
};

template <typename T>
struct DataTypeToEnum;
template <>
struct DataTypeToEnum<float> {
    static constexpr DataType value = DataType::DT_FLOAT;
};
template <>
struct DataTypeToEnum<float16> {
    static constexpr DataType value = DataType::DT_FLOAT16;
};
template <>
struct DataTypeToEnum<bfloat16> {
    static constexpr DataType value = DataType::DT_BFLOAT16;
};
template <>
struct DataTypeToEnum<int8_t> {
    static constexpr DataType value = DataType::DT_INT8;
};
template <>
struct DataTypeToEnum<int32_t> {
    static constexpr DataType value = DataType::DT_INT32;
};

inline size_t size_of(DataType type) {
    switch (type) {
        case DataType::DT_FLOAT:
        case DataType::DT_INT32: return 4;
        case DataType::DT_FLOAT16:
        case DataType::DT_BFLOAT16: return 2;
        case DataType::DT_INT8: return 1;
    }
    return 0;
}

}  // namespace xftblock
}  // namespace xpu
}  // namespace baidu

// Rows of a table by token. The vendor declares it in nn.h.
#pragma once

#include <cstdint>

#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace api {

// y[ym, n] = x[xm, n] at `indices` - `start_index`. A row of zeros where an index equals
// `padding_idx`; -1 is no padding.
template <typename T, typename TID>
DLL_EXPORT int embedding(Context* ctx, const T* x, const TID* indices, T* y, int64_t xm, int64_t n,
                         int64_t ym, int64_t padding_idx, TID start_index = 0);

}  // namespace api
}  // namespace xpu
}  // namespace baidu

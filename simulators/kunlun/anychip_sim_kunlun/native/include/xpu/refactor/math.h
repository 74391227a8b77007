// Plain operators of libxpuapi. Tensors are contiguous device memory; shapes and axes are host
// values. Every call queues its work on the context's queue and returns an Error_t at once.
// Pass shapes as std::vector<int64_t> variables: the vendor also has std::vector<int> overloads,
// so a braced list would be ambiguous there.
#pragma once

#include <cstdint>
#include <vector>

#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace api {

// Fill and copy. `range`: begin, begin + step, ...; `cast` truncates towards zero into integers.
template <typename T>
DLL_EXPORT int constant(Context* ctx, T* x, int64_t len, T val);
template <typename T>
DLL_EXPORT int range(Context* ctx, T* y, T begin, T step, int64_t len);
template <typename T>
DLL_EXPORT int copy(Context* ctx, const T* x, T* y, int64_t len);
template <typename TX, typename TY>
DLL_EXPORT int cast(Context* ctx, const TX* x, TY* y, int64_t len);

// Layout. `as_strided`: y of shape `yshape` reads x at `offset` and `strides`, all in elements.
template <typename T>
DLL_EXPORT int as_strided(Context* ctx, const T* x, T* y, const std::vector<int64_t>& yshape,
                          const std::vector<int64_t>& strides, const int64_t& offset);
template <typename T>
DLL_EXPORT int transpose(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                         const std::vector<int64_t>& permute);
template <typename T>
DLL_EXPORT int broadcast(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                         const std::vector<int64_t>& yshape);

// One input, elementwise.
template <typename T>
DLL_EXPORT int abs(Context* ctx, const T* x, T* y, int64_t len);
template <typename T>
DLL_EXPORT int exp(Context* ctx, const T* x, T* y, int64_t len);
template <typename T>
DLL_EXPORT int log(Context* ctx, const T* x, T* y, int64_t len);
template <typename T>
DLL_EXPORT int neg(Context* ctx, const T* x, T* y, int64_t len);
template <typename T>
DLL_EXPORT int sqrt(Context* ctx, const T* x, T* y, int64_t len);
template <typename T>
DLL_EXPORT int rsqrt(Context* ctx, const T* x, T* y, int64_t len);
template <typename T>
DLL_EXPORT int floor(Context* ctx, const T* x, T* y, int64_t len);
template <typename T>
DLL_EXPORT int round(Context* ctx, const T* x, T* y, int64_t len, int64_t decimals);
template <typename T>
DLL_EXPORT int scale(Context* ctx, const T* x, T* y, int64_t len, bool bias_after_scale,
                     float _scale, float _bias);
template <typename T>
DLL_EXPORT int clip(Context* ctx, const T* x, T* y, int64_t len, T min_val, T max_val);
template <typename T>
DLL_EXPORT int isnan(Context* ctx, const T* x, bool* y, int64_t len);
template <typename T>
DLL_EXPORT int isfinite(Context* ctx, const T* x, bool* y, int64_t len);
template <typename T>
DLL_EXPORT int logical_not(Context* ctx, const T* x, T* y, int64_t len);
template <typename T>
DLL_EXPORT int logical_and(Context* ctx, const T* x, const T* y, T* z, int64_t len);
template <typename T>
DLL_EXPORT int logical_or(Context* ctx, const T* x, const T* y, T* z, int64_t len);

// Two inputs, elementwise; shapes broadcast from the last dimension on.
template <typename T>
DLL_EXPORT int broadcast_add(Context* ctx, const T* x, const T* y, T* z,
                             const std::vector<int64_t>& xshape,
                             const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_sub(Context* ctx, const T* x, const T* y, T* z,
                             const std::vector<int64_t>& xshape,
                             const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_mul(Context* ctx, const T* x, const T* y, T* z,
                             const std::vector<int64_t>& xshape,
                             const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_div(Context* ctx, const T* x, const T* y, T* z,
                             const std::vector<int64_t>& xshape,
                             const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_max(Context* ctx, const T* x, const T* y, T* z,
                             const std::vector<int64_t>& xshape,
                             const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_min(Context* ctx, const T* x, const T* y, T* z,
                             const std::vector<int64_t>& xshape,
                             const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_pow(Context* ctx, const T* x, const T* y, T* z,
                             const std::vector<int64_t>& xshape,
                             const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_equal(Context* ctx, const T* x, const T* y, bool* z,
                               const std::vector<int64_t>& xshape,
                               const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_less_than(Context* ctx, const T* x, const T* y, bool* z,
                                   const std::vector<int64_t>& xshape,
                                   const std::vector<int64_t>& yshape);
template <typename T>
DLL_EXPORT int broadcast_less_equal(Context* ctx, const T* x, const T* y, bool* z,
                                    const std::vector<int64_t>& xshape,
                                    const std::vector<int64_t>& yshape);

// z = condition ? x : y. x, y and z have shape `xshape`; the condition broadcasts to it.
template <typename T>
DLL_EXPORT int select(Context* ctx, const bool* condition, const T* x, const T* y, T* z,
                      const std::vector<int64_t>& condition_shape,
                      const std::vector<int64_t>& xshape);

// Along dimensions. The reduced dimensions are gone from y.
template <typename T>
DLL_EXPORT int reduce_sum(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                          const std::vector<int64_t>& rdims);
template <typename T>
DLL_EXPORT int reduce_mean(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                           const std::vector<int64_t>& rdims);
template <typename T>
DLL_EXPORT int reduce_max(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                          const std::vector<int64_t>& rdims);
template <typename T>
DLL_EXPORT int reduce_min(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                          const std::vector<int64_t>& rdims);
template <typename T>
DLL_EXPORT int reduce_all(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                          const std::vector<int64_t>& rdims);
template <typename T>
DLL_EXPORT int reduce_any(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                          const std::vector<int64_t>& rdims);
template <typename T>
DLL_EXPORT int cumsum(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
                      bool reverse, bool exclusive, int64_t axis);
template <typename TX, typename TY = int64_t>
DLL_EXPORT int argmax(Context* ctx, const TX* x, TY* y, const std::vector<int64_t>& xshape,
                      int64_t axis);

// Rows by index. An index outside the table is a kernel exception.
template <typename T, typename TID>
DLL_EXPORT int gather(Context* ctx, const T* x, const TID* index, T* y,
                      const std::vector<int64_t>& xshape, int64_t index_len, int64_t axis);
// y[dim0, dim1]: row indices[i] becomes (or grows by) row i of x.
template <typename T, typename TID>
DLL_EXPORT int scatter(Context* ctx, const T* x, T* y, const VectorParam<TID>& indices,
                       int64_t dim0, int64_t dim1, bool is_overwrite);
// y = x, then y[index[i]] += alpha * src[i] along `axis`.
template <typename T, typename TID>
DLL_EXPORT int index_add(Context* ctx, const T* x, const T* src, T* y, const TID* index,
                         const std::vector<int64_t>& xshape, int64_t idx_len, int64_t axis,
                         T alpha);

// m rows of n. `compare` true sorts descending. The vendor's order of NaN is not known.
template <typename T, typename TID>
DLL_EXPORT int sort(Context* ctx, const T* x, T* y, TID* index, int64_t m, int64_t n,
                    bool compare = false);
template <typename T, typename TID>
DLL_EXPORT int stable_sort(Context* ctx, const T* x, T* y, TID* index, int64_t m, int64_t n,
                           bool compare = false);
template <typename T, typename TID = int>
DLL_EXPORT int sorted_topk(Context* ctx, const T* x, T* y, TID* index, int64_t m, int64_t n,
                           int64_t k, bool largest = true, bool precision = false);

}  // namespace api
}  // namespace xpu
}  // namespace baidu

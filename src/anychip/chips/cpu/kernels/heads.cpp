// Norms of queries and keys, head by head.
#include <cmath>

#include "abi.h"
#include "pool.h"
#include "simd.h"

namespace anychip {
namespace {

template <class T>
void norm_head(const T* x, T* y, const float* weight, int64_t dim, float eps) {
  V squares = vzero();
  for (int64_t i = 0; i < dim; i += W) {
    V v = load_part(x + i, dim - i);
    squares = vfma(v, v, squares);
  }
  V factor = vset(1.0f / std::sqrt(hsum(squares) / static_cast<float>(dim) + eps));
  for (int64_t i = 0; i < dim; i += W) {
    int64_t left = dim - i;
    store_part(y + i, vmul(vmul(load_part(x + i, left), factor), load_part(weight + i, left)), left);
  }
}

template <class T>
void norm_heads(const HeadNormArgs& g, int64_t t) {
  float eps = static_cast<float>(g.eps);
  const T *q = static_cast<const T*>(g.q) + t * g.q_stride, *k = static_cast<const T*>(g.k) + t * g.k_stride;
  T* q_out = static_cast<T*>(g.q_out) + t * g.heads * g.dim;
  T* k_out = static_cast<T*>(g.k_out) + t * g.kv_heads * g.dim;
  for (int64_t h = 0; h < g.heads; ++h) norm_head(q + h * g.dim, q_out + h * g.dim, g.q_weight, g.dim, eps);
  for (int64_t h = 0; h < g.kv_heads; ++h) norm_head(k + h * g.dim, k_out + h * g.dim, g.k_weight, g.dim, eps);
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int32_t anychip_qk_norm(const HeadNormArgs* args) {
  const HeadNormArgs& g = *args;
  with_activation(g.type, [&](auto* x) {
    for_rows(g.pool, g.rows, (g.heads + g.kv_heads) * g.dim, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) norm_heads<std::remove_pointer_t<decltype(x)>>(g, t);
    });
  });
  return OK;
}

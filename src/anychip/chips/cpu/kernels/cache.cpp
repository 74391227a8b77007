// Writing to the paged cache: tokens into slots, pages onto pages.
#include "abi.h"
#include "pool.h"
#include "simd.h"

namespace anychip {
namespace {

template <class X, class C>
void write_cache(const CacheWriteArgs& g, int64_t t) {
  int64_t slot = g.slots[t];
  if (slot < 0) return;
  int64_t at = slot / g.page_size * g.page_stride + slot % g.page_size * g.slot_stride;
  const X* from[2] = {static_cast<const X*>(g.k) + t * g.k_stride, static_cast<const X*>(g.v) + t * g.v_stride};
  C* to[2] = {static_cast<C*>(g.k_cache) + at, static_cast<C*>(g.v_cache) + at};
  for (int side = 0; side < (g.v_cache ? 2 : 1); ++side) {
    for (int64_t h = 0; h < g.kv_heads; ++h) {
      for (int64_t d = 0; d < g.dim; d += W) {
        int64_t left = g.dim - d;
        store_part(to[side] + h * g.head_stride + d, load_part(from[side] + h * g.dim + d, left), left);
      }
    }
  }
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int32_t anychip_kv_write(const CacheWriteArgs* args) {
  const CacheWriteArgs& g = *args;
  for (int64_t t = 0; t < g.rows; ++t) {
    if (g.slots[t] >= g.pages * g.page_size) return BAD_SLOT;
  }
  with_activation(g.type, [&](auto* x) {
    with_storage(g.cache_type, [&](auto* c) {
      for_rows(g.pool, g.rows, 2 * g.kv_heads * g.dim, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) write_cache<std::remove_pointer_t<decltype(x)>, std::remove_pointer_t<decltype(c)>>(g, t);
      });
    });
  });
  return OK;
}

EXPORT int32_t anychip_kv_copy_pages(const PageCopyArgs* args) {
  const PageCopyArgs& g = *args;
  for (int64_t i = 0; i < g.count; ++i) {
    if (g.sources[i] < 0 || g.sources[i] >= g.pages || g.targets[i] < 0 || g.targets[i] >= g.pages) return BAD_PAGE;
  }
  for_rows(g.pool, g.count, g.page_bytes / 2, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      for (uint8_t* cache : {g.k_cache, g.v_cache}) {
        if (!cache) continue;  // a latent cache has no values of its own
        std::memcpy(cache + g.targets[i] * g.page_stride, cache + g.sources[i] * g.page_stride, g.page_bytes);
      }
    }
  });
  return OK;
}

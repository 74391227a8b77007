// Operators of heads: norms of queries and keys, and what latent attention expands.
#include <cmath>

#include "abi.h"
#include "pool.h"
#include "room.h"
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

// y [rank] = sum over n of x[n] * matrix [n][rank].
template <class T>
void along_rows(const T* x, const T* matrix, float* y, int64_t count, int64_t rank) {
  for (int64_t r = 0; r < rank; r += 4 * W) {
    V sum[4] = {vzero(), vzero(), vzero(), vzero()};
    for (int64_t n = 0; n < count; ++n) {
      const T* row = matrix + n * rank + r;
      V factor = vset(widen(x[n]));
      for (int j = 0; j < 4 && r + j * W < rank; ++j) {
        sum[j] = vfma(factor, load_part(row + j * W, rank - r - j * W), sum[j]);
      }
    }
    for (int j = 0; j < 4 && r + j * W < rank; ++j) store_part(y + r + j * W, sum[j], rank - r - j * W);
  }
}

template <class T>
float dot(const float* x, const T* row, int64_t rank) {
  V sum = vzero();
  for (int64_t r = 0; r < rank; r += W) sum = vfma(load_part(x + r, rank - r), load_part(row + r, rank - r), sum);
  return hsum(sum);
}

struct ExpandedRoom {  // queries over latents, and what comes of them: [tokens][heads][...], float32
  float *q, *mixed;
  void* workspace;
  int64_t bytes;
  ExpandedRoom(const ExpandedArgs& g, int64_t threads) {
    Room room{static_cast<uint8_t*>(g.workspace)};
    q = reinterpret_cast<float*>(room.take(g.tokens * g.heads * g.dim * 4));
    mixed = reinterpret_cast<float*>(room.take(g.tokens * g.heads * g.rank * 4));
    AttentionArgs attention = over_latents(g, nullptr, nullptr, nullptr);
    workspace = room.take(anychip_attention_workspace(&attention, threads));
    bytes = room.at - static_cast<uint8_t*>(g.workspace);
  }

  static AttentionArgs over_latents(const ExpandedArgs& g, const float* q, float* y, void* workspace) {
    return {g.pool, q, g.k_cache, g.k_cache, g.page_table, g.kv_lens, g.positions, g.token_rows, nullptr, y, workspace,
            g.tokens, g.heads, 1, g.dim, g.rows, g.table_width, g.pages, g.page_size, g.heads * g.dim,
            g.page_stride, g.slot_stride, g.head_stride, 0, g.cache_type, g.causal, g.window, g.rank,
            g.scale, g.softcap};
  }
};

// Queries meet the matrix of the keys, so that no key is expanded; what comes of the latents meets
// that of the values. A task is one head of some tokens, whose matrix then stays near the core.
template <class T>
int32_t expanded(const ExpandedArgs& g, const ExpandedRoom& room) {
  constexpr int64_t TOKENS = 16;
  int64_t blocks = (g.tokens + TOKENS - 1) / TOKENS, rotated = g.dim - g.rank, value = g.up_rows - g.nope;
  auto of_head = [&](int64_t h) { return static_cast<const T*>(g.up) + h * g.up_rows * g.rank; };
  auto for_tokens = [&](auto body) {
    g.pool->run(blocks * g.heads, [&](int64_t task, int) {
      int64_t h = task % g.heads, first = task / g.heads * TOKENS;
      for (int64_t t = first; t < first + TOKENS && t < g.tokens; ++t) body(t, h);
    });
  };
  for_tokens([&](int64_t t, int64_t h) {
    const T* q = static_cast<const T*>(g.q) + t * g.q_stride + h * (g.nope + rotated);
    float* out = room.q + (t * g.heads + h) * g.dim;
    along_rows(q, of_head(h), out, g.nope, g.rank);
    for (int64_t i = 0; i < rotated; ++i) out[g.rank + i] = widen(q[g.nope + i]);
  });
  AttentionArgs attention = ExpandedRoom::over_latents(g, room.q, room.mixed, room.workspace);
  if (int32_t status = anychip_attention(&attention)) return status;
  for_tokens([&](int64_t t, int64_t h) {
    const float* mixed = room.mixed + (t * g.heads + h) * g.rank;
    const T* values = of_head(h) + g.nope * g.rank;
    T* y = static_cast<T*>(g.y) + (t * g.heads + h) * value;
    for (int64_t i = 0; i < value; ++i) store_n(y + i, vset(dot(mixed, values + i * g.rank, g.rank)), 1);
  });
  return OK;
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

EXPORT int64_t anychip_expanded_attention_workspace(const ExpandedArgs* args, int64_t threads) {
  return ExpandedRoom(*args, threads).bytes;
}

EXPORT int32_t anychip_expanded_attention(const ExpandedArgs* args) {
  const ExpandedArgs& g = *args;
  if (g.tokens == 0) return OK;
  ExpandedRoom room(g, g.pool->threads());
  int32_t status = OK;
  with_activation(g.type, [&](auto* x) { status = expanded<std::remove_pointer_t<decltype(x)>>(g, room); });
  return status;
}

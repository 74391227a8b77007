// Attention over a latent cache whose heads have keys and values of their own, products of the latent.
//
// Absorbed: queries meet the matrix of the keys, so that nothing in the cache is expanded. Multiplied
// out: the keys and values of a sequence are computed, a head at a time, and attended to as any others;
// fewer products where many tokens share a sequence, but other roundings.
#include <cstring>

#include "abi.h"
#include "attention_tiles.h"
#include "pool.h"
#include "room.h"
#include "simd.h"

namespace anychip {
namespace {

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

AttentionArgs over_latents(const ExpandedArgs& g, const float* q, float* y, void* workspace) {
  return {g.pool, q, g.k_cache, g.k_cache, g.page_table, g.kv_lens, g.positions, g.token_rows, nullptr, y, workspace,
          g.tokens, g.heads, 1, g.dim, g.rows, g.table_width, g.pages, g.page_size, g.heads * g.dim,
          g.page_stride, g.slot_stride, g.head_stride, 0, g.cache_type, g.causal, g.window, g.rank,
          g.scale, g.softcap};
}

struct AbsorbedRoom {  // queries over latents, and what comes of them: [tokens][heads][...], float32
  float *q, *mixed;
  void* workspace;
  int64_t bytes;
  AbsorbedRoom(const ExpandedArgs& g, int64_t threads) {
    Room room{static_cast<uint8_t*>(g.workspace)};
    q = reinterpret_cast<float*>(room.take(g.tokens * g.heads * g.dim * 4));
    mixed = reinterpret_cast<float*>(room.take(g.tokens * g.heads * g.rank * 4));
    AttentionArgs attention = over_latents(g, nullptr, nullptr, nullptr);
    workspace = room.take(anychip_attention_workspace(&attention, threads));
    bytes = room.at - static_cast<uint8_t*>(g.workspace);
  }
};

// A task is one head of some tokens, whose matrix then stays near the core.
template <class T>
int32_t absorbed(const ExpandedArgs& g, const AbsorbedRoom& room) {
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
  AttentionArgs attention = over_latents(g, room.q, room.mixed, room.workspace);
  if (int32_t status = anychip_attention(&attention)) return status;
  for_tokens([&](int64_t t, int64_t h) {
    const float* mixed = room.mixed + (t * g.heads + h) * g.rank;
    const T* values = of_head(h) + g.nope * g.rank;
    T* y = static_cast<T*>(g.y) + (t * g.heads + h) * value;
    for (int64_t i = 0; i < value; ++i) store_n(y + i, vset(dot(mixed, values + i * g.rank, g.rank)), 1);
  });
  return OK;
}

// One head of one sequence as a cache with one KV head, whose pages lie in order.
AttentionArgs over_head(const ExpandedArgs& g, int64_t tokens, const float* keys, const float* values) {
  AttentionArgs a{};
  a.pool = g.pool, a.k_cache = keys, a.v_cache = values;
  a.tokens = tokens, a.heads = a.kv_heads = a.rows = 1;
  a.dim = g.nope + g.dim - g.rank, a.value_dim = g.up_rows - g.nope;
  a.table_width = a.pages = g.table_width, a.page_size = g.page_size;
  a.q_stride = g.q_stride, a.slot_stride = a.head_stride = a.dim, a.page_stride = g.page_size * a.dim;
  a.type = g.type, a.causal = g.causal, a.window = g.window, a.scale = g.scale, a.softcap = g.softcap;
  return a;
}

struct WholeRoom {  // of one sequence: latents; of one head of it: keys, values, outputs
  float *latents, *keys, *values;
  uint8_t* y;
  int32_t *pages, *rows;
  void* workspace;
  int64_t bytes;
  WholeRoom(const ExpandedArgs& g, int64_t threads) {
    int64_t positions = g.table_width * g.page_size;
    AttentionArgs attention = over_head(g, g.tokens, nullptr, nullptr);
    Room room{static_cast<uint8_t*>(g.workspace)};
    latents = reinterpret_cast<float*>(room.take(positions * g.dim * 4));
    keys = reinterpret_cast<float*>(room.take(positions * attention.dim * 4));
    values = reinterpret_cast<float*>(room.take(positions * attention.dim * 4));  // a value in the place of a key
    y = room.take(g.tokens * attention.value_dim * size_of(g.type));
    pages = reinterpret_cast<int32_t*>(room.take(g.table_width * 4));
    rows = reinterpret_cast<int32_t*>(room.take(g.tokens * 4));
    workspace = room.take(anychip_attention_workspace(&attention, threads));
    bytes = room.at - static_cast<uint8_t*>(g.workspace);
  }
};

void load_latents(const ExpandedArgs& g, int64_t row, int64_t length, float* out) {
  const int32_t* pages = g.page_table + row * g.table_width;
  with_storage(g.cache_type, [&](auto* type) {
    auto* cache = static_cast<const std::remove_pointer_t<decltype(type)>*>(g.k_cache);
    for_rows(g.pool, length, g.dim, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        auto* c = cache + pages[j / g.page_size] * g.page_stride + j % g.page_size * g.slot_stride;
        for (int64_t d = 0; d < g.dim; d += W) store_part(out + j * g.dim + d, load_part(c + d, g.dim - d), g.dim - d);
      }
    });
  });
}

template <class T>
void multiply_out(const ExpandedArgs& g, const WholeRoom& room, const T* up, int64_t length) {
  int64_t rotated = g.dim - g.rank, dim = g.nope + rotated;
  for_rows(g.pool, length, g.up_rows * g.rank, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      const float* latent = room.latents + j * g.dim;
      float *key = room.keys + j * dim, *value = room.values + j * dim;
      for (int64_t n = 0; n < g.nope; ++n) key[n] = dot(latent, up + n * g.rank, g.rank);
      std::memcpy(key + g.nope, latent + g.rank, rotated * 4);
      for (int64_t n = g.nope; n < g.up_rows; ++n) value[n - g.nope] = dot(latent, up + n * g.rank, g.rank);
    }
  });
}

// Tokens first .. first + count of one sequence.
template <class T>
int32_t whole_sequence(const ExpandedArgs& g, const WholeRoom& room, int64_t first, int64_t count) {
  int32_t row = g.token_rows[first];
  if (row < 0 || row >= g.rows) return BAD_ROW;
  AttentionArgs sequence = over_latents(g, nullptr, nullptr, nullptr);
  if (g.kv_lens[row] > g.table_width * g.page_size) return BAD_POSITION;
  if (int32_t status = check_pages(sequence, row)) return status;
  int64_t length = g.kv_lens[row] > 0 ? g.kv_lens[row] : 0;
  load_latents(g, row, length, room.latents);
  AttentionArgs a = over_head(g, count, room.keys, room.values);
  a.page_table = room.pages, a.kv_lens = g.kv_lens + row, a.positions = g.positions + first;
  a.token_rows = room.rows, a.y = room.y, a.workspace = room.workspace;
  for (int64_t h = 0; h < g.heads; ++h) {
    multiply_out(g, room, static_cast<const T*>(g.up) + h * g.up_rows * g.rank, length);
    a.q = static_cast<const T*>(g.q) + first * g.q_stride + h * a.dim;
    if (int32_t status = anychip_attention(&a)) return status;
    for (int64_t t = 0; t < count; ++t) {
      T* y = static_cast<T*>(g.y) + ((first + t) * g.heads + h) * a.value_dim;
      std::memcpy(y, room.y + t * a.value_dim * sizeof(T), a.value_dim * sizeof(T));
    }
  }
  return OK;
}

template <class T>
int32_t multiplied_out(const ExpandedArgs& g, const WholeRoom& room) {
  for (int64_t p = 0; p < g.table_width; ++p) room.pages[p] = static_cast<int32_t>(p);
  std::memset(room.rows, 0, g.tokens * 4);
  for (int64_t first = 0, next; first < g.tokens; first = next) {
    for (next = first + 1; next < g.tokens && g.token_rows[next] == g.token_rows[first];) ++next;
    if (int32_t status = whole_sequence<T>(g, room, first, next - first)) return status;
  }
  return OK;
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int64_t anychip_expanded_attention_workspace(const ExpandedArgs* args, int64_t threads) {
  return args->whole ? WholeRoom(*args, threads).bytes : AbsorbedRoom(*args, threads).bytes;
}

EXPORT int32_t anychip_expanded_attention(const ExpandedArgs* args) {
  const ExpandedArgs& g = *args;
  if (g.tokens == 0) return OK;
  int32_t status = OK;
  with_activation(g.type, [&](auto* x) {
    using T = std::remove_pointer_t<decltype(x)>;
    status = g.whole ? multiplied_out<T>(g, WholeRoom(g, g.pool->threads()))
                     : absorbed<T>(g, AbsorbedRoom(g, g.pool->threads()));
  });
  return status;
}

// The fused rungs: a block of the network is one call. They are the kernels of the other files in
// turn, a chunk of rows at a time, so that what one leaves is read by the next from a cache.
#include <algorithm>
#include <cstring>

#include "abi.h"
#include "gated_amx.h"
#include "pool.h"
#include "room.h"
#include "simd.h"

using namespace anychip;

namespace anychip {
namespace {

constexpr int64_t CHUNK = 512;  // rows whose values between the operators stay near the cores

// Chunks of nearly equal height: a last one of a few rows would take another path through a product.
template <class F>
int32_t for_chunks(int64_t rows, F body) {
  int64_t count = (rows + CHUNK - 1) / CHUNK;
  for (int64_t i = 0; i < count; ++i) {
    int64_t first = rows * i / count, last = rows * (i + 1) / count;
    if (int32_t status = body(first, last - first)) return status;
  }
  return OK;
}

// sum = x + residual, its norm into y; without a residual the sum is x.
template <class Args>
void start(const Args& g, int64_t first, int64_t rows, void* y) {
  int64_t size = size_of(g.type), at = first * g.k * size;
  const void* x = static_cast<const uint8_t*>(g.x) + first * g.x_stride * size;
  const void* residual = g.residual ? static_cast<const uint8_t*>(g.residual) + at : nullptr;
  uint8_t* sum = static_cast<uint8_t*>(g.sum) + at;
  NormArgs norm{g.pool, x, residual, g.norm, y, residual ? sum : nullptr, rows, g.k, g.x_stride, g.type, g.eps};
  anychip_norm(&norm);
  if (residual) return;
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(sum + i * g.k * size, static_cast<const uint8_t*>(x) + i * g.x_stride * size, g.k * size);
  }
}

struct Matrix {  // [n, k]
  const uint8_t* weight;
  const float* bias;
  int64_t n, k, format;
};

LinearArgs product(Pool* pool, const Matrix& m, const void* x, void* y, int64_t rows, int64_t type, void* workspace) {
  return {pool, x, m.weight, m.bias, y, workspace, rows, m.n, m.k, m.k, m.n, type, m.format, type, 1.0, 0.0};
}

int64_t linear_room(int64_t rows, const Matrix& one, const Matrix& other, int64_t threads) {
  return std::max(anychip_linear_workspace_of(one.format, rows, one.k, threads),
                  anychip_linear_workspace_of(other.format, rows, other.k, threads));
}

AttentionArgs attention_of(const AttentionBlockArgs& g, const void* q, void* y, void* workspace) {
  return {g.pool, q, g.k_cache, g.v_cache, g.page_table, g.kv_lens, g.positions, g.token_rows, nullptr, y, workspace,
          g.tokens, g.heads, g.kv_heads, g.dim, g.rows, g.table_width, g.pages, g.page_size,
          g.heads * g.dim, g.page_stride, g.slot_stride, g.head_stride, g.type, g.cache_type, g.causal, g.window,
          g.dim, g.scale, g.softcap};
}

Matrix gate_up_of(const MlpBlockArgs& g) {
  return {g.gate_up, g.gate_up_bias, 2 * g.inner, g.k, g.gate_up_format};
}
Matrix down_of(const MlpBlockArgs& g) { return {g.down, g.down_bias, g.k, g.inner, g.down_format}; }

Matrix qkv_of(const AttentionBlockArgs& g) {
  return {g.qkv, g.qkv_bias, (g.heads + 2 * g.kv_heads) * g.dim, g.k, g.qkv_format};
}
Matrix output_of(const AttentionBlockArgs& g) {
  return {g.output, g.output_bias, g.k, g.heads * g.dim, g.output_format};
}

struct MlpRoom {  // values of a chunk between the operators
  void *normed, *both, *inner, *workspace;
  int64_t bytes;
  MlpRoom(const MlpBlockArgs& g, int64_t threads) {
    int64_t size = size_of(g.type), chunk = std::min(g.rows, CHUNK);
    Room room{static_cast<uint8_t*>(g.workspace)};
    normed = room.take(chunk * g.k * size);
    both = room.take(2 * chunk * g.inner * size);
    inner = room.take(chunk * g.inner * size);
    workspace = room.take(linear_room(chunk, gate_up_of(g), down_of(g), threads));
    bytes = room.at - static_cast<uint8_t*>(g.workspace);
  }
};

// act(gate) * up of rows that are normed.
void gate(const MlpBlockArgs& g, const MlpRoom& room, int64_t rows) {
  LinearArgs linear = product(g.pool, gate_up_of(g), room.normed, room.both, rows, g.type, room.workspace);
#ifdef ANYCHIP_AMX
  if (gated_product({linear, static_cast<bf16*>(room.inner), g.inner, g.kind})) return;
#endif
  anychip_linear(&linear);
  ActivationArgs activation{g.pool, room.both, room.inner, rows, g.inner, g.type, g.kind};
  anychip_activation(&activation);
}

struct AttentionRoom {  // values between the operators: of a chunk, and of all tokens
  void *normed, *rows, *keys, *q, *mixed, *workspace;
  int64_t bytes;
  AttentionRoom(const AttentionBlockArgs& g, int64_t threads) {
    int64_t size = size_of(g.type), chunk = std::min(g.tokens, CHUNK), width = g.heads * g.dim;
    Room room{static_cast<uint8_t*>(g.workspace)};
    normed = room.take(chunk * g.k * size);
    rows = room.take(chunk * (g.heads + 2 * g.kv_heads) * g.dim * size);
    keys = room.take(chunk * g.kv_heads * g.dim * size);
    q = room.take(g.tokens * width * size);
    mixed = room.take(g.tokens * width * size);
    AttentionArgs attention = attention_of(g, nullptr, nullptr, nullptr);
    int64_t linear = linear_room(chunk, qkv_of(g), output_of(g), threads);
    workspace = room.take(std::max(linear, anychip_attention_workspace(&attention, threads)));
    bytes = room.at - static_cast<uint8_t*>(g.workspace);
  }
};

// Queries of a chunk into room.q; keys and values into the cache.
int32_t project(const AttentionBlockArgs& g, const AttentionRoom& room, int64_t first, int64_t count) {
  int64_t size = size_of(g.type), stride = (g.heads + 2 * g.kv_heads) * g.dim;
  start(g, first, count, room.normed);
  LinearArgs qkv = product(g.pool, qkv_of(g), room.normed, room.rows, count, g.type, room.workspace);
  anychip_linear(&qkv);
  const uint8_t* k = static_cast<const uint8_t*>(room.rows) + g.heads * g.dim * size;
  void* q = static_cast<uint8_t*>(room.q) + first * g.heads * g.dim * size;
  RotaryArgs rotary{g.pool, room.rows, k, g.positions + first, g.cos_sin, q, room.keys, count,
                    g.heads, g.kv_heads, g.dim, g.rotary_dim, g.limit, stride, stride, g.neox, g.type};
  if (int32_t status = anychip_rotary(&rotary)) return status;
  CacheWriteArgs write{g.pool, room.keys, k + g.kv_heads * g.dim * size, g.slots + first, g.k_cache, g.v_cache, count,
                       g.kv_heads, g.dim, g.kv_heads * g.dim, stride, g.pages, g.page_size, g.page_stride,
                       g.slot_stride, g.head_stride, g.type, g.cache_type};
  return anychip_kv_write(&write);
}

}  // namespace
}  // namespace anychip

EXPORT int64_t anychip_mlp_block_workspace(const MlpBlockArgs* args, int64_t threads) {
  return MlpRoom(*args, threads).bytes;
}

EXPORT int32_t anychip_mlp_block(const MlpBlockArgs* args) {
  const MlpBlockArgs& g = *args;
  MlpRoom room(g, g.pool->threads());
  return for_chunks(g.rows, [&](int64_t first, int64_t count) {
    start(g, first, count, room.normed);
    gate(g, room, count);
    void* y = static_cast<uint8_t*>(g.y) + first * g.k * size_of(g.type);
    LinearArgs last = product(g.pool, down_of(g), room.inner, y, count, g.type, room.workspace);
    return anychip_linear(&last);
  });
}

EXPORT int64_t anychip_attention_block_workspace(const AttentionBlockArgs* args, int64_t threads) {
  return AttentionRoom(*args, threads).bytes;
}

EXPORT int32_t anychip_attention_block(const AttentionBlockArgs* args) {
  const AttentionBlockArgs& g = *args;
  if (g.tokens == 0) return OK;
  AttentionRoom room(g, g.pool->threads());
  int32_t status = for_chunks(g.tokens, [&](int64_t first, int64_t count) { return project(g, room, first, count); });
  if (status) return status;
  AttentionArgs attention = attention_of(g, room.q, room.mixed, room.workspace);
  if ((status = anychip_attention(&attention))) return status;
  int64_t size = size_of(g.type), width = g.heads * g.dim;
  return for_chunks(g.tokens, [&](int64_t first, int64_t count) {
    LinearArgs last = product(g.pool, output_of(g),
                              static_cast<uint8_t*>(room.mixed) + first * width * size,
                              static_cast<uint8_t*>(g.y) + first * g.k * size, count, g.type, room.workspace);
    return anychip_linear(&last);
  });
}

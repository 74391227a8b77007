// What crosses from Python: one plain struct a call, fields of 8 bytes each, in this order.
// build.py declares the same fields; sizes are compared when the library is loaded.
// A function returns 0, or the code of an error that map_error() explains.
//
// Types: 0 float32, 1 bfloat16, 2 float16. Weight formats: these, then 3 q8_0, 4 q4_0, 5 q4_1, 6 q4_k,
// 7 q5_k, 8 q6_k, 9 q5_0, 10 q5_1, 11 u4g32, 12 u4g64, 13 u4g128, 14 u8g32, 15 u8g64, 16 u8g128, 17 w8a8
// (int8.h), 18 a table of parts (segments.h).
// A cache may also be 32 int8 or 33 float8_e4m3: scaled.h.
// Strides and sizes are in elements. T tokens or rows.
#pragma once
#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace anychip {

class Pool;

enum Status : int32_t { OK = 0, BAD_TOKEN = 1, BAD_POSITION = 2, BAD_SLOT = 3, BAD_PAGE = 4, BAD_ROW = 5, BAD_EXPERT = 6 };

struct EmbeddingArgs {
  Pool* pool;
  const int32_t* tokens;
  const uint8_t* table;
  void* y;
  int64_t rows, n, k, packed, format, y_type;
  double scale;
};

struct NormArgs {  // residual and sum are null in rms_norm
  Pool* pool;
  const void *x, *residual;
  const float* weight;
  void *y, *sum;
  int64_t rows, k, x_stride, type;
  double eps;
};

struct RotaryArgs {
  Pool* pool;
  const void *q, *k;
  const int32_t* positions;
  const float* cos_sin;
  void *q_out, *k_out;
  int64_t rows, heads, kv_heads, dim, rotary_dim, limit, q_stride, k_stride, neox, type;
};

struct LinearArgs {  // bias may be null; workspace: anychip_linear_workspace() bytes
  Pool* pool;
  const void* x;
  const uint8_t* weight;
  const float* bias;
  void *y, *workspace;
  int64_t rows, n, k, x_stride, y_stride, x_type, format, y_type;
  double scale, cap;
};

struct PackArgs {  // rows of a weight, from `first` on, into its packed layout
  Pool* pool;
  const uint8_t* source;
  uint8_t* target;
  int64_t rows, k, first, format;
};

struct ActivationArgs {  // kind: 0 silu, 1 gelu_tanh
  Pool* pool;
  const void* x;
  void* y;
  int64_t rows, inner, type, kind;
};

struct ClampArgs {  // y = gate * sigmoid(alpha * gate) * (up + 1), both held within the limit
  Pool* pool;
  const void* x;
  void* y;
  int64_t rows, inner, type;
  double alpha, limit;
};

struct RouteArgs {  // bias may be null; scoring: 0 softmax, 1 sigmoid, 2 softmax of the chosen; top2: of a group
  Pool* pool;
  const float *logits, *bias;
  float* weights;
  int32_t* ids;
  void* workspace;
  int64_t rows, experts, k, scoring, renormalize, groups, groups_kept, top2;
  double scale;
};

struct GroupedArgs {  // n: of one expert; count: experts; bias [count][n] may be null
  Pool* pool;
  const void* x;
  const uint8_t* weight;
  const int32_t* experts;
  const float* bias;
  void *y, *workspace;
  int64_t rows, n, k, x_stride, type, format, count;
};

struct ExpertArgs {  // used: experts of a token; kind: 0 silu, 1 gelu_tanh, 2 swiglu_clamp; biases may be null
  Pool* pool;
  const void* x;
  const uint8_t *gate_up, *down;
  const float *gate_up_bias, *down_bias, *weights;
  const int32_t* ids;
  void *y, *workspace;
  int64_t rows, k, inner, used, count, type, gate_up_format, down_format, kind;
  double alpha, limit;
};

struct CacheWriteArgs {  // v and v_cache are null where the cache is latent; strides of the cache: page, slot, head
  Pool* pool;
  const void *k, *v;
  const int32_t* slots;
  void *k_cache, *v_cache;
  int64_t rows, kv_heads, dim, k_stride, v_stride, pages, page_size;
  int64_t page_stride, slot_stride, head_stride, type, cache_type;
};

struct PageCopyArgs {  // v_cache is null where the cache is latent; both in bytes
  Pool* pool;
  uint8_t *k_cache, *v_cache;
  const int32_t *sources, *targets;
  int64_t count, pages, page_bytes, page_stride;
};

struct AttentionArgs {  // sinks may be null; value_dim: elements of a value; workspace: anychip_attention_workspace()
  Pool* pool;
  const void *q, *k_cache, *v_cache;
  const int32_t *page_table, *kv_lens, *positions, *token_rows;
  const float* sinks;
  void *y, *workspace;
  int64_t tokens, heads, kv_heads, dim, rows, table_width, pages, page_size;
  int64_t q_stride, page_stride, slot_stride, head_stride, type, cache_type, causal, window, value_dim;
  double scale, softcap;
};

struct ExpandedArgs {  // whole: keys and values are multiplied out; up: [heads][up_rows][rank], nope rows of keys, then values; dim: of a cached vector
  Pool* pool;
  const void *q, *k_cache, *up;
  const int32_t *page_table, *kv_lens, *positions, *token_rows;
  void *y, *workspace;
  int64_t tokens, heads, dim, rank, nope, up_rows, rows, table_width, pages, page_size;
  int64_t q_stride, page_stride, slot_stride, head_stride, type, cache_type, causal, window, whole;
  double scale, softcap;
};

struct HeadNormArgs {
  Pool* pool;
  const void *q, *k;
  const float *q_weight, *k_weight;
  void *q_out, *k_out;
  int64_t rows, heads, kv_heads, dim, q_stride, k_stride, type;
  double eps;
};

struct MlpBlockArgs {  // residual and biases may be null; kind: 0 silu, 1 gelu_tanh
  Pool* pool;
  const void *x, *residual;
  const float* norm;
  const uint8_t *gate_up, *down;
  const float *gate_up_bias, *down_bias;
  void *y, *sum, *workspace;  // workspace: anychip_mlp_block_workspace() bytes
  int64_t rows, k, inner, x_stride, type, gate_up_format, down_format, kind;
  double eps;
};

struct AttentionBlockArgs {  // workspace: anychip_attention_block_workspace() bytes
  Pool* pool;
  const void *x, *residual;
  const float* norm;
  const uint8_t *qkv, *output;
  const float *qkv_bias, *output_bias, *cos_sin;
  const int32_t* slots;
  void *k_cache, *v_cache;
  const int32_t *page_table, *kv_lens, *positions, *token_rows;
  void *y, *sum, *workspace;
  int64_t tokens, k, x_stride, type, qkv_format, output_format;
  int64_t heads, kv_heads, dim, rotary_dim, limit, neox;
  int64_t rows, table_width, pages, page_size, page_stride, slot_stride, head_stride, cache_type, causal, window;
  double eps, scale, softcap;
};

struct StateArgs {  // B rows, each with its part of the tokens, where its state is read and written
  const int32_t *state_from, *state_to, *cu_q, *positions;
  int64_t rows, tokens, slots;
};

struct ConvArgs {  // weight [channels][width]; state [slots][width - 1][channels]; bias may be null
  Pool* pool;
  const void* x;
  const float *weight, *bias;
  void *state, *y;
  StateArgs s;
  int64_t channels, width, x_stride, type, silu;
};

struct DeltaArgs {  // decay, beta [tokens][heads]; state [slots][heads][key_dim][value_dim]
  Pool* pool;
  const void *q, *k, *v;
  const float *decay, *beta;
  float* state;
  void* y;
  StateArgs s;
  int64_t heads, key_heads, key_dim, value_dim, q_stride, k_stride, v_stride, type;
  double scale;
};

struct RowsArgs {  // strides in bytes. gather: y[i] = table[index[i]]; scatter: table[index[i]] = y[i]
  Pool* pool;
  uint8_t *table, *y;
  const int32_t* index;
  int64_t count, limit, row_bytes, table_stride, y_stride;
};

struct LogitsArgs {  // softmax, log_softmax (kind 1), greedy
  Pool* pool;
  const float* logits;
  void* y;
  int64_t rows, n, kind;
};

struct SampleArgs {  // workspace: 2 * threads * n floats
  Pool* pool;
  const float *logits, *temperature;
  const int32_t* top_k;
  const float *top_p, *min_p, *noise;
  int32_t* tokens;
  float* workspace;
  int64_t rows, n;
};

struct MaskArgs {  // y may be logits; a bit a token, ceil(n / 32) words a row
  Pool* pool;
  const float* logits;
  const int32_t* mask;
  float* y;
  int64_t rows, n;
};

struct AdjustArgs {  // y may be logits; limit: rows of them
  Pool* pool;
  const float* logits;
  const int32_t *rows, *ids;
  const float *repetition, *bias;
  float* y;
  int64_t count, limit, n;
};

struct LogprobArgs {
  Pool* pool;
  const float* logits;
  const int32_t *sampled, *given;
  float* logprob;
  int32_t* rank;
  int64_t rows, n;
};

struct TopArgs {  // top: how many a row
  Pool* pool;
  const float* logits;
  float* values;
  int32_t* ids;
  int64_t rows, n, top;
};

struct ElementArgs {  // kind: 0 convert a, 1 add, 2 multiply; all contiguous
  Pool* pool;
  const void *a, *b;
  void* y;
  int64_t count, a_type, y_type, kind;
};

}  // namespace anychip

// What the fused blocks call of the other files.
EXPORT int32_t anychip_norm(const anychip::NormArgs* args);
EXPORT int32_t anychip_linear(const anychip::LinearArgs* args);
EXPORT int64_t anychip_linear_workspace(int64_t rows, int64_t k, int64_t threads);  // but of tables of parts
EXPORT int64_t anychip_linear_workspace_of(int64_t format, int64_t rows, int64_t k, int64_t threads);
EXPORT int32_t anychip_activation(const anychip::ActivationArgs* args);
EXPORT int32_t anychip_swiglu_clamp(const anychip::ClampArgs* args);
EXPORT int32_t anychip_elements(const anychip::ElementArgs* args);
EXPORT int32_t anychip_rotary(const anychip::RotaryArgs* args);
EXPORT int32_t anychip_kv_write(const anychip::CacheWriteArgs* args);
EXPORT int32_t anychip_attention(const anychip::AttentionArgs* args);
EXPORT int64_t anychip_attention_workspace(const anychip::AttentionArgs* args, int64_t threads);

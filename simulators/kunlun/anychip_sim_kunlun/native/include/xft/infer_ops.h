// libapiinfer: operators of language models, re-declared from FastDeploy's call sites. abi_llm.tsv
// says for each where it was seen and what is a guess.
#pragma once

#include <cstdint>
#include <string>

#include "xpu/xdnn_types.h"

namespace infer_ops {

namespace api = baidu::xpu::api;

// residual_out = x + residual, rounded to T; out = rms_norm(residual_out) * weight. bias, var and
// max are null; use_sdnn asks for another unit of the chip and changes no result here.
template <typename T, typename TW>
DLL_EXPORT int add_rms_layer_norm(api::Context* ctx, const T* x, const T* residual, T* out,
                                  int64_t m, int64_t n, float eps, const TW* weight,
                                  const TW* bias, float* var, T* residual_out, float* max,
                                  bool use_sdnn);

// Write the tokens of k and v [token_num, kv_head_num, head_dim] at their slots of the caches
// [num_blocks, kv_head_num, block_size, head_dim]: slot s is row s % block_size of block
// s / block_size, -1 writes nothing. Scales are null where the cache is not quantized.
template <typename TX, typename TC, typename TID>
DLL_EXPORT int store_paged_kv_cache(api::Context* ctx, const TX* k, const TX* v, TC* key_cache,
                                    TC* value_cache, const TID* slot_mapping, const float* k_scale,
                                    const float* v_scale, int64_t token_num, int64_t kv_head_num,
                                    int64_t head_dim, int64_t num_blocks, int64_t block_size);

// Split qkv [tokens, (head_num + 2 * kv_head_num) * head_dim] into q, k and v, rotate q and k by
// neighbours ("rope") or by halves ("neox"), and write k and v into the pages. rotary_pos_emb is
// [2, emb_batch_size = 1, max_seqlen, 1, width]: cosines, then sines, width head_dim, with
// pos_emb_type "HALF_HEAD_DIM" half of it. Row real_batch[b] of block_table [max_batch_size,
// max_blocks_per_seq] belongs to sequence b. Layouts: "BLHD" rows, "HLD" pages.
// Encoder: tokens seq_lod[b] .. seq_lod[b + 1] stand at positions from start_tokens[b] on (0
// where empty). Decoder: one token a sequence, at position seq_lod[b] - 1; k and v may be null.
// Scales and zeros are null where the cache is not quantized.
template <typename TX, typename TROPE, typename TC, typename TID, typename TSCALE>
DLL_EXPORT int split_rope_cache_kv_encoder(
    api::Context* ctx, const TX* qkv, const TROPE* rotary_pos_emb, const TID* block_table, TX* q,
    TX* k, TX* v, TC* key_cache, TC* value_cache, const api::VectorParam<int32_t>& seq_lod,
    const api::VectorParam<int32_t>& real_batch, const api::VectorParam<int32_t>& start_tokens,
    int64_t batch_size, int64_t emb_batch_size, int64_t max_seqlen, int64_t head_num,
    int64_t kv_head_num, int64_t head_dim, int64_t max_batch_size, int64_t block_size,
    int64_t max_blocks_per_seq, std::string qkv_layout, std::string page_layout,
    std::string pos_emb_type, const float* k_cache_scale_inv, const float* v_cache_scale_inv,
    const TSCALE* intx_k_pc_scale, const TSCALE* intx_v_pc_scale, const TSCALE* intx_k_pc_zero,
    const TSCALE* intx_v_pc_zero, bool rope_3d = false);

template <typename TX, typename TROPE, typename TC, typename TSCALE, typename TID>
DLL_EXPORT int split_rope_cache_kv_decoder(
    api::Context* ctx, const TX* qkv, const TROPE* rotary_pos_emb, const TID* block_table, TX* q,
    TX* k, TX* v, TC* key_cache, TC* value_cache, const api::VectorParam<int32_t>& seq_lod,
    const api::VectorParam<int32_t>& real_batch, int64_t batch_size, int64_t emb_batch_size,
    int64_t max_seqlen, int64_t head_num, int64_t kv_head_num, int64_t head_dim,
    int64_t max_batch_size, int64_t block_size, int64_t max_blocks_per_seq, std::string qkv_layout,
    std::string page_layout, std::string pos_emb_type, const TSCALE* k_cache_scale_inv,
    const TSCALE* v_cache_scale_inv, const TSCALE* k_cache_zp, const TSCALE* v_cache_zp,
    bool b_c8_pc, bool rope_3d = false);

template <typename TX, typename TROPE, typename TC, typename TID>
DLL_EXPORT int split_neox_cache_kv_encoder(
    api::Context* ctx, const TX* qkv, const TROPE* rotary_pos_emb, const TID* block_table, TX* q,
    TX* k, TX* v, TC* key_cache, TC* value_cache, const api::VectorParam<int32_t>& seq_lod,
    const api::VectorParam<int32_t>& real_batch, int64_t batch_size, int64_t emb_batch_size,
    int64_t max_seqlen, int64_t head_num, int64_t kv_head_num, int64_t head_dim,
    int64_t max_batch_size, int64_t block_size, int64_t max_blocks_per_seq, std::string qkv_layout,
    std::string page_layout, std::string pos_emb_type, const float* k_cache_scale_inv,
    const float* v_cache_scale_inv, const float* intx_k_pc_scale, const float* intx_v_pc_scale,
    const float* intx_k_pc_zero, const float* intx_v_pc_zero, bool rope_3d = false);

template <typename TX, typename TROPE, typename TC, typename TSCALE, typename TID>
DLL_EXPORT int split_neox_cache_kv_decoder(
    api::Context* ctx, const TX* qkv, const TROPE* rotary_pos_emb, const TID* block_table, TX* q,
    TX* k, TX* v, TC* key_cache, TC* value_cache, const api::VectorParam<int32_t>& seq_lod,
    const api::VectorParam<int32_t>& real_batch, int64_t batch_size, int64_t emb_batch_size,
    int64_t max_seqlen, int64_t head_num, int64_t kv_head_num, int64_t head_dim,
    int64_t max_batch_size, int64_t block_size, int64_t max_blocks_per_seq, std::string qkv_layout,
    std::string page_layout, std::string pos_emb_type, const TSCALE* k_cache_scale_inv,
    const TSCALE* v_cache_scale_inv, const TSCALE* k_cache_zp, const TSCALE* v_cache_zp,
    bool rope_3d = false);

// Rows of x [m, n] to int8: y = round(x * 127 / max), scale_out [m] the row's max, not max / 127.
// scale_in is null: the max is the row's own.
template <typename TX, typename TSCALE, typename TY>
DLL_EXPORT int quant2d_per_token(api::Context* ctx, const TX* x, const TSCALE* scale_in, TY* y,
                                 TSCALE* scale_out, int64_t m, int64_t n);

}  // namespace infer_ops

// libxpu_flash_attention: attention kernels of XRE 5, re-declared from call sites. abi_llm.tsv
// says for each where it was seen and what is a guess.
#pragma once

#include <cstdint>

#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace xfa {

// out = softmax(softmax_scale * q.k^T + mask) . v for a ragged batch; q, k, v and out are
// [tokens, heads, dim], query head h reads head h / (head_num / head_num_k). Sequence b has
// queries lod_seqlens_q[b] .. [b + 1] and keys lod_seqlens_k[b] .. [b + 1]; with is_causal the
// last query sees the last key. softmax_scale 0 is 1 / sqrt(head_dim). softmax_lse [batch,
// head_num, max_seqlen_q] gets the natural logarithms of the sums. TGEMM computes q.k and p.v.
template <typename T, typename TACCUM, typename TGEMM, typename TID>
DLL_EXPORT int mha_varlen_fwd(
    api::Context* ctx, const T* q, const T* k, const T* v, T* out, TACCUM* softmax_lse,
    const api::VectorParam<TID>& lod_seqlens_q, const api::VectorParam<TID>& lod_seqlens_k,
    int64_t max_seqlen_q, int64_t max_seqlen_k, int64_t head_num, int64_t head_num_k,
    int64_t head_dim, const float softmax_scale = 0.0f, const float p_dropout = 0.0f,
    int seed = 0x45678901, const bool is_causal = true, const TACCUM* attn_mask = nullptr,
    const TACCUM* bias = nullptr, const float* q_maxptr = nullptr, const float* k_maxptr = nullptr,
    const float* v_maxptr = nullptr, float* o_maxptr = nullptr);

// Attention of `qlen` last tokens of each sequence over its pages: q and out are [sequences *
// qlen, head_num, head_dim], caches [blocks, kv_head_num, block_size, head_dim], row
// valid_batch[b] of block_tables [batch_num, max_blocks_per_seq] is that of sequence b, which has
// seq_lengths[b] tokens, these included. k and v are null. A window is not applied: what
// max_window_size says makes no difference.
template <typename TQ, typename TKV, typename TO, typename TGEMM_QK, typename TGEMM_PV,
          typename TACCUM, typename TID, int QUANT_MODE>
DLL_EXPORT int speculative_attention_decoder(
    api::Context* ctx, TO* out, const TQ* q, const TQ* k, const TQ* v, const TKV* k_cache,
    const TKV* v_cache, const TID* block_tables, const api::VectorParam<TID>& seq_lengths,
    const api::VectorParam<TID>& valid_batch, int64_t batch_num, int64_t qlen, int64_t max_seq_len,
    int64_t head_num, int64_t head_dim, int64_t kv_head_num, const TACCUM* attn_mask, float scale,
    int64_t block_size, int64_t max_blocks_per_seq, int64_t max_window_size = -1,
    const float* q_maxptr = nullptr, const float* k_cache_maxptr = nullptr,
    const float* v_cache_maxptr = nullptr, float* o_maxptr = nullptr, int64_t vo_head_dim = -1);

}  // namespace xfa
}  // namespace xpu
}  // namespace baidu

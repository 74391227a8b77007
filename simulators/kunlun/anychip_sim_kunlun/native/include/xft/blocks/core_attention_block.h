// libxft_blocks: attention blocks, re-declared from FastDeploy's call sites (with the vendor's
// spelling). abi_llm.tsv says for each where it was seen and what is a guess.
#pragma once

#include <cstdint>

#include "../core/context.h"
#include "../core/param.h"

namespace baidu {
namespace xpu {
namespace xftblock {

// Causal attention of whole sequences, scores multiplied by 1 / sqrt(head_dim): there is no scale,
// window or soft cap. q and out are [tokens, head_num * head_dim], sequence b being rows
// usual_lod_vp[b] .. [b + 1].
// param.prefill_len -1: k and v are [tokens, kv_head_num * head_dim] of the same sequences
// (kv_lod_vp equals usual_lod_vp). Otherwise prefill_len is max_valid_seqlen, and k and v are
// caches [blocks, kv_head_num, block_size, head_dim] that hold the new tokens already: sequence b
// has kv_lod_vp[b + 1] - kv_lod_vp[b] of them on the pages of row b of page_attn.block_table.
// TC is the type of k and v; TGEMM computes the products.
template <typename TX, typename TC, typename TGEMM>
DLL_EXPORT int xft_context_core_attenion_block(XFTContext* ctx, Tensor* q, Tensor* k, Tensor* v,
                                               Tensor* out, TransformerParam& param,
                                               TransformerVsl& vsl);

// One token a sequence over the pages, scores multiplied by 1 / sqrt(head_dim); fewer than 1024
// sequences. q and out are [sequences, head_num * head_dim]; usual_lod_vp holds the lengths with
// this token, slot_mapping_vp (never null) the rows of page_attn.block_table. A window is ignored.
template <typename TX, typename TC, typename TGEMM>
DLL_EXPORT int xft_decoder_core_attenion_block(XFTContext* ctx, Tensor* q, Tensor* k_cache,
                                               Tensor* v_cache, Tensor* out,
                                               TransformerParam& param, TransformerVsl& vsl);

// qkv [token_num, (head_num + 2 * kv_head_num) * head_dim] into its three parts.
template <typename T>
DLL_EXPORT int split_qkv_block(XFTContext* ctx, Tensor* qkv, Tensor* q, Tensor* k, Tensor* v,
                               int64_t token_num, int64_t head_num, int64_t kv_head_num,
                               int64_t head_dim);

}  // namespace xftblock
}  // namespace xpu
}  // namespace baidu

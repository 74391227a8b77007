// Fused operators of libxpuapi, as far as language models need them: products, norms with a sum,
// rotation, writing the paged cache. abi_llm.tsv says where each was seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xpu/refactor/util/int8_wo_t.h"
#include "xpu/xdnn_types.h"

namespace baidu {
namespace xpu {
namespace api {

// y [m, n] = act(alpha * x.w + beta * y + bias); x is [m, k], with x_trans [k, m]; w is [k, n],
// with w_trans [n, k]; `ld*` elements from row to row. bias [n] is float.
//
// TGEMM is what the product is computed in, whatever the tensors hold: float, float16, tfloat32,
// or whole numbers (int16_t, int32_t, int_with_ll_t, int8_t) of which the largest stands for the
// operand's largest absolute value. A `maxptr` points to device floats whose maximum is that
// value; where it is null it is found first. An int8 operand is q * max / 127: its unit is the
// maximum, not a scale. y_maxptr gets the largest |y|.
template <typename TX, typename TW, typename TY, typename TGEMM>
DLL_EXPORT int fc_fusion(Context* ctx, const TX* x, const TW* w, TY* y, int64_t m, int64_t n,
                         int64_t k, bool x_trans, bool w_trans, const float* x_maxptr,
                         const float* w_maxptr, float* y_maxptr, int64_t ldx, int64_t ldw,
                         int64_t ldy, float alpha, float beta, const float* bias,
                         const Activation_t& act, const float* scale = nullptr,
                         const float* scale_x = nullptr, const float* scale_w = nullptr);

// Weights of 8 bits: w is q * sacle[row] / 127, one maximum an output channel (the vendor's
// spelling).
template <typename TX, typename TW, typename TY, typename TGEMM>
DLL_EXPORT int gpt_fc_fusion(Context* ctx, const TX* x, const TW* w, TY* y, int64_t m, int64_t n,
                             int64_t k, bool x_trans, bool w_trans, const float* x_maxptr,
                             const float* w_maxptr, float* y_maxptr, int64_t ldx, int64_t ldw,
                             int64_t ldy, float alpha, float beta, const float* bias,
                             const Activation_t& act, const float* sacle = nullptr);

// z_add = x + y, rounded to T; z = rms_layer_norm(z_add). z_add, var and z_max may be null.
template <typename T>
DLL_EXPORT int add_rms_layer_norm_fusion(Context* ctx, const T* x, const T* y, T* z, int64_t m,
                                         int64_t n, float eps, const float* scale,
                                         const float* bias, float* var = nullptr,
                                         T* z_add = nullptr, float* z_max = nullptr);

// Rotation of q [batch, seq, heads, dim] and k (null, or k_group_num heads) by rows of sin and
// cos [batch, seq, 1, pe] at full width: element i pairs with i + pe/2, what is beyond pe is
// copied. `freqs` is null, `strides` empty and `offset` 0 here, since no source tells their use;
// rotary_base counts where sin and cos are null, which this simulator refuses.
template <typename T, typename TSC>
DLL_EXPORT int rotary_embedding_half(Context* ctx, const T* q, const T* k, const TSC* sin,
                                     const TSC* cos, const TSC* freqs, T* q_emb, T* k_emb,
                                     const std::vector<int64_t>& t_shape,
                                     const std::vector<int64_t>& freqs_shape,
                                     const std::vector<int64_t>& strides = {}, int64_t offset = 0,
                                     std::string layout = "BLHD", int64_t k_group_num = -1,
                                     float rotary_base = 10000.0f);

// The same with neighbours 2i and 2i + 1 paired, over the whole dim alone.
template <typename T, typename TSC>
DLL_EXPORT int rotary_embedding_everytwo(Context* ctx, const T* q, const T* k, const TSC* sin,
                                         const TSC* cos, T* q_emb, T* k_emb,
                                         const std::vector<int64_t>& t_shape,
                                         const std::vector<int64_t>& freqs_shape,
                                         int64_t k_group_num = -1, float rotary_base = 10000.0f);

// Rotation by halves with sin and cos in the type of the data. Strides are those of contiguous
// tensors here.
template <typename T>
DLL_EXPORT int rotary_no_freqs_embedding_v2(Context* ctx, const T* t, const T* sin, const T* cos,
                                            T* out, const std::vector<int64_t>& t_shape,
                                            const std::vector<int64_t>& freqs_shape,
                                            const std::vector<int64_t>& t_stride,
                                            const std::vector<int64_t>& freqs_stride);
template <typename T>
DLL_EXPORT int rotary_no_freqs_qk_embedding_v2(Context* ctx, const T* q, const T* k, const T* sin,
                                               const T* cos, T* q_emb, T* k_emb,
                                               const std::vector<int64_t>& t_shape,
                                               const std::vector<int64_t>& freqs_shape,
                                               const std::vector<int64_t>& t_stride,
                                               const std::vector<int64_t>& freqs_stride,
                                               int64_t k_group_num = -1);

// Rotation of a ragged batch: token t of sequence b stands at pos_emb_offset[b] + t - seq_lod[b]
// (offset 0 where empty). rotary_pos_emb is [2, batch, max_seqlen, 1, width]: cosines, then
// sines. pos_emb_type "NORMAL": width is the head's; "HALF_HEAD_DIM": half of it. `batch` is 1:
// one table for all. The first pairs neighbours, the second (neox) pairs halves.
template <typename T, typename TR, typename TID>
DLL_EXPORT int vsl_rotary_embedding(
    Context* ctx, const T* q, const T* k, const TR* rotary_pos_emb, T* q_emb, T* k_emb,
    const VectorParam<TID>& seq_lod, int batch, int max_seqlen, int head_num, int head_dims,
    std::string rotary_embedding_layout = "BLHD",
    const VectorParam<TID>& pos_emb_offset = {nullptr, 0, nullptr},
    std::string pos_emb_type = "NORMAL", int k_group_num = -1);
template <typename T, typename TR, typename TID>
DLL_EXPORT int vsl_rotary_neox_embedding(
    Context* ctx, const T* q, const T* k, const TR* rotary_pos_emb, T* q_emb, T* k_emb,
    const VectorParam<TID>& seq_lod, int batch, int max_seqlen, int head_num, int head_dims,
    std::string rotary_embedding_layout = "BLHD",
    const VectorParam<TID>& pos_emb_offset = {nullptr, 0, nullptr},
    std::string pos_emb_type = "NORMAL", int k_group_num = -1, int pack_size = 2);

// Write x [tokens, kv heads, dim] ("BLHD") into the pages y [blocks, kv heads, block_size, dim]
// ("HLD"). Tokens kv_seq_lod[b] .. kv_seq_lod[b + 1] go to positions from start_tokens[b] on, by
// row real_batch[b] of block_table [max_seq_num, max_num_blocks_per_seq].
template <typename TI, typename TO, typename TID>
DLL_EXPORT int reshape_cached_kv(Context* ctx, const TI* x, TO* y, const TID* block_table,
                                 const VectorParam<int32_t>& kv_seq_lod,
                                 const VectorParam<int32_t>& start_tokens,
                                 const VectorParam<int32_t>& real_batch, int64_t batch_size,
                                 int64_t kv_head_num, int64_t head_dim, int64_t max_seq_num,
                                 int64_t block_size, int64_t max_num_blocks_per_seq,
                                 const std::string& qkv_layout, const std::string& page_layout,
                                 const float* scale = nullptr, float* batch_max_ptrs = nullptr,
                                 float* max_ptrs = nullptr);

}  // namespace api
}  // namespace xpu
}  // namespace baidu

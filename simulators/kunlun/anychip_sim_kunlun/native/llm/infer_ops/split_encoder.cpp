// Splitting, rotating and caching whole sequences, or what was added to them.
#include "llm/infer_ops/split_cache.h"

namespace infer_ops {

namespace {

template <typename T, typename TC>
int encode(llm::Call& call, Split<T, TC> s, const Told& told,
           const api::VectorParam<int32_t>& seq_lod, const api::VectorParam<int32_t>& real_batch,
           const api::VectorParam<int32_t>& start_tokens) {
    told_rules(call, told);
    split_rules(call, s);
    const auto lod = call.pair(seq_lod, told.batch_size + 1, "seq_lod");
    const auto rows = call.pair(real_batch, told.batch_size, "real_batch");
    llm::Pair<int32_t> starts;
    if (start_tokens.len != 0) {
        starts = call.pair(start_tokens, told.batch_size, "start_tokens");
    }
    call.rule(llm::is_lod(lod.host), "seq_lod is no list of offsets");
    for (int64_t b = 0; call.holds() && b < told.batch_size; ++b) {
        s.layout.starts.push_back(starts.host.empty() ? 0 : starts.host[b]);
        s.layout.counts.push_back(lod.host[b + 1] - lod.host[b]);
        s.layout.rows.push_back(rows.host[b]);
        s.layout.tokens = lod.host[b + 1];
    }
    layout_rules(call, s);
    return call.run([=] {
        lod.verify();
        rows.verify();
        starts.verify();
        split_all(s);
    });
}

}  // namespace

template <typename TX, typename TROPE, typename TC, typename TID, typename TSCALE>
int split_rope_cache_kv_encoder(
    api::Context* ctx, const TX* qkv, const TROPE* rotary_pos_emb, const TID* block_table, TX* q,
    TX* k, TX* v, TC* key_cache, TC* value_cache, const api::VectorParam<int32_t>& seq_lod,
    const api::VectorParam<int32_t>& real_batch, const api::VectorParam<int32_t>& start_tokens,
    int64_t batch_size, int64_t emb_batch_size, int64_t max_seqlen, int64_t head_num,
    int64_t kv_head_num, int64_t head_dim, int64_t max_batch_size, int64_t block_size,
    int64_t max_blocks_per_seq, std::string qkv_layout, std::string page_layout,
    std::string pos_emb_type, const float* k_cache_scale_inv, const float* v_cache_scale_inv,
    const TSCALE* intx_k_pc_scale, const TSCALE* intx_v_pc_scale, const TSCALE* intx_k_pc_zero,
    const TSCALE* intx_v_pc_zero, bool rope_3d) {
    llm::Call call(ctx, "infer_ops::split_rope_cache_kv_encoder");
    const bool quantized = k_cache_scale_inv || v_cache_scale_inv || intx_k_pc_scale ||
                           intx_v_pc_scale || intx_k_pc_zero || intx_v_pc_zero;
    const Told told{batch_size,     emb_batch_size, max_seqlen,  head_num,    kv_head_num,
                    head_dim,       max_batch_size, block_size,  max_blocks_per_seq,
                    qkv_layout,     page_layout,    pos_emb_type, quantized,  rope_3d};
    const auto s = split_of(told, qkv, rotary_pos_emb, block_table, q, k, v, key_cache,
                            value_cache, llm::Pairing::kNeighbours);
    call.device(k, "k");
    return encode(call, s, told, seq_lod, real_batch, start_tokens);
}

template <typename TX, typename TROPE, typename TC, typename TID>
int split_neox_cache_kv_encoder(
    api::Context* ctx, const TX* qkv, const TROPE* rotary_pos_emb, const TID* block_table, TX* q,
    TX* k, TX* v, TC* key_cache, TC* value_cache, const api::VectorParam<int32_t>& seq_lod,
    const api::VectorParam<int32_t>& real_batch, int64_t batch_size, int64_t emb_batch_size,
    int64_t max_seqlen, int64_t head_num, int64_t kv_head_num, int64_t head_dim,
    int64_t max_batch_size, int64_t block_size, int64_t max_blocks_per_seq, std::string qkv_layout,
    std::string page_layout, std::string pos_emb_type, const float* k_cache_scale_inv,
    const float* v_cache_scale_inv, const float* intx_k_pc_scale, const float* intx_v_pc_scale,
    const float* intx_k_pc_zero, const float* intx_v_pc_zero, bool rope_3d) {
    llm::Call call(ctx, "infer_ops::split_neox_cache_kv_encoder");
    const bool quantized = k_cache_scale_inv || v_cache_scale_inv || intx_k_pc_scale ||
                           intx_v_pc_scale || intx_k_pc_zero || intx_v_pc_zero;
    const Told told{batch_size,     emb_batch_size, max_seqlen,  head_num,    kv_head_num,
                    head_dim,       max_batch_size, block_size,  max_blocks_per_seq,
                    qkv_layout,     page_layout,    pos_emb_type, quantized,  rope_3d};
    const auto s = split_of(told, qkv, rotary_pos_emb, block_table, q, k, v, key_cache,
                            value_cache, llm::Pairing::kHalves);
    call.device(k, "k");
    return encode(call, s, told, seq_lod, real_batch, {nullptr, 0, nullptr});
}

#define ENCODERS(T, TSCALE)                                                                    \
    template DLL_EXPORT int split_rope_cache_kv_encoder<T, float, T, int, TSCALE>(             \
        api::Context*, const T*, const float*, const int*, T*, T*, T*, T*, T*,                 \
        const api::VectorParam<int32_t>&, const api::VectorParam<int32_t>&,                    \
        const api::VectorParam<int32_t>&, int64_t, int64_t, int64_t, int64_t, int64_t,         \
        int64_t, int64_t, int64_t, int64_t, std::string, std::string, std::string,             \
        const float*, const float*, const TSCALE*, const TSCALE*, const TSCALE*,               \
        const TSCALE*, bool);                                                                  \
    template DLL_EXPORT int split_neox_cache_kv_encoder<T, float, T, int>(                     \
        api::Context*, const T*, const float*, const int*, T*, T*, T*, T*, T*,                 \
        const api::VectorParam<int32_t>&, const api::VectorParam<int32_t>&, int64_t, int64_t,  \
        int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, std::string,            \
        std::string, std::string, const float*, const float*, const float*, const float*,      \
        const float*, const float*, bool);

ENCODERS(bfloat16, bfloat16)
ENCODERS(float16, float16)
ENCODERS(float, float)

}  // namespace infer_ops

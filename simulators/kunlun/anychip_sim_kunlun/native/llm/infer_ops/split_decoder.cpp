// Splitting, rotating and caching one token a sequence.
#include "llm/infer_ops/split_cache.h"

namespace infer_ops {

namespace {

template <typename T, typename TC>
int decode(llm::Call& call, Split<T, TC> s, const Told& told,
           const api::VectorParam<int32_t>& seq_lod, const api::VectorParam<int32_t>& real_batch) {
    told_rules(call, told);
    split_rules(call, s);
    const auto lengths = call.pair(seq_lod, told.batch_size, "seq_lod");
    const auto rows = call.pair(real_batch, told.batch_size, "real_batch");
    for (int64_t b = 0; call.holds() && b < told.batch_size; ++b) {
        s.layout.starts.push_back(lengths.host[b] - 1);
        s.layout.counts.push_back(1);
        s.layout.rows.push_back(rows.host[b]);
    }
    s.layout.tokens = told.batch_size;
    layout_rules(call, s);
    return call.run([=] {
        lengths.verify();
        rows.verify();
        split_all(s);
    });
}

}  // namespace

template <typename TX, typename TROPE, typename TC, typename TSCALE, typename TID>
int split_rope_cache_kv_decoder(
    api::Context* ctx, const TX* qkv, const TROPE* rotary_pos_emb, const TID* block_table, TX* q,
    TX* k, TX* v, TC* key_cache, TC* value_cache, const api::VectorParam<int32_t>& seq_lod,
    const api::VectorParam<int32_t>& real_batch, int64_t batch_size, int64_t emb_batch_size,
    int64_t max_seqlen, int64_t head_num, int64_t kv_head_num, int64_t head_dim,
    int64_t max_batch_size, int64_t block_size, int64_t max_blocks_per_seq, std::string qkv_layout,
    std::string page_layout, std::string pos_emb_type, const TSCALE* k_cache_scale_inv,
    const TSCALE* v_cache_scale_inv, const TSCALE* k_cache_zp, const TSCALE* v_cache_zp,
    bool b_c8_pc, bool rope_3d) {
    llm::Call call(ctx, "infer_ops::split_rope_cache_kv_decoder");
    const bool quantized =
        b_c8_pc || k_cache_scale_inv || v_cache_scale_inv || k_cache_zp || v_cache_zp;
    const Told told{batch_size,     emb_batch_size, max_seqlen,  head_num,    kv_head_num,
                    head_dim,       max_batch_size, block_size,  max_blocks_per_seq,
                    qkv_layout,     page_layout,    pos_emb_type, quantized,  rope_3d};
    const auto s = split_of(told, qkv, rotary_pos_emb, block_table, q, k, v, key_cache,
                            value_cache, llm::Pairing::kNeighbours);
    return decode(call, s, told, seq_lod, real_batch);
}

template <typename TX, typename TROPE, typename TC, typename TSCALE, typename TID>
int split_neox_cache_kv_decoder(
    api::Context* ctx, const TX* qkv, const TROPE* rotary_pos_emb, const TID* block_table, TX* q,
    TX* k, TX* v, TC* key_cache, TC* value_cache, const api::VectorParam<int32_t>& seq_lod,
    const api::VectorParam<int32_t>& real_batch, int64_t batch_size, int64_t emb_batch_size,
    int64_t max_seqlen, int64_t head_num, int64_t kv_head_num, int64_t head_dim,
    int64_t max_batch_size, int64_t block_size, int64_t max_blocks_per_seq, std::string qkv_layout,
    std::string page_layout, std::string pos_emb_type, const TSCALE* k_cache_scale_inv,
    const TSCALE* v_cache_scale_inv, const TSCALE* k_cache_zp, const TSCALE* v_cache_zp,
    bool rope_3d) {
    llm::Call call(ctx, "infer_ops::split_neox_cache_kv_decoder");
    const bool quantized = k_cache_scale_inv || v_cache_scale_inv || k_cache_zp || v_cache_zp;
    const Told told{batch_size,     emb_batch_size, max_seqlen,  head_num,    kv_head_num,
                    head_dim,       max_batch_size, block_size,  max_blocks_per_seq,
                    qkv_layout,     page_layout,    pos_emb_type, quantized,  rope_3d};
    const auto s = split_of(told, qkv, rotary_pos_emb, block_table, q, k, v, key_cache,
                            value_cache, llm::Pairing::kHalves);
    return decode(call, s, told, seq_lod, real_batch);
}

#define DECODER(NAME, T, TSCALE)                                                              \
    template DLL_EXPORT int NAME<T, float, T, TSCALE, int>(                                   \
        api::Context*, const T*, const float*, const int*, T*, T*, T*, T*, T*,                \
        const api::VectorParam<int32_t>&, const api::VectorParam<int32_t>&, int64_t, int64_t, \
        int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, std::string,           \
        std::string, std::string, const TSCALE*, const TSCALE*, const TSCALE*, const TSCALE*, \
        bool
#define DECODERS(T, TSCALE)                                     \
    DECODER(split_rope_cache_kv_decoder, T, TSCALE), bool);     \
    DECODER(split_neox_cache_kv_decoder, T, TSCALE));

DECODERS(bfloat16, float)
DECODERS(float16, float)
DECODERS(float, float)

}  // namespace infer_ops

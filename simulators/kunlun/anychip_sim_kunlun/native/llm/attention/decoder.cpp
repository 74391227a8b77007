// Attention of the last tokens of each sequence over its pages.
#include "llm/engine/paged_call.h"
#include "xhpc/xfa/flash_api.h"

namespace baidu {
namespace xpu {
namespace xfa {

namespace llm = xpusim::llm;

namespace {

llm::PagedBatch batch_of(const std::vector<int32_t>& lengths, const std::vector<int32_t>& rows,
                         int64_t qlen) {
    llm::PagedBatch batch{{}, {}, {}, {}, static_cast<int64_t>(lengths.size()) * qlen};
    for (size_t b = 0; b < lengths.size(); ++b) {
        batch.q_firsts.push_back(static_cast<int64_t>(b) * qlen);
        batch.q_counts.push_back(qlen);
        batch.kv_counts.push_back(lengths[b]);
        batch.rows.push_back(rows[b]);
    }
    return batch;
}

}  // namespace

template <typename TQ, typename TKV, typename TO, typename TGEMM_QK, typename TGEMM_PV,
          typename TACCUM, typename TID, int QUANT_MODE>
int speculative_attention_decoder(
    api::Context* ctx, TO* out, const TQ* q, const TQ* k, const TQ* v, const TKV* k_cache,
    const TKV* v_cache, const TID* block_tables, const api::VectorParam<TID>& seq_lengths,
    const api::VectorParam<TID>& valid_batch, int64_t batch_num, int64_t qlen, int64_t max_seq_len,
    int64_t head_num, int64_t head_dim, int64_t kv_head_num, const TACCUM* attn_mask, float scale,
    int64_t block_size, int64_t max_blocks_per_seq, int64_t, const float* q_maxptr,
    const float* k_cache_maxptr, const float* v_cache_maxptr, float* o_maxptr,
    int64_t vo_head_dim) {
    llm::Call call(ctx, "xfa::speculative_attention_decoder");
    llm::PagedCall<TQ, TKV> p{q, k_cache, v_cache, out, {block_tables, batch_num,
                              max_blocks_per_seq}, {0, kv_head_num, block_size, head_dim},
                              {head_num, kv_head_num, head_dim, scale, true,
                               llm::compute_of<TGEMM_QK>()}, {}, {}};
    call.device(q, "q").device(k_cache, "k_cache").device(v_cache, "v_cache").device(out, "out");
    call.device(block_tables, "block_tables");
    llm::attention_rules(call, p.shape);
    call.positive(max_seq_len, "max_seq_len");
    llm::page_rules(call, p.pages, p.table);
    call.served(k == nullptr && v == nullptr && attn_mask == nullptr, "k, v, mask");
    call.served(!q_maxptr && !k_cache_maxptr && !v_cache_maxptr && !o_maxptr, "maxima");
    call.served(vo_head_dim == -1 || vo_head_dim == head_dim, "another size of values");
    call.rule(seq_lengths.len > 0 && seq_lengths.len < 1024, "1 to 1023 sequences");
    call.shape({seq_lengths.len, qlen, head_num, head_dim}, "q");
    const auto lengths = call.pair(seq_lengths, seq_lengths.len, "seq_lengths");
    const auto rows = call.pair(valid_batch, seq_lengths.len, "valid_batch");
    if (call.holds()) {
        p.batch = batch_of(lengths.host, rows.host, qlen);
        call.rule(llm::batch_fits(p.batch, p.table, p.pages), "lengths, rows and pages");
        for (int32_t length : lengths.host) {
            call.rule(length <= max_seq_len, "longer than max_seq_len");
        }
    }
    p.lists = {lengths, rows};
    return llm::run_pages(call, p);
}

#define DECODER(T, TGEMM)                                                                     \
    template DLL_EXPORT int                                                                   \
    speculative_attention_decoder<T, T, T, TGEMM, TGEMM, float, int32_t, 0>(                  \
        api::Context*, T*, const T*, const T*, const T*, const T*, const T*, const int32_t*,  \
        const api::VectorParam<int32_t>&, const api::VectorParam<int32_t>&, int64_t, int64_t, \
        int64_t, int64_t, int64_t, int64_t, const float*, float, int64_t, int64_t, int64_t,   \
        const float*, const float*, const float*, float*, int64_t);

DECODER(bfloat16, tfloat32)
DECODER(float16, tfloat32)
DECODER(float, float)

}  // namespace xfa
}  // namespace xpu
}  // namespace baidu

// Attention of whole sequences, alone or after what the cache holds.
#include "llm/blocks/block_call.h"

namespace baidu {
namespace xpu {
namespace xftblock {

namespace {

struct Lods {
    llm::Pair<int32_t> q;
    llm::Pair<int32_t> kv;

    int64_t q_count(size_t b) const { return q.host[b + 1] - q.host[b]; }
    int64_t kv_count(size_t b) const { return kv.host[b + 1] - kv.host[b]; }
    size_t size() const { return q.host.size() - 1; }
    void verify() const {
        q.verify();
        kv.verify();
    }
};

// Both lists, and that the longest sequence is no longer than the parameters say.
Lods lods_of(llm::Call& call, const TransformerParam& param, const TransformerVsl& vsl) {
    Lods lods;
    lods.q = call.pair(vsl.usual_lod_vp, param.batch_size + 1, "usual_lod_vp");
    lods.kv = call.pair(vsl.kv_lod_vp, param.batch_size + 1, "kv_lod_vp");
    call.rule(llm::is_lod(lods.q.host) && llm::is_lod(lods.kv.host), "lods are no offsets");
    for (size_t b = 0; call.holds() && b < lods.size(); ++b) {
        call.rule(lods.q_count(b) > 0 && lods.q_count(b) <= lods.kv_count(b),
                  "an empty sequence, or more queries than keys");
        call.rule(lods.q_count(b) <= param.max_valid_seqlen, "longer than max_valid_seqlen");
        call.rule(lods.kv_count(b) <= param.max_kv_valid_seqlen, "longer than max_kv_valid_seqlen");
    }
    return lods;
}

template <typename TX, typename TC>
int attend_new(llm::Call& call, const Tensor* q, const Tensor* k, const Tensor* v, Tensor* out,
               const TransformerParam& param, const llm::AttentionShape& shape, const Lods& lods) {
    const int64_t kv_row = param.kv_head_num * param.head_dim;
    tensor_rules<TC>(call, k, {-1, kv_row}, "k");
    tensor_rules<TC>(call, v, {-1, kv_row}, "v");
    call.rule(lods.q.host == lods.kv.host, "without a prefix both lods are the same");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    const int64_t tokens = q->get_dim(0);
    call.rule(k->get_dim(0) == tokens && v->get_dim(0) == tokens, "k or v has other rows than q");
    return call.run([=, q_data = q->data<TX>(), k_data = k->data<TC>(),
                     v_data = v->data<TC>(), out_data = out->data<TX>()] {
        lods.verify();
        const int64_t row = shape.heads * shape.dim;
        const TX* queries = xpusim::at(q_data, tokens * row);
        const TC* keys = xpusim::at(k_data, tokens * kv_row);
        const TC* values = xpusim::at(v_data, tokens * kv_row);
        TX* results = xpusim::at(out_data, tokens * row);
        for (size_t b = 0; b < lods.size(); ++b) {
            const int64_t first = lods.q.host[b];
            const llm::Contiguous<TC> source{keys, values, first, shape.kv_heads, shape.dim};
            llm::attend(shape, source, queries + first * row, results + first * row,
                        lods.q_count(b), lods.kv_count(b));
        }
    });
}

// Row b of the table belongs to sequence b: FastDeploy builds it for this call alone.
llm::PagedBatch batch_of(const Lods& lods) {
    llm::PagedBatch batch{{}, {}, {}, {}, lods.q.host.back()};
    for (size_t b = 0; b < lods.size(); ++b) {
        batch.q_firsts.push_back(lods.q.host[b]);
        batch.q_counts.push_back(lods.q_count(b));
        batch.kv_counts.push_back(lods.kv_count(b));
        batch.rows.push_back(static_cast<int64_t>(b));
    }
    return batch;
}

template <typename TX, typename TC>
int attend_cached(llm::Call& call, const Tensor* q, const Tensor* k, const Tensor* v, Tensor* out,
                  const TransformerParam& param, const llm::AttentionShape& shape,
                  const Lods& lods) {
    auto paged = paged_call<TX, TC>(call, q, k, v, out, param, shape);
    call.rule(param.prefill_len == param.max_valid_seqlen, "prefill_len is not max_valid_seqlen");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    paged.batch = batch_of(lods);
    call.rule(llm::batch_fits(paged.batch, paged.table, paged.pages), "lengths, rows and pages");
    paged.lists = {lods.q, lods.kv};
    return llm::run_pages(call, paged);
}

}  // namespace

template <typename TX, typename TC, typename TGEMM>
int xft_context_core_attenion_block(XFTContext* ctx, Tensor* q, Tensor* k, Tensor* v, Tensor* out,
                                    TransformerParam& param, TransformerVsl& vsl) {
    llm::Call call(context_of(ctx), "xftblock::xft_context_core_attenion_block");
    const auto shape = shape_of<TGEMM>(param);
    block_rules<TX>(call, q, out, param, shape);
    call.rule(!param.use_page_attn, "use_page_attn is the decoder's");
    const Lods lods = lods_of(call, param, vsl);
    const auto rows = call.pair(vsl.slot_mapping_vp, param.batch_size, "slot_mapping_vp");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    call.rule(lods.q.host.back() == q->get_dim(0), "q has other rows than usual_lod_vp says");
    return param.prefill_len == -1 ? attend_new<TX, TC>(call, q, k, v, out, param, shape, lods)
                                   : attend_cached<TX, TC>(call, q, k, v, out, param, shape, lods);
}

#define CONTEXT(T, TGEMM)                                                              \
    template DLL_EXPORT int xft_context_core_attenion_block<T, T, TGEMM>(              \
        XFTContext*, Tensor*, Tensor*, Tensor*, Tensor*, TransformerParam&, TransformerVsl&);

CONTEXT(bfloat16, float)
CONTEXT(float16, float)
CONTEXT(float, float)

}  // namespace xftblock
}  // namespace xpu
}  // namespace baidu

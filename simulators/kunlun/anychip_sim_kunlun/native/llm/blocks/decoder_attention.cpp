// Attention of one token a sequence over the pages, and the split of a joint projection.
#include "llm/blocks/block_call.h"

namespace baidu {
namespace xpu {
namespace xftblock {

namespace {

llm::PagedBatch batch_of(const std::vector<int32_t>& lengths, const std::vector<int32_t>& rows) {
    llm::PagedBatch batch{{}, {}, {}, {}, static_cast<int64_t>(lengths.size())};
    for (size_t b = 0; b < lengths.size(); ++b) {
        batch.q_firsts.push_back(static_cast<int64_t>(b));
        batch.q_counts.push_back(1);
        batch.kv_counts.push_back(lengths[b]);
        batch.rows.push_back(rows[b]);
    }
    return batch;
}

template <typename T>
void split(const T* qkv_from, T* const (&to)[3], const int64_t (&widths)[3], int64_t tokens) {
    const int64_t row = widths[0] + widths[1] + widths[2];
    const T* qkv = xpusim::at(qkv_from, tokens * row);
    int64_t first = 0;
    for (int part = 0; part < 3; ++part) {
        T* out = xpusim::at(to[part], tokens * widths[part]);
        for (int64_t t = 0; t < tokens; ++t) {
            const T* from = qkv + t * row + first;
            std::copy(from, from + widths[part], out + t * widths[part]);
        }
        first += widths[part];
    }
}

}  // namespace

template <typename TX, typename TC, typename TGEMM>
int xft_decoder_core_attenion_block(XFTContext* ctx, Tensor* q, Tensor* k_cache, Tensor* v_cache,
                                    Tensor* out, TransformerParam& param, TransformerVsl& vsl) {
    llm::Call call(context_of(ctx), "xftblock::xft_decoder_core_attenion_block");
    const auto shape = shape_of<TGEMM>(param);
    block_rules<TX>(call, q, out, param, shape);
    call.rule(param.use_page_attn && param.prefill_len == -1, "use_page_attn, prefill_len");
    call.rule(param.batch_size < 1024, "fewer than 1024 sequences");
    auto paged = paged_call<TX, TC>(call, q, k_cache, v_cache, out, param, shape);
    const auto lengths = call.pair(vsl.usual_lod_vp, param.batch_size, "usual_lod_vp");
    const auto rows = call.pair(vsl.slot_mapping_vp, param.batch_size, "slot_mapping_vp");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    call.rule(q->get_dim(0) == param.batch_size, "q has other rows than there are sequences");
    for (int32_t length : lengths.host) {
        call.rule(length <= param.page_attn.max_context_len, "longer than max_context_len");
    }
    paged.batch = batch_of(lengths.host, rows.host);
    call.rule(llm::batch_fits(paged.batch, paged.table, paged.pages), "lengths, rows and pages");
    paged.lists = {lengths, rows};
    return llm::run_pages(call, paged);
}

template <typename T>
int split_qkv_block(XFTContext* ctx, Tensor* qkv, Tensor* q, Tensor* k, Tensor* v,
                    int64_t token_num, int64_t head_num, int64_t kv_head_num, int64_t head_dim) {
    llm::Call call(context_of(ctx), "xftblock::split_qkv_block");
    call.shape({token_num, 3, head_num, head_dim}, "q");
    call.shape({token_num, 3, kv_head_num, head_dim}, "k");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    const int64_t wide = head_num * head_dim, narrow = kv_head_num * head_dim;
    tensor_rules<T>(call, qkv, {token_num, wide + 2 * narrow}, "qkv");
    tensor_rules<T>(call, q, {token_num, wide}, "q");
    tensor_rules<T>(call, k, {token_num, narrow}, "k");
    tensor_rules<T>(call, v, {token_num, narrow}, "v");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    return call.run([=, from = qkv->data<T>(), q_to = q->data<T>(), k_to = k->data<T>(),
                     v_to = v->data<T>()] {
        split<T>(from, {q_to, k_to, v_to}, {wide, narrow, narrow}, token_num);
    });
}

#define DECODER(T, TGEMM)                                                              \
    template DLL_EXPORT int xft_decoder_core_attenion_block<T, T, TGEMM>(              \
        XFTContext*, Tensor*, Tensor*, Tensor*, Tensor*, TransformerParam&, TransformerVsl&);
#define SPLIT(T)                                                                       \
    template DLL_EXPORT int split_qkv_block<T>(XFTContext*, Tensor*, Tensor*, Tensor*, \
                                               Tensor*, int64_t, int64_t, int64_t, int64_t);

DECODER(bfloat16, bfloat16)
DECODER(bfloat16, float)
DECODER(float16, float16)
DECODER(float16, float)
DECODER(float, float)
SPLIT(float)
SPLIT(float16)
SPLIT(bfloat16)

}  // namespace xftblock
}  // namespace xpu
}  // namespace baidu

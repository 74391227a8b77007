// What the attention blocks check of tensors and parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "xft/blocks/core_attention_block.h"
#include "llm/engine/paged_call.h"

namespace baidu {
namespace xpu {
namespace xftblock {

namespace llm = xpusim::llm;

inline api::Context* context_of(XFTContext* ctx) {
    return ctx != nullptr ? ctx->get_context() : nullptr;
}

// A tensor of this type and shape with memory behind it; a size of -1 takes any.
template <typename T>
void tensor_rules(llm::Call& call, const Tensor* tensor, const std::vector<int64_t>& dims,
                  const char* what) {
    call.rule(tensor != nullptr, what);
    if (tensor == nullptr) {
        return;
    }
    const std::vector<int64_t>& given = tensor->get_dims();
    call.device(tensor->data<T>(), what).shape(given, what);
    bool fits = tensor->type() == DataTypeToEnum<T>::value && given.size() == dims.size();
    for (size_t i = 0; fits && i < dims.size(); ++i) {
        fits = dims[i] == -1 ? given[i] > 0 : given[i] == dims[i];
    }
    call.rule(fits, what);
}

template <typename TGEMM>
llm::AttentionShape shape_of(const TransformerParam& param) {
    return {param.head_num, param.kv_head_num, param.head_dim, llm::default_scale(param.head_dim),
            true, llm::compute_of<TGEMM>()};
}

// q and out, the heads, and that no cache is quantized.
template <typename TX>
void block_rules(llm::Call& call, const Tensor* q, const Tensor* out, const TransformerParam& param,
                 const llm::AttentionShape& shape) {
    llm::attention_rules(call, shape);
    call.positive(param.batch_size, "batch_size");
    call.rule(!param.use_cache_per_channel, "maxima a channel of a cache that is not quantized");
    if (!call.holds()) {
        return;  // the row below may be too long for a number
    }
    const int64_t row = param.head_num * param.head_dim;
    tensor_rules<TX>(call, q, {-1, row}, "q");
    tensor_rules<TX>(call, out, {-1, row}, "out");
    if (call.holds()) {
        call.rule(q->get_dim(0) == out->get_dim(0), "q and out differ in rows");
        call.rule(q->data<TX>() != out->data<TX>(), "out is q");
    }
}

// Caches [blocks, kv heads, block size, dim] and their table.
template <typename TX, typename TC>
llm::PagedCall<TX, TC> paged_call(llm::Call& call, const Tensor* q, const Tensor* k,
                                  const Tensor* v, const Tensor* out, const TransformerParam& param,
                                  const llm::AttentionShape& shape) {
    const PageAttnParam& page = param.page_attn;
    const std::vector<int64_t> dims{-1, param.kv_head_num, page.block_size, param.head_dim};
    call.shape({page.max_num_blocks_per_seq, page.block_size}, "tokens of a table row");
    tensor_rules<TC>(call, k, dims, "key cache");
    tensor_rules<TC>(call, v, dims, "value cache");
    tensor_rules<int32_t>(call, page.block_table, {-1, page.max_num_blocks_per_seq}, "block_table");
    if (!call.holds()) {
        return {};
    }
    call.rule(k->get_dims() == v->get_dims(), "caches differ");
    call.rule(k->pc_scale() == nullptr && v->pc_scale() == nullptr,
              "maxima of a cache that is not quantized");
    return {q->data<TX>(), k->data<TC>(), v->data<TC>(), out->data<TX>(),
            {page.block_table->data<int32_t>(), page.block_table->get_dim(0),
             page.max_num_blocks_per_seq},
            {k->get_dim(0), param.kv_head_num, page.block_size, param.head_dim}, shape, {}, {}};
}

}  // namespace xftblock
}  // namespace xpu
}  // namespace baidu

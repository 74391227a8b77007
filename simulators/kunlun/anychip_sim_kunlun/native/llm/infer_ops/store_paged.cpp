// Writing tokens into the paged cache by slot.
#include "xft/infer_ops.h"
#include "llm/engine/pages.h"

namespace infer_ops {

namespace llm = xpusim::llm;

namespace {

template <typename TX, typename TC>
void store_tokens(const TX* x_from, TC* cache_to, const int32_t* slots_from, int64_t tokens,
                  const llm::PageShape& shape) {
    const int64_t row = shape.kv_heads * shape.dim;
    const TX* x = xpusim::at(x_from, tokens * row);
    TC* cache = xpusim::at(cache_to, shape.numel());
    const int32_t* slots = xpusim::at(slots_from, tokens);
    for (int64_t t = 0; t < tokens; ++t) {
        if (slots[t] == -1) {
            continue;
        }
        if (slots[t] < 0 || slots[t] >= shape.blocks * shape.block_size) {
            llm::fault("slot " + std::to_string(slots[t]) + " of token " + std::to_string(t));
        }
        llm::put_token(x + t * row, cache, shape, slots[t] / shape.block_size,
                       slots[t] % shape.block_size);
    }
}

}  // namespace

template <typename TX, typename TC, typename TID>
int store_paged_kv_cache(api::Context* ctx, const TX* k, const TX* v, TC* key_cache,
                         TC* value_cache, const TID* slot_mapping, const float* k_scale,
                         const float* v_scale, int64_t token_num, int64_t kv_head_num,
                         int64_t head_dim, int64_t num_blocks, int64_t block_size) {
    llm::Call call(ctx, "infer_ops::store_paged_kv_cache");
    call.device(k, "k").device(v, "v").device(key_cache, "key_cache");
    call.device(value_cache, "value_cache").device(slot_mapping, "slot_mapping");
    call.shape({token_num, kv_head_num, head_dim}, "k");
    call.shape({num_blocks, kv_head_num, block_size, head_dim}, "key_cache");
    call.rule(k_scale == nullptr && v_scale == nullptr, "scales of a cache that is not quantized");
    const llm::PageShape shape{num_blocks, kv_head_num, block_size, head_dim};
    return call.run([=] {
        store_tokens(k, key_cache, slot_mapping, token_num, shape);
        store_tokens(v, value_cache, slot_mapping, token_num, shape);
    });
}

#define STORE(T)                                                                            \
    template DLL_EXPORT int store_paged_kv_cache<T, T, int32_t>(                            \
        api::Context*, const T*, const T*, T*, T*, const int32_t*, const float*,            \
        const float*, int64_t, int64_t, int64_t, int64_t, int64_t);

STORE(float)
STORE(float16)
STORE(bfloat16)

}  // namespace infer_ops

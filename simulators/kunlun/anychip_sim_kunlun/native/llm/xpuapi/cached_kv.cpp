// Writing keys or values of whole sequences into pages.
#include <string>

#include "llm/engine/pages.h"
#include "xpu/refactor/fusion.h"

namespace baidu {
namespace xpu {
namespace api {

namespace llm = xpusim::llm;

namespace {

template <typename TI, typename TO>
struct Writing {
    const TI* x;
    TO* cache;
    llm::PageTable table;
    llm::PageShape shape;
    llm::Pair<int32_t> lod;
    llm::Pair<int32_t> starts;
    llm::Pair<int32_t> rows;
};

template <typename TI, typename TO>
void write(const Writing<TI, TO>& w) {
    w.lod.verify();
    w.starts.verify();
    w.rows.verify();
    const int64_t token = w.shape.kv_heads * w.shape.dim;
    const TI* x = xpusim::at(w.x, w.lod.host.back() * token);
    const llm::Pages pages(w.table, w.shape);
    for (size_t b = 0; b < w.rows.host.size(); ++b) {
        for (int64_t t = w.lod.host[b]; t < w.lod.host[b + 1]; ++t) {
            const int64_t position = w.starts.host[b] + t - w.lod.host[b];
            const int64_t block = pages.block_of(w.rows.host[b], position);
            llm::put_token_alone(x + t * token, w.cache, w.shape, block,
                                 position % w.shape.block_size);
        }
    }
}

template <typename TI, typename TO>
int queue(llm::Call& call, const Writing<TI, TO>& w) {
    return call.run([w] { write(w); });
}

template <typename TI, typename TO>
bool rows_fit(const Writing<TI, TO>& w) {
    bool fit = true;
    for (size_t b = 0; b < w.rows.host.size(); ++b) {
        fit = fit && w.rows.host[b] >= 0 && w.rows.host[b] < w.table.rows &&
              w.starts.host[b] >= 0;
    }
    return fit;
}

}  // namespace

template <typename TI, typename TO, typename TID>
int reshape_cached_kv(Context* ctx, const TI* x, TO* y, const TID* block_table,
                      const VectorParam<int32_t>& kv_seq_lod,
                      const VectorParam<int32_t>& start_tokens,
                      const VectorParam<int32_t>& real_batch, int64_t batch_size,
                      int64_t kv_head_num, int64_t head_dim, int64_t max_seq_num,
                      int64_t block_size, int64_t max_num_blocks_per_seq,
                      const std::string& qkv_layout, const std::string& page_layout,
                      const float* scale, float* batch_max_ptrs, float* max_ptrs) {
    llm::Call call(ctx, "api::reshape_cached_kv");
    call.device(x, "x").device(y, "y").device(block_table, "block_table");
    call.positive(batch_size, "batch_size");
    call.served(qkv_layout == "BLHD" && page_layout == "HLD", "layout");
    call.served(scale == nullptr && batch_max_ptrs == nullptr && max_ptrs == nullptr, "maxima");
    Writing<TI, TO> w{x,  y,  {block_table, max_seq_num, max_num_blocks_per_seq},
                      {0, kv_head_num, block_size, head_dim}, {}, {}, {}};
    llm::page_rules(call, w.shape, w.table);
    w.lod = call.pair(kv_seq_lod, batch_size + 1, "kv_seq_lod");
    w.starts = call.pair(start_tokens, batch_size, "start_tokens");
    w.rows = call.pair(real_batch, batch_size, "real_batch");
    call.rule(llm::is_lod(w.lod.host) && w.lod.host.back() > 0, "kv_seq_lod is no list of offsets");
    if (call.holds()) {
        call.rule(rows_fit(w), "a row beyond the table, or a position below 0");
        call.shape({w.lod.host.back(), kv_head_num, head_dim}, "x");
    }
    return queue(call, w);
}

#define CACHED(T)                                                                              \
    template DLL_EXPORT int reshape_cached_kv<T, T, int32_t>(                                  \
        Context*, const T*, T*, const int32_t*, const VectorParam<int32_t>&,                   \
        const VectorParam<int32_t>&, const VectorParam<int32_t>&, int64_t, int64_t, int64_t,   \
        int64_t, int64_t, int64_t, const std::string&, const std::string&, const float*,       \
        float*, float*);

CACHED(float)
CACHED(float16)
CACHED(bfloat16)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

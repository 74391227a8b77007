// Attention over pages as the block library and the attention library call it.
#pragma once

#include <cstdint>

#include "llm/engine/attention.h"

namespace xpusim {
namespace llm {

// Sequence b: `q_counts[b]` queries from row q_firsts[b] on, `kv_counts[b]` tokens on the pages of
// table row `rows[b]`.
struct PagedBatch {
    std::vector<int64_t> q_firsts;
    std::vector<int64_t> q_counts;
    std::vector<int64_t> kv_counts;
    std::vector<int64_t> rows;
    int64_t q_rows;

    size_t size() const { return rows.size(); }
};

template <typename T, typename TC>
struct PagedCall {
    const T* q;
    const TC* k_cache;
    const TC* v_cache;
    T* out;
    PageTable table;
    PageShape pages;
    AttentionShape shape;
    PagedBatch batch;
    std::vector<Pair<int32_t>> lists;  // what the batch was made of
};

// Every sequence has its queries among its tokens, and its tokens on its row of the table.
inline bool batch_fits(const PagedBatch& batch, const PageTable& table, const PageShape& pages) {
    bool fits = true;
    for (size_t b = 0; b < batch.size(); ++b) {
        fits = fits && batch.q_counts[b] > 0 && batch.q_counts[b] <= batch.kv_counts[b] &&
               batch.rows[b] >= 0 && batch.rows[b] < table.rows &&
               batch.kv_counts[b] <= table.pages * pages.block_size;
    }
    return fits;
}

template <typename T, typename TC>
void attend_pages(const PagedCall<T, TC>& call) {
    for (const auto& list : call.lists) {
        list.verify();
    }
    const AttentionShape& shape = call.shape;
    const int64_t row = shape.heads * shape.dim;
    const T* q = at(call.q, call.batch.q_rows * row);
    T* out = at(call.out, call.batch.q_rows * row);
    const Pages pages(call.table, call.pages);
    for (size_t b = 0; b < call.batch.size(); ++b) {
        const Paged<TC> source{call.k_cache, call.v_cache, pages, call.pages, call.batch.rows[b]};
        const int64_t first = call.batch.q_firsts[b] * row;
        attend(shape, source, q + first, out + first, call.batch.q_counts[b],
               call.batch.kv_counts[b]);
    }
}

template <typename T, typename TC>
int run_pages(Call& call, const PagedCall<T, TC>& paged) {
    return call.run([paged] { attend_pages(paged); });
}

}  // namespace llm
}  // namespace xpusim

// Splitting, rotating and caching in one: what the four public functions share.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "xft/infer_ops.h"
#include "llm/engine/pages.h"
#include "llm/engine/rotate.h"

namespace infer_ops {

namespace llm = xpusim::llm;

// Sequence b: `counts[b]` tokens of qkv from positions `starts[b]` on, pages of row `rows[b]`.
struct Layout {
    std::vector<int64_t> starts;
    std::vector<int64_t> counts;
    std::vector<int64_t> rows;
    int64_t tokens = 0;
};

template <typename T, typename TC>
struct Split {
    const T* qkv;
    T* q;
    T* k;  // null: not wanted
    T* v;
    TC* key_cache;
    TC* value_cache;
    llm::PageTable table;
    llm::PageShape pages;
    llm::RotaryTable rotary;
    llm::Pairing pairing;
    int64_t heads;
    Layout layout;

    int64_t q_row() const { return heads * pages.dim; }
    int64_t kv_row() const { return pages.kv_heads * pages.dim; }
};

// Where one token's parts go: its row of q, k and v, and the keys' and values' scratch.
template <typename T>
struct TokenRows {
    T* q;
    T* k;
    T* v;
};

template <typename T, typename TC>
void split_token(const Split<T, TC>& s, const T* from, const TokenRows<T>& to,
                 const llm::Angles& angles, int64_t block, int64_t row) {
    const int64_t dim = s.pages.dim;
    std::vector<T> keys(static_cast<size_t>(s.kv_row()));
    llm::rotate_heads(from, to.q, s.heads, dim, dim, s.pairing, angles);
    llm::rotate_heads(from + s.q_row(), keys.data(), s.pages.kv_heads, dim, dim, s.pairing,
                      angles);
    const T* values = from + s.q_row() + s.kv_row();
    if (to.k != nullptr) {
        std::copy(keys.begin(), keys.end(), to.k);
        std::copy(values, values + s.kv_row(), to.v);
    }
    llm::put_token_alone(keys.data(), s.key_cache, s.pages, block, row);
    llm::put_token_alone(values, s.value_cache, s.pages, block, row);
}

template <typename T, typename TC>
void split_all(const Split<T, TC>& s) {
    const int64_t tokens = s.layout.tokens, in_row = s.q_row() + 2 * s.kv_row();
    const T* qkv = xpusim::at(s.qkv, tokens * in_row);
    const float* rotary = xpusim::at(s.rotary.device, s.rotary.numel());
    const TokenRows<T> rows{xpusim::at(s.q, tokens * s.q_row()),
                            s.k != nullptr ? xpusim::at(s.k, tokens * s.kv_row()) : nullptr,
                            s.v != nullptr ? xpusim::at(s.v, tokens * s.kv_row()) : nullptr};
    const llm::Pages pages(s.table, s.pages);
    int64_t token = 0;
    for (size_t b = 0; b < s.layout.rows.size(); ++b) {
        for (int64_t i = 0; i < s.layout.counts[b]; ++i, ++token) {
            const int64_t position = s.layout.starts[b] + i;
            const TokenRows<T> to{rows.q + token * s.q_row(),
                                  rows.k != nullptr ? rows.k + token * s.kv_row() : nullptr,
                                  rows.v != nullptr ? rows.v + token * s.kv_row() : nullptr};
            split_token(s, qkv + token * in_row, to, s.rotary.at_position(rotary, position),
                        pages.block_of(s.layout.rows[b], position), position % s.pages.block_size);
        }
    }
}

// What the functions are told beside tensors and lengths.
struct Told {
    int64_t batch_size;
    int64_t emb_batch_size;
    int64_t max_seqlen;
    int64_t head_num;
    int64_t kv_head_num;
    int64_t head_dim;
    int64_t max_batch_size;
    int64_t block_size;
    int64_t max_blocks_per_seq;
    std::string qkv_layout;
    std::string page_layout;
    std::string pos_emb_type;
    bool quantized;  // any scale or zero is given
    bool rope_3d;
};

inline void told_rules(llm::Call& call, const Told& told) {
    call.shape({2, told.max_seqlen, told.head_dim}, "table");
    call.positive(told.batch_size, "batch_size").positive(told.head_num, "head_num");
    call.positive(told.kv_head_num, "kv_head_num");
    call.served(told.qkv_layout == "BLHD" && told.page_layout == "HLD", "layout");
    call.served(told.emb_batch_size == 1 && !told.rope_3d, "a table for each sequence");
    call.rule(!told.quantized, "scales of a cache that is not quantized");
    call.rule(llm::is_table_type(told.pos_emb_type), "unknown pos_emb_type");
    call.rule(told.head_dim % 2 == 0, "odd head");
}

template <typename T, typename TC>
Split<T, TC> split_of(const Told& told, const T* qkv, const float* rotary_pos_emb,
                      const int* block_table, T* q, T* k, T* v, TC* key_cache, TC* value_cache,
                      llm::Pairing pairing) {
    return {qkv, q, k, v, key_cache, value_cache,
            {block_table, told.max_batch_size, told.max_blocks_per_seq},
            {0, told.kv_head_num, told.block_size, told.head_dim},
            llm::rotary_table(rotary_pos_emb, told.max_seqlen, told.head_dim, told.pos_emb_type),
            pairing, told.head_num, {}};
}

template <typename T, typename TC>
void split_rules(llm::Call& call, const Split<T, TC>& s) {
    call.device(s.qkv, "qkv").device(s.q, "q").device(s.rotary.device, "rotary_pos_emb");
    call.device(s.key_cache, "key_cache").device(s.value_cache, "value_cache");
    call.device(s.table.device, "block_table");
    call.rule((s.k == nullptr) == (s.v == nullptr), "k without v, or the reverse");
    llm::page_rules(call, s.pages, s.table);
}

template <typename T, typename TC>
void layout_rules(llm::Call& call, const Split<T, TC>& s) {
    if (call.holds()) {  // each row of qkv holds q, and a pair of key and value for each KV head
        call.shape({s.layout.tokens, 3, std::max(s.heads, s.pages.kv_heads), s.pages.dim}, "qkv");
    }
    if (!call.holds()) {
        return;
    }
    const int64_t room = s.table.pages * s.pages.block_size;
    for (size_t b = 0; call.holds() && b < s.layout.rows.size(); ++b) {
        const int64_t end = s.layout.starts[b] + s.layout.counts[b];
        call.rule(s.layout.starts[b] >= 0 && s.layout.counts[b] > 0, "an empty sequence");
        call.rule(end <= s.rotary.length && end <= room, "a position beyond table or pages");
        call.rule(s.layout.rows[b] >= 0 && s.layout.rows[b] < s.table.rows, "real_batch");
    }
}

}  // namespace infer_ops

// Rotations of libxpuapi for ragged batches, by a table of all positions.
#include <algorithm>
#include <string>

#include "llm/engine/call.h"
#include "llm/engine/rotate.h"
#include "xpu/refactor/fusion.h"

namespace baidu {
namespace xpu {
namespace api {

namespace llm = xpusim::llm;

namespace {

template <typename T>
struct Ragged {
    const T* q;
    const T* k;
    T* q_out;
    T* k_out;
    llm::Pair<int32_t> lod;
    llm::Pair<int32_t> offsets;
    int64_t heads;
    int64_t k_heads;
    int64_t dim;
    llm::RotaryTable table;
    llm::Pairing pairing;

    int64_t first_position(size_t sequence) const {
        return offsets.host.empty() ? 0 : offsets.host[sequence];
    }
};

template <typename T>
void turn(const Ragged<T>& r, const T* x_from, T* out_to, int64_t heads) {
    const int64_t tokens = r.lod.host.back(), row = heads * r.dim;
    const float* table = xpusim::at(r.table.device, r.table.numel());
    const T* x = xpusim::at(x_from, tokens * row);
    T* out = xpusim::at(out_to, tokens * row);
    for (size_t b = 0; b + 1 < r.lod.host.size(); ++b) {
        for (int64_t t = r.lod.host[b]; t < r.lod.host[b + 1]; ++t) {
            const int64_t position = r.first_position(b) + t - r.lod.host[b];
            llm::rotate_heads(x + t * row, out + t * row, heads, r.dim, r.dim, r.pairing,
                              r.table.at_position(table, position));
        }
    }
}

template <typename T>
bool within_table(const Ragged<T>& r) {
    bool within = true;
    for (size_t b = 0; b + 1 < r.lod.host.size(); ++b) {
        const int64_t first = r.first_position(b);
        within = within && first >= 0 &&
                 first + r.lod.host[b + 1] - r.lod.host[b] <= r.table.length;
    }
    return within;
}

template <typename T>
int run(llm::Call& call, Ragged<T> r, const VectorParam<int32_t>& lod,
        const VectorParam<int32_t>& offsets, int batch, const std::string& layout,
        const std::string& type) {
    call.device(r.q, "q").device(r.k, "k").device(r.q_out, "q_emb").device(r.k_out, "k_emb");
    call.device(r.table.device, "rotary_pos_emb");
    call.shape({2, r.table.length, r.dim}, "rotary_pos_emb").rule(r.dim % 2 == 0, "odd head");
    call.positive(r.heads, "head_num").positive(r.k_heads, "k_group_num");
    call.served(layout == "BLHD" && batch == 1, "another layout, or a table for each sequence");
    call.rule(llm::is_table_type(type), "unknown pos_emb_type");
    call.rule(lod.len >= 2, "no sequence");
    r.lod = call.pair(lod, lod.len, "seq_lod");
    if (offsets.len != 0) {
        r.offsets = call.pair(offsets, lod.len - 1, "pos_emb_offset");
    }
    call.rule(llm::is_lod(r.lod.host) && r.lod.host.back() > 0, "seq_lod is no list of offsets");
    if (call.holds()) {
        call.rule(within_table(r), "a position beyond the table");
        call.shape({r.lod.host.back(), std::max(r.heads, r.k_heads), r.dim}, "q or k");
    }
    return call.run([r] {
        r.lod.verify();
        r.offsets.verify();
        turn(r, r.q, r.q_out, r.heads);
        turn(r, r.k, r.k_out, r.k_heads);
    });
}

}  // namespace

template <typename T, typename TR, typename TID>
int vsl_rotary_embedding(Context* ctx, const T* q, const T* k, const TR* rotary_pos_emb, T* q_emb,
                         T* k_emb, const VectorParam<TID>& seq_lod, int batch, int max_seqlen,
                         int head_num, int head_dims, std::string rotary_embedding_layout,
                         const VectorParam<TID>& pos_emb_offset, std::string pos_emb_type,
                         int k_group_num) {
    llm::Call call(ctx, "api::vsl_rotary_embedding");
    const auto table = llm::rotary_table(rotary_pos_emb, max_seqlen, head_dims, pos_emb_type);
    const int64_t k_heads = k_group_num == -1 ? head_num : k_group_num;
    const Ragged<T> r{q,       k,         q_emb, k_emb,
                      {},      {},        head_num, k_heads,
                      head_dims, table, llm::Pairing::kNeighbours};
    return run(call, r, seq_lod, pos_emb_offset, batch, rotary_embedding_layout, pos_emb_type);
}

template <typename T, typename TR, typename TID>
int vsl_rotary_neox_embedding(Context* ctx, const T* q, const T* k, const TR* rotary_pos_emb,
                              T* q_emb, T* k_emb, const VectorParam<TID>& seq_lod, int batch,
                              int max_seqlen, int head_num, int head_dims,
                              std::string rotary_embedding_layout,
                              const VectorParam<TID>& pos_emb_offset, std::string pos_emb_type,
                              int k_group_num, int pack_size) {
    llm::Call call(ctx, "api::vsl_rotary_neox_embedding");
    call.served(pack_size == 2, "pack_size");
    const auto table = llm::rotary_table(rotary_pos_emb, max_seqlen, head_dims, pos_emb_type);
    const int64_t k_heads = k_group_num == -1 ? head_num : k_group_num;
    const Ragged<T> r{q,       k,         q_emb, k_emb,
                      {},      {},        head_num, k_heads,
                      head_dims, table, llm::Pairing::kHalves};
    return run(call, r, seq_lod, pos_emb_offset, batch, rotary_embedding_layout, pos_emb_type);
}

#define RAGGED(T)                                                                              \
    template DLL_EXPORT int vsl_rotary_embedding<T, float, int32_t>(                           \
        Context*, const T*, const T*, const float*, T*, T*, const VectorParam<int32_t>&, int,  \
        int, int, int, std::string, const VectorParam<int32_t>&, std::string, int);            \
    template DLL_EXPORT int vsl_rotary_neox_embedding<T, float, int32_t>(                      \
        Context*, const T*, const T*, const float*, T*, T*, const VectorParam<int32_t>&, int,  \
        int, int, int, std::string, const VectorParam<int32_t>&, std::string, int, int);

RAGGED(float)
RAGGED(float16)
RAGGED(bfloat16)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

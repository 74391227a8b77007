// The vendor's attention over a paged cache, by libxft_blocks. A file of its own: how its classes
// are made is known from call sites alone, and without them the shim is built without it.
//
// It takes sequences whose tokens are the last ones of what is cached. A batch with a row that is
// none (positions of its own, no length) is composed.
#include <algorithm>

#include "attention.h"
#include "blocks/core_attention_block.h"

using namespace shim;

namespace xft = baidu::xpu::xftblock;

namespace {

bool is_plain(const Attention& call, const Stretch& part) {
    if (part.row < 0) {
        return false;
    }
    const int64_t start = int64_t{call.lengths[part.row]} - part.tokens;
    for (int64_t i = 0; i < part.tokens; ++i) {
        if (start < 0 || call.positions[part.first + i] != start + i) {
            return false;
        }
    }
    return true;
}

// Consecutive rows that one vendor call takes: of one token each, or of more.
struct Segment {
    std::vector<Stretch> rows;

    bool decodes() const { return rows.front().tokens == 1; }
    bool takes(const Stretch& next) const {
        return next.row == rows.back().row + 1 && (next.tokens == 1) == decodes();
    }
};

std::vector<Segment> segments(const std::vector<Stretch>& parts) {
    std::vector<Segment> found;
    for (const Stretch& part : parts) {
        if (found.empty() || !found.back().takes(part)) {
            found.push_back({});
        }
        found.back().rows.push_back(part);
    }
    return found;
}

// Lengths of a segment as the vendor wants them, on the host.
struct Lengths {
    std::vector<int32_t> queries{0};  // where each row's queries start, and the end
    std::vector<int32_t> keys{0};     // the same of its cached tokens
    std::vector<int32_t> whole;       // cached tokens of each row
    std::vector<int32_t> slots;       // its row in the table of pages
    int64_t longest_query = 0;
    int64_t longest = 0;
};

Lengths lengths_of(const Attention& call, const Segment& segment) {
    Lengths y;
    for (const Stretch& part : segment.rows) {
        const int32_t length = call.lengths[part.row];
        y.queries.push_back(y.queries.back() + static_cast<int32_t>(part.tokens));
        y.keys.push_back(y.keys.back() + length);
        y.slots.push_back(static_cast<int32_t>(y.whole.size()));
        y.whole.push_back(length);
        y.longest_query = std::max(y.longest_query, part.tokens);
        y.longest = std::max<int64_t>(y.longest, length);
    }
    return y;
}

xft::TransformerParam parameters(const Attention& call, const Segment& segment,
                                 const Lengths& lengths, xft::Tensor& table) {
    xft::TransformerParam y;
    y.batch_size = static_cast<int64_t>(segment.rows.size());
    y.head_num = call.q.shape[1];
    y.kv_head_num = call.k.shape[2];
    y.head_dim = call.q.shape[2];
    y.max_batch_size = y.batch_size;
    y.max_seq_len = call.page_table.shape[1] * call.k.shape[1];
    y.max_valid_seqlen = lengths.longest_query;
    y.max_kv_valid_seqlen = lengths.longest;
    y.use_page_attn = segment.decodes();
    y.prefill_len = segment.decodes() ? -1 : lengths.longest_query;
    y.page_attn.block_size = call.k.shape[1];
    y.page_attn.max_context_len = lengths.longest;
    y.page_attn.max_num_blocks_per_seq = call.page_table.shape[1];
    y.page_attn.block_table = &table;
    return y;
}

api::VectorParam<int32_t> pair(const std::vector<int32_t>& values, api::ctx_guard& guard) {
    const auto length = static_cast<int64_t>(values.size());
    return api::VectorParam<int32_t>{values.data(), length, nullptr}.to_xpu(guard);
}

template <class T>
int attend(api::Context* context, const Attention& call, const Segment& segment, T* q) {
    constexpr auto TYPE = xft::DataTypeToEnum<T>::value;
    const Lengths lengths = lengths_of(call, segment);
    const Stretch& first = segment.rows.front();
    const int64_t width = call.q.shape[1] * call.q.shape[2];
    const int64_t tokens = lengths.queries.back();
    const int64_t at = first.first * width;
    const auto rows = static_cast<int64_t>(segment.rows.size());
    auto* pages = static_cast<int32_t*>(call.page_table.at) + first.row * call.page_table.shape[1];
    const Shape held{call.k.shape[0], call.k.shape[2], call.k.shape[1], call.k.shape[3]};

    xft::XFTContext xft_context(context, nullptr);
    xft::Tensor queries(q + at, TYPE, {tokens, width});
    xft::Tensor output(static_cast<T*>(call.y.at) + at, TYPE, {tokens, width});
    xft::Tensor keys(call.k.at, TYPE, held);
    xft::Tensor values(call.v.at, TYPE, held);
    xft::Tensor table(pages, xft::DataType::DT_INT32, {rows, call.page_table.shape[1]});
    xft::TransformerParam param = parameters(call, segment, lengths, table);
    api::ctx_guard guard(context);  // the device halves of the lengths
    xft::TransformerVsl lists;
    lists.slot_mapping_vp = pair(lengths.slots, guard);
    if (segment.decodes()) {
        lists.usual_lod_vp = pair(lengths.whole, guard);
        return xft::xft_decoder_core_attenion_block<T, T, float>(&xft_context, &queries, &keys,
                                                                 &values, &output, param, lists);
    }
    lists.usual_lod_vp = pair(lengths.queries, guard);
    lists.kv_lod_vp = pair(lengths.keys, guard);
    return xft::xft_context_core_attenion_block<T, T, float>(&xft_context, &queries, &keys, &values,
                                                             &output, param, lists);
}

void attend_all(Run& run, const Attention& call, const std::vector<Stretch>& parts) {
    with_float(run, call.q.dtype, [&](auto one) {
        using T = decltype(one);
        const Array<T> q = dense<T>(run, call.q);
        for (const Segment& segment : segments(parts)) {
            if (run.live()) {
                const char* name = segment.decodes() ? "xftblock::xft_decoder_core_attenion_block"
                                                     : "xftblock::xft_context_core_attenion_block";
                run.note(name, attend<T>(run.context(), call, segment, q.at));
            }
        }
    });
}

}  // namespace

OPERATOR(paged_attention) {
    const Attention call = attention_of(run);
    if (call.y.size() == 0) {
        return;
    }
    if (run.measuring()) {
        attend_all(run, call, {});
        compose_attention(run, call);
        return;
    }
    const std::vector<Stretch> parts = stretches(call);
    const bool plain = std::all_of(parts.begin(), parts.end(),
                                   [&](const Stretch& part) { return is_plain(call, part); });
    if (plain) {
        attend_all(run, call, parts);
    } else {
        compose_attention(run, call);
    }
}

// Attention of a ragged batch whose keys and values lie together.
#include "llm/engine/attention.h"
#include "xhpc/xfa/flash_api.h"

namespace baidu {
namespace xpu {
namespace xfa {

namespace llm = xpusim::llm;

namespace {

template <typename T>
struct Batch {
    const T* q;
    const T* k;
    const T* v;
    T* out;
    float* lse;
    llm::Pair<int32_t> q_lod;
    llm::Pair<int32_t> k_lod;
    int64_t max_q;
    llm::AttentionShape shape;
};

template <typename T>
void attend_all(const Batch<T>& b) {
    b.q_lod.verify();
    b.k_lod.verify();
    const auto& s = b.shape;
    const int64_t q_row = s.heads * s.dim, k_row = s.kv_heads * s.dim;
    const int64_t count = static_cast<int64_t>(b.q_lod.host.size()) - 1;
    const T* q = xpusim::at(b.q, b.q_lod.host.back() * q_row);
    const T* k = xpusim::at(b.k, b.k_lod.host.back() * k_row);
    const T* v = xpusim::at(b.v, b.k_lod.host.back() * k_row);
    T* out = xpusim::at(b.out, b.q_lod.host.back() * q_row);
    float* lse = b.lse != nullptr ? xpusim::at(b.lse, count * s.heads * b.max_q) : nullptr;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t q0 = b.q_lod.host[i], k0 = b.k_lod.host[i];
        const llm::Contiguous<T> source{k, v, k0, s.kv_heads, s.dim};
        const llm::Logarithms logs{lse == nullptr ? nullptr : lse + i * s.heads * b.max_q, b.max_q};
        llm::attend(s, source, q + q0 * q_row, out + q0 * q_row, b.q_lod.host[i + 1] - q0,
                    b.k_lod.host[i + 1] - k0, logs);
    }
}

template <typename T>
int queue(llm::Call& call, const Batch<T>& b) {
    return call.run([b] { attend_all(b); });
}

template <typename T>
bool lengths_fit(const Batch<T>& b, int64_t max_k) {
    bool fit = llm::is_lod(b.q_lod.host) && llm::is_lod(b.k_lod.host);
    for (size_t i = 0; fit && i + 1 < b.q_lod.host.size(); ++i) {
        const int64_t q = b.q_lod.host[i + 1] - b.q_lod.host[i];
        const int64_t k = b.k_lod.host[i + 1] - b.k_lod.host[i];
        fit = q > 0 && q <= k && q <= b.max_q && k <= max_k;
    }
    return fit;
}

}  // namespace

template <typename T, typename TACCUM, typename TGEMM, typename TID>
int mha_varlen_fwd(api::Context* ctx, const T* q, const T* k, const T* v, T* out,
                   TACCUM* softmax_lse, const api::VectorParam<TID>& lod_seqlens_q,
                   const api::VectorParam<TID>& lod_seqlens_k, int64_t max_seqlen_q,
                   int64_t max_seqlen_k, int64_t head_num, int64_t head_num_k, int64_t head_dim,
                   const float softmax_scale, const float p_dropout, int, const bool is_causal,
                   const TACCUM* attn_mask, const TACCUM* bias, const float* q_maxptr,
                   const float* k_maxptr, const float* v_maxptr, float* o_maxptr) {
    llm::Call call(ctx, "xfa::mha_varlen_fwd");
    const float scale = softmax_scale == 0.0f ? llm::default_scale(head_dim) : softmax_scale;
    Batch<T> b{q, k, v, out, softmax_lse, {}, {}, max_seqlen_q,
               {head_num, head_num_k, head_dim, scale, is_causal, llm::compute_of<TGEMM>()}};
    call.device(q, "q").device(k, "k").device(v, "v").device(out, "out");
    llm::attention_rules(call, b.shape);
    call.served(p_dropout == 0.0f, "dropout");  // so the seed has no use
    call.served(attn_mask == nullptr && bias == nullptr, "mask");
    call.served(!q_maxptr && !k_maxptr && !v_maxptr && !o_maxptr, "maxima");
    call.rule(lod_seqlens_q.len >= 2, "no sequence");
    b.q_lod = call.pair(lod_seqlens_q, lod_seqlens_q.len, "lod_seqlens_q");
    b.k_lod = call.pair(lod_seqlens_k, lod_seqlens_q.len, "lod_seqlens_k");
    if (call.holds()) {
        call.rule(lengths_fit(b, max_seqlen_k),
                  "an empty sequence, more queries than keys, or longer than the maximum");
        call.shape({b.q_lod.host.back(), head_num, head_dim}, "q");
        call.shape({b.k_lod.host.back(), head_num_k, head_dim}, "k");
        call.shape({lod_seqlens_q.len, head_num, max_seqlen_q}, "softmax_lse");
    }
    return queue(call, b);
}

#define VARLEN(T, TGEMM)                                                                      \
    template DLL_EXPORT int mha_varlen_fwd<T, float, TGEMM, int>(                             \
        api::Context*, const T*, const T*, const T*, T*, float*,                              \
        const api::VectorParam<int>&, const api::VectorParam<int>&, int64_t, int64_t,         \
        int64_t, int64_t, int64_t, const float, const float, int, const bool, const float*,   \
        const float*, const float*, const float*, const float*, float*);
#define ALL_COMPUTE_TYPES(T) \
    VARLEN(T, float)         \
    VARLEN(T, tfloat32)      \
    VARLEN(T, float16)

ALL_COMPUTE_TYPES(float)
ALL_COMPUTE_TYPES(float16)
ALL_COMPUTE_TYPES(bfloat16)

}  // namespace xfa
}  // namespace xpu
}  // namespace baidu

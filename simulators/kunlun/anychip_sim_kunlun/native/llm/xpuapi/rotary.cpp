// Rotations of libxpuapi by rows of sines and cosines that belong to the tokens one by one.
#include <string>
#include <vector>

#include "llm/engine/call.h"
#include "llm/engine/rotate.h"
#include "xpu/refactor/fusion.h"

namespace baidu {
namespace xpu {
namespace api {

namespace llm = xpusim::llm;

namespace {

using Shape = std::vector<int64_t>;

template <typename T, typename TSC>
struct Rotation {
    const T* q;
    const T* k;  // null: q alone
    const TSC* sin;
    const TSC* cos;
    T* q_out;
    T* k_out;
    int64_t tokens;
    int64_t heads;
    int64_t k_heads;
    int64_t dim;
    int64_t width;
    llm::Pairing pairing;
};

template <typename T, typename TSC>
void turn(const Rotation<T, TSC>& r, const T* x_from, T* out_to, int64_t heads) {
    const T* x = xpusim::at(x_from, r.tokens * heads * r.dim);
    T* out = xpusim::at(out_to, r.tokens * heads * r.dim);
    const TSC* sin = xpusim::at(r.sin, r.tokens * r.width);
    const TSC* cos = xpusim::at(r.cos, r.tokens * r.width);
    std::vector<float> angles(static_cast<size_t>(2 * r.width));
    for (int64_t t = 0; t < r.tokens; ++t) {
        llm::to_floats(cos + t * r.width, angles.data(), r.width);
        llm::to_floats(sin + t * r.width, angles.data() + r.width, r.width);
        llm::rotate_heads(x + t * heads * r.dim, out + t * heads * r.dim, heads, r.dim, r.width,
                          r.pairing, {angles.data(), angles.data() + r.width, true});
    }
}

// Shapes [batch, seq, heads, dim] and [batch, seq, 1, width].
bool shapes_fit(const Shape& t, const Shape& freqs) {
    return t.size() == 4 && freqs.size() == 4 && t[0] == freqs[0] && t[1] == freqs[1] &&
           freqs[2] == 1;
}

Shape contiguous(const Shape& shape) {
    return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

template <typename T, typename TSC>
int run(llm::Call& call, Rotation<T, TSC> r, const Shape& t_shape, const Shape& freqs_shape,
        int64_t k_group_num) {
    call.device(r.q, "q").device(r.q_out, "q_emb").device(r.sin, "sin").device(r.cos, "cos");
    call.rule((r.k == nullptr) == (r.k_out == nullptr), "k without k_emb, or the reverse");
    call.rule(shapes_fit(t_shape, freqs_shape), "shapes do not fit each other");
    call.shape(t_shape, "t_shape").shape(freqs_shape, "freqs_shape");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    r.tokens = t_shape[0] * t_shape[1];
    r.heads = t_shape[2];
    r.k_heads = k_group_num == -1 ? r.heads : k_group_num;
    r.dim = t_shape[3];
    r.width = freqs_shape[3];
    call.shape({r.tokens, r.k_heads, r.dim}, "k").shape({r.tokens, r.width}, "sin");
    call.rule(r.width % 2 == 0 && r.width <= r.dim, "an odd width, or wider than a head");
    // Measured on the vendor's library: halves may be partial, neighbours may not.
    call.rule(r.pairing == llm::Pairing::kHalves || r.width == r.dim, "a partial rotation");
    return call.run([=] {
        turn(r, r.q, r.q_out, r.heads);
        if (r.k != nullptr) {
            turn(r, r.k, r.k_out, r.k_heads);
        }
    });
}

// Angles of the data's own type; strides are given, and are those of whole tensors.
template <typename T>
int run_by_own_type(llm::Call& call, const Rotation<T, T>& r, const Shape& t_shape,
                    const Shape& freqs_shape, const Shape& t_stride, const Shape& freqs_stride,
                    int64_t k_group_num) {
    call.rule(shapes_fit(t_shape, freqs_shape), "shapes do not fit each other");
    call.shape(t_shape, "t_shape").shape(freqs_shape, "freqs_shape");
    if (call.holds()) {
        call.served(t_stride == contiguous(t_shape) && freqs_stride == contiguous(freqs_shape),
                    "strides of tensors that are not contiguous");
    }
    return run(call, r, t_shape, freqs_shape, k_group_num);
}

}  // namespace

template <typename T, typename TSC>
int rotary_embedding_half(Context* ctx, const T* q, const T* k, const TSC* sin, const TSC* cos,
                          const TSC* freqs, T* q_emb, T* k_emb, const Shape& t_shape,
                          const Shape& freqs_shape, const Shape& strides, int64_t offset,
                          std::string layout, int64_t k_group_num, float) {
    llm::Call call(ctx, "api::rotary_embedding_half");
    call.served(freqs == nullptr && strides.empty() && offset == 0, "freqs, strides, offset");
    call.served(layout == "BLHD", "layout");
    const Rotation<T, TSC> r{q, k, sin, cos, q_emb, k_emb, 0, 0, 0, 0, 0, llm::Pairing::kHalves};
    return run(call, r, t_shape, freqs_shape, k_group_num);
}

template <typename T, typename TSC>
int rotary_embedding_everytwo(Context* ctx, const T* q, const T* k, const TSC* sin,
                              const TSC* cos, T* q_emb, T* k_emb, const Shape& t_shape,
                              const Shape& freqs_shape, int64_t k_group_num, float) {
    llm::Call call(ctx, "api::rotary_embedding_everytwo");
    const Rotation<T, TSC> r{q, k, sin, cos, q_emb, k_emb, 0, 0, 0, 0, 0,
                             llm::Pairing::kNeighbours};
    return run(call, r, t_shape, freqs_shape, k_group_num);
}

template <typename T>
int rotary_no_freqs_embedding_v2(Context* ctx, const T* t, const T* sin, const T* cos, T* out,
                                 const Shape& t_shape, const Shape& freqs_shape,
                                 const Shape& t_stride, const Shape& freqs_stride) {
    llm::Call call(ctx, "api::rotary_no_freqs_embedding_v2");
    const auto pairing = llm::Pairing::kHalves;
    const Rotation<T, T> r{t, nullptr, sin, cos, out, nullptr, 0, 0, 0, 0, 0, pairing};
    return run_by_own_type(call, r, t_shape, freqs_shape, t_stride, freqs_stride, -1);
}

template <typename T>
int rotary_no_freqs_qk_embedding_v2(Context* ctx, const T* q, const T* k, const T* sin,
                                    const T* cos, T* q_emb, T* k_emb, const Shape& t_shape,
                                    const Shape& freqs_shape, const Shape& t_stride,
                                    const Shape& freqs_stride, int64_t k_group_num) {
    llm::Call call(ctx, "api::rotary_no_freqs_qk_embedding_v2");
    const Rotation<T, T> r{q, k, sin, cos, q_emb, k_emb, 0, 0, 0, 0, 0, llm::Pairing::kHalves};
    return run_by_own_type(call, r, t_shape, freqs_shape, t_stride, freqs_stride, k_group_num);
}

#define BY_ROWS(T, TSC)                                                                        \
    template DLL_EXPORT int rotary_embedding_half<T, TSC>(                                     \
        Context*, const T*, const T*, const TSC*, const TSC*, const TSC*, T*, T*,              \
        const Shape&, const Shape&, const Shape&, int64_t, std::string, int64_t, float);       \
    template DLL_EXPORT int rotary_embedding_everytwo<T, TSC>(                                 \
        Context*, const T*, const T*, const TSC*, const TSC*, T*, T*, const Shape&,            \
        const Shape&, int64_t, float);
#define BY_OWN_TYPE(T)                                                                         \
    template DLL_EXPORT int rotary_no_freqs_embedding_v2<T>(                                   \
        Context*, const T*, const T*, const T*, T*, const Shape&, const Shape&, const Shape&,  \
        const Shape&);                                                                         \
    template DLL_EXPORT int rotary_no_freqs_qk_embedding_v2<T>(                                \
        Context*, const T*, const T*, const T*, const T*, T*, T*, const Shape&, const Shape&,  \
        const Shape&, const Shape&, int64_t);

BY_ROWS(float, float)
BY_ROWS(float16, float)
BY_ROWS(bfloat16, float)
BY_ROWS(float16, float16)
BY_ROWS(bfloat16, bfloat16)
BY_OWN_TYPE(float)
BY_OWN_TYPE(float16)
BY_OWN_TYPE(bfloat16)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

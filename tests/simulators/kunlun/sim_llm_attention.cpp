// Rotation, caches and attention.
#include "sim_llm_driver.h"

#include "blocks/core_attention_block.h"
#include "infer_ops.h"
#include "xfa/flash_api.h"
#include "xft_api.h"

namespace xfa = baidu::xpu::xfa;
namespace xftblock = baidu::xpu::xftblock;

namespace {

template <typename T>
int rotated(api::Context* ctx, Reader& r) {
    const int64_t kind = r.number();
    const T* q = r.pointer<const T>();
    const T* k = r.pointer<const T>();
    const void* sin = r.pointer<const void>();
    const void* cos = r.pointer<const void>();
    T* q_out = r.pointer<T>();
    T* k_out = r.pointer<T>();
    const int64_t batch = r.number(), seq = r.number(), heads = r.number(), k_heads = r.number();
    const int64_t dim = r.number(), width = r.number();
    const std::vector<int64_t> shape{batch, seq, heads, dim}, freqs{batch, seq, 1, width};
    const auto* wide_sin = static_cast<const float*>(sin);
    const auto* wide_cos = static_cast<const float*>(cos);
    switch (kind) {
        case 0:
            return api::rotary_embedding_half<T, float>(ctx, q, k, wide_sin, wide_cos, nullptr,
                                                        q_out, k_out, shape, freqs, {}, 0, "BLHD",
                                                        k_heads, 10000.0f);
        case 1:
            return api::rotary_embedding_everytwo<T, float>(ctx, q, k, wide_sin, wide_cos, q_out,
                                                            k_out, shape, freqs, k_heads);
        default: break;
    }
    const auto* own_sin = static_cast<const T*>(sin);
    const auto* own_cos = static_cast<const T*>(cos);
    const std::vector<int64_t> strides{seq * heads * dim, heads * dim, dim, 1};
    const std::vector<int64_t> freqs_strides{seq * width, width, width, 1};
    if (kind == 2) {
        return api::rotary_no_freqs_qk_embedding_v2<T>(ctx, q, k, own_sin, own_cos, q_out, k_out,
                                                       shape, freqs, strides, freqs_strides,
                                                       k_heads);
    }
    return api::rotary_no_freqs_embedding_v2<T>(ctx, q, own_sin, own_cos, q_out, shape, freqs,
                                                strides, freqs_strides);
}

template <typename T>
xftblock::Tensor tensor(void* data, std::vector<int64_t> dims) {
    return {data, xftblock::DataTypeToEnum<T>::value, std::move(dims)};
}

// What both blocks are told: tensors q, k, v, out and table, then the parameters.
template <typename T>
struct Block {
    xftblock::XFTContext context;
    int64_t rows, kv_rows, table_rows;
    xftblock::TransformerParam param;
    xftblock::TransformerVsl vsl;
    xftblock::Tensor q, k, v, out, table;

    Block(api::Context* ctx, Reader& r, bool decoder)
        : context(ctx, nullptr), rows(r.number()), kv_rows(r.number()), table_rows(r.number()) {
        param.batch_size = r.number();
        param.head_num = r.number();
        param.kv_head_num = r.number();
        param.head_dim = r.number();
        param.max_valid_seqlen = r.number();
        param.max_kv_valid_seqlen = r.number();
        param.prefill_len = r.number();
        param.page_attn.block_size = r.number();
        param.page_attn.max_num_blocks_per_seq = r.number();
        param.page_attn.max_context_len =
            param.page_attn.block_size * param.page_attn.max_num_blocks_per_seq;
        param.use_page_attn = decoder;
        const int64_t row = param.head_num * param.head_dim;
        const bool paged = decoder || param.prefill_len != -1;
        std::vector<int64_t> kv{kv_rows, param.kv_head_num * param.head_dim};
        if (paged) {
            kv = {kv_rows, param.kv_head_num, param.page_attn.block_size, param.head_dim};
        }
        q = tensor<T>(r.pointer<void>(), {rows, row});
        k = tensor<T>(r.pointer<void>(), kv);
        v = tensor<T>(r.pointer<void>(), kv);
        out = tensor<T>(r.pointer<void>(), {rows, row});
        table = tensor<int32_t>(r.pointer<void>(),
                                {table_rows, param.page_attn.max_num_blocks_per_seq});
        param.page_attn.block_table = paged ? &table : nullptr;
        vsl.usual_lod_vp = r.pair();
        vsl.kv_lod_vp = r.pair();
        vsl.slot_mapping_vp = r.pair();
    }
};

template <typename T, typename TGEMM>
int decoder_block(api::Context* ctx, Reader& r) {
    Block<T> b(ctx, r, true);
    return xftblock::xft_decoder_core_attenion_block<T, T, TGEMM>(&b.context, &b.q, &b.k, &b.v,
                                                                  &b.out, b.param, b.vsl);
}

template <typename T>
int split_and_cached(api::Context* ctx, Reader& r, bool decoder, bool neox) {
    const T* qkv = r.pointer<const T>();
    const float* rotary = r.pointer<const float>();
    const int* table = r.pointer<const int>();
    T* q = r.pointer<T>();
    T* k = r.pointer<T>();
    T* v = r.pointer<T>();
    T* keys = r.pointer<T>();
    T* values = r.pointer<T>();
    const auto lod = r.pair(), rows = r.pair(), starts = r.pair();
    const int64_t batch = r.number(), length = r.number(), heads = r.number(), kv = r.number();
    const int64_t dim = r.number(), most = r.number(), size = r.number(), pages = r.number();
    const std::string type = r.text();
    const float* none = nullptr;
    const T* no_scale = nullptr;
    if (decoder && neox) {
        return infer_ops::split_neox_cache_kv_decoder<T, float, T, float, int>(
            ctx, qkv, rotary, table, q, k, v, keys, values, lod, rows, batch, 1, length, heads, kv,
            dim, most, size, pages, "BLHD", "HLD", type, none, none, none, none, false);
    }
    if (decoder) {
        return infer_ops::split_rope_cache_kv_decoder<T, float, T, float, int>(
            ctx, qkv, rotary, table, q, k, v, keys, values, lod, rows, batch, 1, length, heads, kv,
            dim, most, size, pages, "BLHD", "HLD", type, none, none, none, none, false, false);
    }
    if (neox) {
        return infer_ops::split_neox_cache_kv_encoder<T, float, T, int>(
            ctx, qkv, rotary, table, q, k, v, keys, values, lod, rows, batch, 1, length, heads, kv,
            dim, most, size, pages, "BLHD", "HLD", type, none, none, none, none, none, none, false);
    }
    return infer_ops::split_rope_cache_kv_encoder<T, float, T, int, T>(
        ctx, qkv, rotary, table, q, k, v, keys, values, lod, rows, starts, batch, 1, length, heads,
        kv, dim, most, size, pages, "BLHD", "HLD", type, none, none, no_scale, no_scale, no_scale,
        no_scale, false);
}

}  // namespace

DRIVE(rotate) {
    Reader r(*lists);
    return with_type(r.number(), [&](auto one) { return rotated<decltype(one)>(ctx, r); });
}

DRIVE(rotate_ragged) {
    Reader r(*lists);
    const int64_t type = r.number();
    const bool neox = r.number() != 0;
    return with_type(type, [&](auto one) {
        using T = decltype(one);
        const T* q = r.pointer<const T>();
        const T* k = r.pointer<const T>();
        const float* table = r.pointer<const float>();
        T* q_out = r.pointer<T>();
        T* k_out = r.pointer<T>();
        const auto lod = r.pair(), offsets = r.pair();
        const int length = static_cast<int>(r.number()), heads = static_cast<int>(r.number());
        const int k_heads = static_cast<int>(r.number()), dim = static_cast<int>(r.number());
        if (neox) {
            return api::vsl_rotary_neox_embedding<T, float, int32_t>(
                ctx, q, k, table, q_out, k_out, lod, 1, length, heads, dim, "BLHD", offsets,
                r.text(), k_heads);
        }
        return api::vsl_rotary_embedding<T, float, int32_t>(ctx, q, k, table, q_out, k_out, lod, 1,
                                                            length, heads, dim, "BLHD", offsets,
                                                            r.text(), k_heads);
    });
}

DRIVE(cache_by_sequence) {
    Reader r(*lists);
    return with_type(r.number(), [&](auto one) {
        using T = decltype(one);
        const T* x = r.pointer<const T>();
        T* cache = r.pointer<T>();
        const int32_t* table = r.pointer<const int32_t>();
        const auto lod = r.pair(), starts = r.pair(), rows = r.pair();
        const int64_t batch = r.number(), heads = r.number(), dim = r.number(), most = r.number();
        const int64_t size = r.number(), pages = r.number();
        return api::reshape_cached_kv<T, T, int32_t>(ctx, x, cache, table, lod, starts, rows, batch,
                                                     heads, dim, most, size, pages, "BLHD", "HLD");
    });
}

DRIVE(cache_by_slot) {
    Reader r(*lists);
    return with_type(r.number(), [&](auto one) {
        using T = decltype(one);
        const T* k = r.pointer<const T>();
        const T* v = r.pointer<const T>();
        T* keys = r.pointer<T>();
        T* values = r.pointer<T>();
        const int32_t* slots = r.pointer<const int32_t>();
        const int64_t tokens = r.number(), heads = r.number(), dim = r.number();
        const int64_t blocks = r.number(), size = r.number();
        return infer_ops::store_paged_kv_cache<T, T, int32_t>(ctx, k, v, keys, values, slots,
                                                              nullptr, nullptr, tokens, heads, dim,
                                                              blocks, size);
    });
}

DRIVE(split_rotate_cache) {
    Reader r(*lists);
    const int64_t type = r.number();
    const bool decoder = r.number() != 0, neox = r.number() != 0;
    return with_type(type, [&](auto one) {
        return split_and_cached<decltype(one)>(ctx, r, decoder, neox);
    });
}

// type, compute type (0 float, 1 float16, 3 tfloat32).
DRIVE(attention) {
    Reader r(*lists);
    const int64_t type = r.number(), compute = r.number();
    return with_type(type, [&](auto one) {
        using T = decltype(one);
        const T* q = r.pointer<const T>();
        const T* k = r.pointer<const T>();
        const T* v = r.pointer<const T>();
        T* out = r.pointer<T>();
        float* lse = r.pointer<float>();
        const auto q_lod = r.pair(), k_lod = r.pair();
        const int64_t max_q = r.number(), max_k = r.number(), heads = r.number();
        const int64_t kv_heads = r.number(), dim = r.number();
        const bool causal = r.number() != 0;
        const float scale = r.real();
        auto* kernel = &xfa::mha_varlen_fwd<T, float, float, int>;
        if (compute == 1) {
            kernel = &xfa::mha_varlen_fwd<T, float, float16, int>;
        } else if (compute == 3) {
            kernel = &xfa::mha_varlen_fwd<T, float, tfloat32, int>;
        }
        return kernel(ctx, q, k, v, out, lse, q_lod, k_lod, max_q, max_k, heads, kv_heads, dim,
                      scale, 0.0f, 1, causal, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    });
}

DRIVE(speculative) {
    Reader r(*lists);
    const auto* q = r.pointer<const float>();
    const auto* keys = r.pointer<const float>();
    const auto* values = r.pointer<const float>();
    auto* out = r.pointer<float>();
    const auto* table = r.pointer<const int32_t>();
    const auto lengths = r.pair(), rows = r.pair();
    const int64_t most = r.number(), qlen = r.number(), heads = r.number(), dim = r.number();
    const int64_t kv = r.number(), size = r.number(), pages = r.number(), window = r.number();
    return xfa::speculative_attention_decoder<float, float, float, float, float, float, int32_t, 0>(
        ctx, out, q, nullptr, nullptr, keys, values, table, lengths, rows, most, qlen, size * pages,
        heads, dim, kv, nullptr, r.real(), size, pages, window);
}

DRIVE(context_attention) {
    Reader r(*lists);
    return with_type(r.number(), [&](auto one) {
        using T = decltype(one);
        Block<T> b(ctx, r, false);
        return xftblock::xft_context_core_attenion_block<T, T, float>(&b.context, &b.q, &b.k, &b.v,
                                                                      &b.out, b.param, b.vsl);
    });
}

// type, whether it computes in the type of q.
DRIVE(decoder_attention) {
    Reader r(*lists);
    const int64_t type = r.number();
    const bool narrow = r.number() != 0;
    if (narrow && type == 2) {
        return decoder_block<bfloat16, bfloat16>(ctx, r);
    }
    return with_type(type, [&](auto one) { return decoder_block<decltype(one), float>(ctx, r); });
}

// Splits into scratch of the context, then copies the parts out.
DRIVE(split_joint) {
    Reader r(*lists);
    return with_type(r.number(), [&](auto one) {
        using T = decltype(one);
        const int64_t tokens = r.number(), heads = r.number(), kv = r.number(), dim = r.number();
        xftblock::XFTContext context(ctx, nullptr);
        auto guard = context.get_rt_guard();
        auto qkv = tensor<T>(r.pointer<void>(), {tokens, (heads + 2 * kv) * dim});
        xftblock::Tensor q(guard, xftblock::DataTypeToEnum<T>::value, {tokens, heads * dim}, false,
                           false);
        auto k = tensor<T>(r.pointer<void>(), {tokens, kv * dim});
        auto v = tensor<T>(r.pointer<void>(), {tokens, kv * dim});
        const int status = xftblock::split_qkv_block<T>(&context, &qkv, &q, &k, &v, tokens, heads,
                                                        kv, dim);
        const auto bytes = static_cast<int64_t>(sizeof(T)) * tokens * heads * dim;
        const int64_t elements = qkv.numel() - k.numel() - v.numel();
        if (elements != q.numel() || elements != tokens * heads * dim) {
            return -1;
        }
        const int copied = api::copy<int8_t>(ctx, q.data<int8_t>(), r.pointer<int8_t>(), bytes);
        return status != 0 ? status : copied;
    });
}

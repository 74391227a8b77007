// Attention of one sequence: scores and sums in float, operands rounded to the compute type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "llm/engine/call.h"
#include "llm/engine/compute.h"
#include "llm/engine/numbers.h"
#include "llm/engine/pages.h"
#include "llm/engine/tile.h"

namespace xpusim {
namespace llm {

struct AttentionShape {
    int64_t heads;
    int64_t kv_heads;
    int64_t dim;
    float scale;
    bool causal;  // the last query sees the last key
    Compute compute;

    int64_t group() const { return heads / kv_heads; }
};

// Head sizes that the vendor's attention takes (vLLM-Kunlun's list).
inline bool is_head_size(int64_t dim) {
    for (int64_t size : {32, 64, 80, 96, 112, 120, 128, 192, 256, 512}) {
        if (dim == size) {
            return true;
        }
    }
    return false;
}

inline void attention_rules(Call& call, const AttentionShape& shape) {
    call.shape({shape.heads, shape.dim}, "heads").shape({shape.kv_heads, shape.dim}, "KV heads");
    call.rule(is_head_size(shape.dim), "head size");
    call.rule(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
              "heads are no multiple of the KV heads");
}

inline float default_scale(int64_t dim) {
    return 1.0f / std::sqrt(static_cast<float>(dim));
}

// Keys and values that lie token after token: [tokens, kv heads, dim] from `first` on.
template <typename T>
struct Contiguous {
    const T* k;
    const T* v;
    int64_t first;
    int64_t kv_heads;
    int64_t dim;

    void read(int64_t head, int64_t count, float* keys, float* values) const {
        for (int64_t t = 0; t < count; ++t) {
            const int64_t from = ((first + t) * kv_heads + head) * dim;
            to_floats(k + from, keys + t * dim, dim);
            to_floats(v + from, values + t * dim, dim);
        }
    }
};

// Keys and values on the pages of row `row` of a table; k and v are device addresses.
template <typename T>
struct Paged {
    const T* k;
    const T* v;
    const Pages& pages;
    const PageShape& shape;
    int64_t row;

    void read(int64_t head, int64_t count, float* keys, float* values) const {
        for (int64_t t = 0; t < count; t += shape.block_size) {
            const int64_t block = pages.block_of(row, t);
            const int64_t from = block * shape.block_numel() + head * shape.block_size * shape.dim;
            const int64_t part = std::min(shape.block_size, count - t) * shape.dim;
            to_floats(at(k + from, part), keys + t * shape.dim, part);
            to_floats(at(v + from, part), values + t * shape.dim, part);
        }
    }
};

// Scores of one query with the first `count` keys.
inline void score(const float* query, const float* keys, int64_t count, int64_t dim, float scale,
                  float* scores) {
    for (int64_t t = 0; t < count; t += kTileW) {
        const int64_t rows = std::min<int64_t>(kTileW, count - t);
        const float* at_key[kTileW];
        for (int64_t i = 0; i < rows; ++i) {
            at_key[i] = keys + (t + i) * dim;
        }
        dot_rows(at_key, rows, query, dim, 1, dim, scores + t, kTileW);
    }
    for (int64_t t = 0; t < count; ++t) {
        scores[t] *= scale;
    }
}

// Scores become weights that are not yet divided by their sum. Returns the sum's logarithm.
inline float weigh(float* scores, int64_t count, float* sum) {
    const float max = *std::max_element(scores, scores + count);
    *sum = 0.0f;
    for (int64_t t = 0; t < count; ++t) {
        scores[t] = std::exp(scores[t] - max);
        *sum += scores[t];
    }
    return max + std::log(*sum);
}

inline void mix(const float* weights, const float* values, int64_t count, int64_t dim, float sum,
                float* out) {
    std::fill(out, out + dim, 0.0f);
    for (int64_t t = 0; t < count; ++t) {
        const float weight = weights[t];
        const float* value = values + t * dim;
        for (int64_t d = 0; d < dim; ++d) {
            out[d] += weight * value[d];
        }
    }
    for (int64_t d = 0; d < dim; ++d) {
        out[d] /= sum;
    }
}

// Where the logarithms of the sums go: head h's query i at lse[h * ld + i]; null: nowhere.
struct Logarithms {
    float* lse = nullptr;
    int64_t ld = 0;
};

// q and out are rows [q_count, heads, dim] of one sequence with kv_count keys.
template <typename T, typename TO, typename Source>
void attend(const AttentionShape& shape, const Source& source, const T* q, TO* out,
            int64_t q_count, int64_t kv_count, const Logarithms& logs = {}) {
    const int64_t dim = shape.dim, panel = kv_count * dim;
    std::vector<float> keys(panel), values(panel), scores(kv_count + kTileW), query(dim);
    std::vector<float> mixed(dim);
    for (int64_t g = 0; g < shape.kv_heads; ++g) {
        source.read(g, kv_count, keys.data(), values.data());
        round_operand(shape.compute, 0.0f, keys.data(), panel);
        round_operand(shape.compute, 0.0f, values.data(), panel);
        for (int64_t n = 0; n < shape.group() * q_count; ++n) {
            const int64_t h = g * shape.group() + n / q_count, i = n % q_count;
            const int64_t seen = shape.causal ? kv_count - q_count + i + 1 : kv_count;
            const int64_t at_head = (i * shape.heads + h) * dim;
            float sum = 0.0f;
            to_floats(q + at_head, query.data(), dim);
            round_operand(shape.compute, 0.0f, query.data(), dim);
            score(query.data(), keys.data(), seen, dim, shape.scale, scores.data());
            const float log = weigh(scores.data(), seen, &sum);
            round_operand(shape.compute, 0.0f, scores.data(), seen);
            mix(scores.data(), values.data(), seen, dim, sum, mixed.data());
            from_floats(mixed.data(), out + at_head, dim);
            if (logs.lse != nullptr) {
                logs.lse[h * logs.ld + i] = log;
            }
        }
    }
}

}  // namespace llm
}  // namespace xpusim

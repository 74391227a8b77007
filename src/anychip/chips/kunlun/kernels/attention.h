// Attention over a paged cache, row by row of the batch.
#pragma once

#include "compose.h"

namespace shim {

// The operands of a call, by name. Indices are known on the host: `reads_host`.
struct Attention {
    View q;  // [tokens, heads, dim]
    View k;  // [pages, page size, KV heads, dim]; a head's slots of one page lie together
    View v;
    View page_table;  // [rows, pages of a row]
    View y;
    const int32_t* lengths;
    const int32_t* positions;
    const int32_t* rows;
    const int* device_positions;
    double scale;
    bool causal;
    int64_t window;
    double softcap;
};

Attention attention_of(Run& run);

// A run of tokens of one row of the batch. row -1: tokens that belong to none.
struct Stretch {
    int64_t first;
    int64_t tokens;
    int64_t row;
};

std::vector<Stretch> stretches(const Attention& call);

// Every row by products, exponents and sums: any head size, window, soft cap or scale.
void compose_attention(Run& run, const Attention& call);

}  // namespace shim

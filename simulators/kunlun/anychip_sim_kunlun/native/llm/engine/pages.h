// Pages of a cache [blocks, kv heads, block size, dim], and the tables that name them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llm/engine/call.h"
#include "llm/engine/numbers.h"

namespace xpusim {
namespace llm {

struct PageShape {
    int64_t blocks;  // 0: not told; then only the allocation bounds a page
    int64_t kv_heads;
    int64_t block_size;
    int64_t dim;

    int64_t block_numel() const { return kv_heads * block_size * dim; }
    int64_t numel() const { return blocks * block_numel(); }
};

// Rows of pages; row r, page p of it at table[r * pages + p].
struct PageTable {
    const int32_t* device;
    int64_t rows;
    int64_t pages;
};

// Pages and table can be addressed; where the number of blocks is unknown, one block.
inline void page_rules(Call& call, const PageShape& pages, const PageTable& table) {
    const int64_t blocks = pages.blocks == 0 ? 1 : pages.blocks;
    call.shape({blocks, pages.kv_heads, pages.block_size, pages.dim}, "cache");
    call.shape({table.rows, table.pages}, "block table");
    call.shape({table.pages, pages.block_size}, "tokens of a table row");
}

// The table in the kernel.
class Pages {
public:
    Pages(const PageTable& table, const PageShape& shape)
        : shape_(shape), pages_(table.pages) {
        ids_ = at(table.device, table.rows * table.pages);
    }

    int64_t block_of(int64_t row, int64_t position) const {
        const int64_t page = position / shape_.block_size;
        const int64_t block = page < pages_ ? ids_[row * pages_ + page] : -1;
        if (block < 0 || (shape_.blocks > 0 && block >= shape_.blocks)) {
            fault("position " + std::to_string(position) + " of table row " +
                           std::to_string(row) + " has no page");
        }
        return block;
    }

private:
    PageShape shape_;
    int64_t pages_;
    const int32_t* ids_;
};

// One token's heads [kv heads, dim] into its place.
template <typename TX, typename TC>
void put_token(const TX* token, TC* cache, const PageShape& shape, int64_t block, int64_t row) {
    std::vector<float> head(static_cast<size_t>(shape.dim));
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
        TC* to = cache + block * shape.block_numel() + (h * shape.block_size + row) * shape.dim;
        to_floats(token + h * shape.dim, head.data(), shape.dim);
        from_floats(head.data(), to, shape.dim);
    }
}

// The same where the number of blocks is unknown: each block is reached by itself.
template <typename TX, typename TC>
void put_token_alone(const TX* token, TC* cache_device, PageShape shape, int64_t block,
                     int64_t row) {
    TC* cache = at(cache_device + block * shape.block_numel(), shape.block_numel());
    put_token(token, cache, shape, 0, row);
}

}  // namespace llm
}  // namespace xpusim

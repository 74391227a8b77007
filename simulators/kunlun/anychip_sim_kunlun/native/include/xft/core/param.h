// What an attention block is told. Field names from FastDeploy's call sites; the order is ours.
#pragma once

#include <cstdint>

#include "context.h"

namespace baidu {
namespace xpu {
namespace xftblock {

struct DLL_EXPORT PageAttnParam {
    int64_t block_size = 0;
    int64_t max_context_len = 0;
    int64_t max_num_blocks_per_seq = 0;
    Tensor* block_table = nullptr;  // int32 [rows, max_num_blocks_per_seq]
};

struct DLL_EXPORT TransformerParam {
    int64_t batch_size = 0;
    int64_t head_num = 0;
    int64_t kv_head_num = 0;
    int64_t head_dim = 0;
    int64_t max_batch_size = 0;
    int64_t max_seq_len = 0;
    int64_t max_valid_seqlen = 0;     // longest part of a sequence in this call
    int64_t max_kv_valid_seqlen = 0;  // longest sequence, with what is cached
    int64_t prefill_len = -1;         // -1: keys and values are this call's, not the cache's
    bool use_page_attn = false;
    bool use_cache_per_channel = false;  // int8 caches: maxima a channel, not a head
    PageAttnParam page_attn;
};

// Lengths, each in a host copy and, where given, a device copy.
struct DLL_EXPORT TransformerVsl {
    api::VectorParam<int32_t> usual_lod_vp{nullptr, 0, nullptr};
    api::VectorParam<int32_t> kv_lod_vp{nullptr, 0, nullptr};
    api::VectorParam<int32_t> slot_mapping_vp{nullptr, 0, nullptr};  // rows of the block table
};

}  // namespace xftblock
}  // namespace xpu
}  // namespace baidu

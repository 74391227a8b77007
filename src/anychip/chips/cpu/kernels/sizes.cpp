// Sizes of the structs of abi.h, for the check when the library is loaded.
#include <cstring>

#include "abi.h"

using namespace anychip;

EXPORT int64_t anychip_struct_size(const char* function) {
  const struct {
    const char* function;
    int64_t size;
  } sizes[] = {
      {"embedding", sizeof(EmbeddingArgs)},
      {"norm", sizeof(NormArgs)},
      {"rotary", sizeof(RotaryArgs)},
      {"linear", sizeof(LinearArgs)},
      {"pack", sizeof(PackArgs)},
      {"activation", sizeof(ActivationArgs)},
      {"swiglu_clamp", sizeof(ClampArgs)},
      {"route_experts", sizeof(RouteArgs)},
      {"grouped_linear", sizeof(GroupedArgs)},
      {"expert_mlp", sizeof(ExpertArgs)},
      {"qk_norm", sizeof(HeadNormArgs)},
      {"expanded_attention", sizeof(ExpandedArgs)},
      {"kv_write", sizeof(CacheWriteArgs)},
      {"kv_copy_pages", sizeof(PageCopyArgs)},
      {"attention", sizeof(AttentionArgs)},
      {"mlp_block", sizeof(MlpBlockArgs)},
      {"attention_block", sizeof(AttentionBlockArgs)},
      {"causal_conv1d", sizeof(ConvArgs)},
      {"gated_delta_rule", sizeof(DeltaArgs)},
      {"gather_rows", sizeof(RowsArgs)},
      {"scatter_rows", sizeof(RowsArgs)},
      {"softmax", sizeof(LogitsArgs)},
      {"greedy", sizeof(LogitsArgs)},
      {"sample", sizeof(SampleArgs)},
      {"mask_logits", sizeof(MaskArgs)},
      {"adjust_logits", sizeof(AdjustArgs)},
      {"token_logprobs", sizeof(LogprobArgs)},
      {"top_logprobs", sizeof(TopArgs)},
      {"elements", sizeof(ElementArgs)},
  };
  for (const auto& entry : sizes) {
    if (std::strcmp(entry.function, function) == 0) return entry.size;
  }
  return -1;
}

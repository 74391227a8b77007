// Attention over a paged cache, prefill and decode alike.
//
// Keys are taken in blocks of KEYS positions and segments of SEGMENT positions, both counted from
// position 0, so the order of every sum depends on positions alone: not on the page size, not on
// how a prompt was cut, not on what shares the batch. Within a segment runs the online softmax
// (maximum m, sum l, output o); segments are merged in order. A block in which a token sees nothing
// leaves its m, l and o untouched; a masked key has weight exactly 0.
#include "attention_amx.h"
#include "attention_dots.h"
#include "attention_floats.h"
#include "attention_flow.h"

using namespace anychip;

EXPORT int64_t anychip_attention_workspace(const AttentionArgs* args, int64_t threads) {
  int64_t floats = attention::Attention<attention::Floats<float>>::workspace(*args, threads);
#ifdef ANYCHIP_DOT_BF16
  if (attention::Dots::typed(*args)) {
    floats = std::max(floats, attention::Attention<attention::Dots>::workspace(*args, threads));
  }
#endif
#ifdef ANYCHIP_AMX
  int64_t tiled = amx::typed(*args) ? amx::attention_workspace(*args, threads) : 0;
  floats = tiled > floats ? tiled : floats;
#endif
  return floats * static_cast<int64_t>(sizeof(float));
}

EXPORT int32_t anychip_attention(const AttentionArgs* args) {
  if (args->tokens == 0) return OK;
#ifdef ANYCHIP_AMX
  if (amx::takes(*args)) return amx::Attention(*args).run();
#endif
#ifdef ANYCHIP_DOT_BF16
  if (attention::Dots::takes(*args)) return attention::Attention<attention::Dots>(*args).run();
#endif
  int32_t status = OK;
  with_activation(args->type, [&](auto* x) {
    status = attention::Attention<attention::Floats<std::remove_pointer_t<decltype(x)>>>(*args).run();
  });
  return status;
}

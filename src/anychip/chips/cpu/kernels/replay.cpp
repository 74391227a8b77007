// A prepared list of calls, run one after another: a step is one call from Python.
#include "abi.h"

namespace {

struct PreparedCall {
  int32_t (*function)(const void*);
  const void* arguments;
};

}  // namespace

// Returns count, or the index of the first call that failed; its status goes to *status.
EXPORT int64_t anychip_replay(const void* list, int64_t count, int32_t* status) {
  const PreparedCall* calls = static_cast<const PreparedCall*>(list);
  for (int64_t i = 0; i < count; ++i) {
    *status = calls[i].function(calls[i].arguments);
    if (*status != 0) return i;
  }
  return count;
}

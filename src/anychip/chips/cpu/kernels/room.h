// A workspace cut into parts, and sizes of what lies in it.
#pragma once
#include <cstdint>

#include "simd.h"

namespace anychip {

// Bytes of an activation's element.
inline int64_t size_of(int64_t type) { return type == 0 ? 4 : 2; }

struct Room {  // a part of the workspace, moved past
  uint8_t* at;
  uint8_t* take(int64_t bytes) {
    uint8_t* taken = at;
    at += round_up(bytes, 64);
    return taken;
  }
};

}  // namespace anychip

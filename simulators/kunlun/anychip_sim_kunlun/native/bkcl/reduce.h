// Sums, products and extremes over the ranks' chunks, always in rank order: every rank that does
// it gets the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "xpu/bkcl.h"

namespace bkclsim {

// Bytes of one element, 0 where the type is none of the enum's.
size_t size_of(BKCLDataType dtype);

// target[i] = sources[0][i] op sources[1][i] op ...; target may be one of the sources.
// The 16-bit floats are accumulated in float32; integers wrap around.
void combine(BKCLDataType dtype, BKCLOp op, const std::vector<const void*>& sources,
             void* target, uint64_t count);

}  // namespace bkclsim

// A weight whose parts do not lie as one row of panels: parts of different formats, parts whose columns
// were sorted, or parts that round their activations each in a way of its own. It begins with a table;
// memory_parts.py writes it.
#pragma once
#include "abi.h"

namespace anychip {

constexpr int64_t SEGMENTS = 18;  // the format of all of it

struct Segment {   // places in bytes from the weight's first one; order: 0, or where int32 [K] begin
  int64_t rows, format, panels, order;
  float scale;     // of activations, 0 where each row has its own
  int32_t zero;
};

struct Segments {
  int64_t count;
  const Segment* begin() const { return reinterpret_cast<const Segment*>(this + 1); }
  const Segment* end() const { return begin() + count; }
  const uint8_t* at(int64_t place) const { return reinterpret_cast<const uint8_t*>(this) + place; }
  const int32_t* order_of(const Segment& s) const { return reinterpret_cast<const int32_t*>(at(s.order)); }
};

inline const Segments& segments_of(const uint8_t* weight) { return *reinterpret_cast<const Segments*>(weight); }

}  // namespace anychip

// Rotation of one head by an angle per pair of elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llm/engine/numbers.h"

namespace xpusim {
namespace llm {

// How elements pair up: i with i + width/2, or 2i with 2i + 1.
enum class Pairing { kHalves, kNeighbours };

// Cosines and sines of one position. `full`: one an element, else one a pair.
struct Angles {
    const float* cos;
    const float* sin;
    bool full;
};

// The first `width` elements of x; each element takes its own sine and cosine where there are so
// many. x and out may be the same.
inline void rotate(const float* x, float* out, int64_t width, Pairing pairing, const Angles& by) {
    const int64_t pairs = width / 2;
    for (int64_t i = 0; i < pairs; ++i) {
        const int64_t a = pairing == Pairing::kHalves ? i : 2 * i;
        const int64_t b = pairing == Pairing::kHalves ? i + pairs : 2 * i + 1;
        const int64_t at_a = by.full ? a : i, at_b = by.full ? b : i;
        const float first = x[a], second = x[b];
        out[a] = first * by.cos[at_a] - second * by.sin[at_a];
        out[b] = second * by.cos[at_b] + first * by.sin[at_b];
    }
}

// `heads` heads of `dim` elements, of which the first `width` turn and the rest is copied.
template <typename T>
void rotate_heads(const T* x, T* out, int64_t heads, int64_t dim, int64_t width, Pairing pairing,
                  const Angles& by) {
    std::vector<float> head(static_cast<size_t>(dim));
    for (int64_t h = 0; h < heads; ++h) {
        to_floats(x + h * dim, head.data(), dim);
        rotate(head.data(), head.data(), width, pairing, by);
        from_floats(head.data(), out + h * dim, dim);
    }
}

// A table [2, 1, length, 1, width]: cosines of all positions, then sines.
struct RotaryTable {
    const float* device;
    int64_t length;
    int64_t width;
    bool full;

    int64_t numel() const { return 2 * length * width; }
    // In the kernel, `table` being the host's view.
    Angles at_position(const float* table, int64_t position) const {
        return {table + position * width, table + (length + position) * width, full};
    }
};

// Whether the name is known; width of the table's rows for heads of `dim`.
inline bool is_table_type(const std::string& type) {
    return type == "NORMAL" || type == "NEOX" || type == "HALF_HEAD_DIM";
}
inline RotaryTable rotary_table(const float* device, int64_t length, int64_t dim,
                                const std::string& type) {
    const bool half = type == "HALF_HEAD_DIM";
    return {device, length, half ? dim / 2 : dim, !half};
}

}  // namespace llm
}  // namespace xpusim

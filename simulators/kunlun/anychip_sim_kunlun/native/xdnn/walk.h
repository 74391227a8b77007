// Walks over shapes with one offset per operand: strides in elements, 0 where an operand repeats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "call.h"

namespace xpusim {

Shape dense_strides(const Shape& shape);

// Whether `small` stretches to `wide`: aligned at the last dimension, equal or 1.
bool stretches(const Shape& small, const Shape& wide);
// The common shape of two that broadcast, empty where they do not.
Shape broadcast_shape(const Shape& a, const Shape& b);
// Strides of a dense tensor of `shape` seen as `wide`.
Shape stretched_strides(const Shape& shape, const Shape& wide);

// An element offset for each of N operands at every row of a shape, the row being its last
// dimension after dimensions that allow it were merged.
template <size_t N>
class Rows {
public:
    Rows(Shape shape, std::array<Shape, N> strides)
        : shape_(std::move(shape)), strides_(std::move(strides)) {
        merge();
    }

    int64_t length() const { return shape_.back(); }
    int64_t step(size_t operand) const { return strides_[operand].back(); }

    template <typename F>
    void each(F row) const {
        std::array<int64_t, N> offset{};
        Shape index(shape_.size(), 0);
        for (int64_t left = product(shape_) / length(); left > 0; --left) {
            row(offset);
            advance(index, offset);
        }
    }

private:
    void advance(Shape& index, std::array<int64_t, N>& offset) const {
        for (size_t d = shape_.size() - 1; d-- > 0;) {
            ++index[d];
            for (size_t n = 0; n < N; ++n) {
                offset[n] += strides_[n][d];
            }
            if (index[d] < shape_[d]) {
                return;
            }
            for (size_t n = 0; n < N; ++n) {
                offset[n] -= strides_[n][d] * index[d];
            }
            index[d] = 0;
        }
    }

    bool merges(size_t outer, size_t inner) const {
        for (const Shape& strides : strides_) {
            if (strides[outer] != strides[inner] * shape_[inner]) {
                return false;
            }
        }
        return true;
    }

    void drop(size_t d) {
        shape_.erase(shape_.begin() + static_cast<int64_t>(d));
        for (Shape& strides : strides_) {
            strides.erase(strides.begin() + static_cast<int64_t>(d));
        }
    }

    void merge() {
        for (size_t d = shape_.size(); d-- > 0;) {
            if (shape_[d] == 1 && shape_.size() > 1) {
                drop(d);
            }
        }
        for (size_t d = shape_.size() - 1; d-- > 0;) {
            if (merges(d, d + 1)) {
                shape_[d + 1] *= shape_[d];
                drop(d);
            }
        }
    }

    Shape shape_;
    std::array<Shape, N> strides_;
};

}  // namespace xpusim

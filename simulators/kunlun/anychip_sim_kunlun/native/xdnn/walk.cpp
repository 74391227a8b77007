#include "walk.h"

#include <algorithm>

namespace xpusim {

Shape dense_strides(const Shape& shape) {
    Shape strides(shape.size(), 1);
    for (size_t d = shape.size() - 1; d-- > 0;) {
        strides[d] = strides[d + 1] * shape[d + 1];
    }
    return strides;
}

bool stretches(const Shape& small, const Shape& wide) {
    if (small.size() > wide.size()) {
        return false;
    }
    const size_t lead = wide.size() - small.size();
    for (size_t d = 0; d < small.size(); ++d) {
        if (small[d] != wide[lead + d] && small[d] != 1) {
            return false;
        }
    }
    return true;
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
    const Shape& longer = a.size() >= b.size() ? a : b;
    const Shape& shorter = a.size() >= b.size() ? b : a;
    Shape wide = longer;
    const size_t lead = longer.size() - shorter.size();
    for (size_t d = 0; d < shorter.size(); ++d) {
        wide[lead + d] = std::max(wide[lead + d], shorter[d]);
    }
    return stretches(a, wide) && stretches(b, wide) ? wide : Shape{};
}

Shape stretched_strides(const Shape& shape, const Shape& wide) {
    Shape strides(wide.size(), 0);
    const Shape dense = dense_strides(shape);
    const size_t lead = wide.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
        strides[lead + d] = shape[d] == 1 ? 0 : dense[d];
    }
    return strides;
}

}  // namespace xpusim

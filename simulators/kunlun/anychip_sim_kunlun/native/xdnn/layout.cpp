// as_strided, transpose, broadcast: a dense output from a view of x.
#include <algorithm>

#include "call.h"
#include "walk.h"
#include "xpu/refactor/math.h"

namespace xpusim {
namespace {

constexpr int64_t kMost = int64_t{1} << 60;

// Elements from the first to the last that a view touches; 0 where they cannot be counted.
int64_t span(const Shape& shape, const Shape& strides) {
    int64_t last = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
        int64_t reach = 0;
        if (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach) ||
            __builtin_add_overflow(last, reach, &last)) {
            return 0;
        }
    }
    return last < kMost ? last + 1 : 0;
}

template <typename T>
void gather_row(const T* x, int64_t step, T* y, int64_t count) {
    if (step == 1) {
        std::copy_n(x, count, y);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        y[i] = x[i * step];
    }
}

template <typename T>
void copy_view(const T* x, T* y, const Shape& shape, const Shape& strides) {
    const T* from = at(x, span(shape, strides));
    T* to = at(y, product(shape));
    const Rows<2> rows(shape, {strides, dense_strides(shape)});
    rows.each([&](const std::array<int64_t, 2>& offset) {
        gather_row(from + offset[0], rows.step(0), to + offset[1], rows.length());
    });
}

bool is_permutation(const Shape& permute, size_t rank) {
    Shape sorted = permute;
    std::sort(sorted.begin(), sorted.end());
    for (size_t d = 0; d < sorted.size(); ++d) {
        if (sorted[d] != static_cast<int64_t>(d)) {
            return false;
        }
    }
    return permute.size() == rank;
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

template <typename T>
int as_strided(Context* ctx, const T* x, T* y, const std::vector<int64_t>& yshape,
               const std::vector<int64_t>& strides, const int64_t& offset) {
    xpusim::Call call(ctx, "as_strided");
    call.shape(yshape, "yshape").device(x, "x").device(y, "y").apart(x, y);
    call.rule(strides.size() == yshape.size(), "one stride a dimension");
    call.rule(std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s >= 0; }),
              "strides must not be negative");
    call.rule(offset >= 0 && offset < xpusim::kMost, "offset out of range");
    call.rule(!call.holds() || xpusim::span(yshape, strides) > 0, "strides too large");
    const int64_t start = offset;
    return call.run([=] { xpusim::copy_view(x + start, y, yshape, strides); });
}

template <typename T>
int transpose(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
              const std::vector<int64_t>& permute) {
    xpusim::Call call(ctx, "transpose");
    call.shape(xshape, "xshape").device(x, "x").device(y, "y").apart(x, y);
    call.rule(xpusim::is_permutation(permute, xshape.size()), "permute must name each dimension");
    return call.run([=] {
        const xpusim::Shape dense = xpusim::dense_strides(xshape);
        xpusim::Shape shape, strides;
        for (int64_t d : permute) {
            shape.push_back(xshape[static_cast<size_t>(d)]);
            strides.push_back(dense[static_cast<size_t>(d)]);
        }
        xpusim::copy_view(x, y, shape, strides);
    });
}

template <typename T>
int broadcast(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape,
              const std::vector<int64_t>& yshape) {
    xpusim::Call call(ctx, "broadcast");
    call.shape(xshape, "xshape").shape(yshape, "yshape");
    call.device(x, "x").device(y, "y").apart(x, y);
    call.rule(xpusim::stretches(xshape, yshape), "xshape does not broadcast to yshape");
    return call.run([=] {
        xpusim::copy_view(x, y, yshape, xpusim::stretched_strides(xshape, yshape));
    });
}

using Dims = std::vector<int64_t>;

#define AS_STRIDED(T) \
    template int as_strided<T>(Context*, const T*, T*, const Dims&, const Dims&, const int64_t&);
AS_STRIDED(float)
AS_STRIDED(float16)
AS_STRIDED(int8_t)
AS_STRIDED(int32_t)
AS_STRIDED(int64_t)
AS_STRIDED(bool)

#define SHAPED(name, T) \
    template int name<T>(Context*, const T*, T*, const Dims&, const Dims&);
#define SHAPED_EACH(name) \
    SHAPED(name, float)   \
    SHAPED(name, float16) \
    SHAPED(name, bfloat16) \
    SHAPED(name, int32_t) \
    SHAPED(name, int64_t) \
    SHAPED(name, bool)
SHAPED_EACH(transpose)
SHAPED_EACH(broadcast)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

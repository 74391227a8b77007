// z = condition ? x : y.
#include "call.h"
#include "walk.h"
#include "xpu/refactor/math.h"

namespace xpusim {
namespace {

template <typename T>
void choose(const uint8_t* condition, int64_t step, const T* x, const T* y, T* z, int64_t len) {
    for (int64_t i = 0; i < len; ++i) {
        z[i] = condition[i * step] != 0 ? x[i] : y[i];
    }
}

template <typename T>
void select_all(const bool* condition, const T* x, const T* y, T* z, const Shape& condition_shape,
                const Shape& shape) {
    const bool* flags = at(condition, product(condition_shape));
    const auto* bytes = reinterpret_cast<const uint8_t*>(flags);
    const int64_t count = product(shape);
    const T* a = at(x, count);
    const T* b = at(y, count);
    T* out = at(z, count);
    const Rows<2> rows(shape, {stretched_strides(condition_shape, shape), dense_strides(shape)});
    rows.each([&](const std::array<int64_t, 2>& offset) {
        choose(bytes + offset[0], rows.step(0), a + offset[1], b + offset[1], out + offset[1],
               rows.length());
    });
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

template <typename T>
int select(Context* ctx, const bool* condition, const T* x, const T* y, T* z,
           const std::vector<int64_t>& condition_shape, const std::vector<int64_t>& xshape) {
    xpusim::Call call(ctx, "select");
    call.shape(condition_shape, "condition_shape").shape(xshape, "xshape");
    call.device(condition, "condition").device(x, "x").device(y, "y").device(z, "z");
    call.rule(xpusim::stretches(condition_shape, xshape), "condition does not broadcast to x");
    return call.run([=] { xpusim::select_all(condition, x, y, z, condition_shape, xshape); });
}

using Dims = std::vector<int64_t>;

#define SELECT(T)                                                                             \
    template int select<T>(Context*, const bool*, const T*, const T*, T*, const Dims&,        \
                           const Dims&);
SELECT(float)
SELECT(float16)
SELECT(bfloat16)
SELECT(int32_t)
SELECT(int64_t)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

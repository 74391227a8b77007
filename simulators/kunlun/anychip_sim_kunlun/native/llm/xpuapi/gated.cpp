// Gated activation of libxpuapi.
#include <vector>

#include "llm/engine/activate.h"
#include "llm/engine/call.h"
#include "llm/engine/numbers.h"
#include "xpu/refactor/nn.h"

namespace baidu {
namespace xpu {
namespace api {

namespace llm = xpusim::llm;

namespace {

template <typename T>
void gate(const T* x_from, T* y_to, int64_t rows, int64_t half, bool turn) {
    const T* x = xpusim::at(x_from, rows * 2 * half);
    T* y = xpusim::at(y_to, rows * half);
    std::vector<float> row(static_cast<size_t>(2 * half));
    for (int64_t r = 0; r < rows; ++r) {
        llm::to_floats(x + r * 2 * half, row.data(), 2 * half);
        float* gated = row.data() + (turn ? 0 : half);
        const float* other = row.data() + (turn ? half : 0);
        for (int64_t i = 0; i < half; ++i) {
            gated[i] = gated[i] * llm::sigmoid(gated[i]) * other[i];
        }
        llm::from_floats(gated, y + r * half, half);
    }
}

}  // namespace

template <typename T>
int fast_swiglu(Context* ctx, const T* x, T* y, const std::vector<int64_t>& xshape, int64_t axis,
                bool turn, const float* max_x, float* max_y) {
    llm::Call call(ctx, "api::fast_swiglu");
    call.device(x, "x").device(y, "y").shape(xshape, "x");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    const int64_t last = xshape.back(), rows = xpusim::product(xshape) / last;
    call.rule(axis == static_cast<int64_t>(xshape.size()) - 1, "axis is not the last one");
    call.rule(last % 2 == 0, "the axis has no two halves");
    call.rule(last * static_cast<int64_t>(sizeof(T)) % 16 == 0, "a row is no multiple of 16 bytes");
    call.served(max_x == nullptr && max_y == nullptr, "maxima");
    return call.run([=] { gate(x, y, rows, last / 2, turn); });
}

#define GATED(T)                                                                               \
    template DLL_EXPORT int fast_swiglu<T>(Context*, const T*, T*, const std::vector<int64_t>&, \
                                           int64_t, bool, const float*, float*);
GATED(float)
GATED(float16)
GATED(bfloat16)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

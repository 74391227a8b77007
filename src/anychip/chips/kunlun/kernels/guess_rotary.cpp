// Rotation of queries and keys. A file of its own: the header that declares these calls is not
// public, only calls are, which leave some of their arguments out.
#include <algorithm>

#include "compose.h"

using namespace shim;

namespace {

template <class T>
void rotate(Run& run, bool halves) {
    const Array<T> q = dense<T>(run, run.view(0));
    const Array<T> k = dense<T>(run, run.view(1));
    const Array<float> table = floats(run, run.view(3));
    const Array<int> positions = integers(run, run.view(2));
    const int64_t tokens = q.shape[0];
    const int64_t width = table.shape[1];
    // Rows of whole heads: the workspace must not shrink where less of them is rotated.
    const int64_t room = tokens * std::max(width, q.shape[2]);
    const Array<float> rows = rows_of(run, table, positions, run.take<float>(room));
    const Array<float> cosines{run.take<float>(room), {1, tokens, 1, width}};
    const Array<float> sines{run.take<float>(room), {1, tokens, 1, width}};
    // The vendor's rows are as wide as what is rotated: each number stands twice, as the pairs lie.
    const int64_t half = width / 2;
    const Shape shape = halves ? Shape{tokens, 2, half} : Shape{tokens, half, 2};
    const Shape strides = halves ? Shape{width, 0, 1} : Shape{width, 1, 0};
    VENDOR(run, api::as_strided<float>, rows.at, cosines.at, shape, strides, int64_t{0});
    VENDOR(run, api::as_strided<float>, rows.at, sines.at, shape, strides, half);
    const Shape given{1, tokens, q.shape[1], q.shape[2]};
    auto* q_out = static_cast<T*>(run.view(4).at);
    auto* k_out = static_cast<T*>(run.view(5).at);
    if (halves) {
        const float* none = nullptr;
        VENDOR(run, (api::rotary_embedding_half<T, float>), q.at, k.at, sines.at, cosines.at, none,
               q_out, k_out, given, cosines.shape, Shape{}, int64_t{0}, "BLHD", k.shape[1],
               10000.0f);
    } else {
        VENDOR(run, (api::rotary_embedding_everytwo<T, float>), q.at, k.at, sines.at, cosines.at,
               q_out, k_out, given, cosines.shape, k.shape[1], 10000.0f);
    }
}

}  // namespace

OPERATOR(rotary_embedding) {
    const View output = run.view(4);
    if (output.size() != 0) {
        const bool halves = run.attribute(1) != 0;
        with_float(run, output.dtype, [&](auto one) { rotate<decltype(one)>(run, halves); });
    }
}

// sort, stable_sort, sorted_topk: rows of n, values with the positions they came from.
#include <algorithm>
#include <numeric>

#include "call.h"
#include "lines.h"
#include "xpu/refactor/math.h"

namespace xpusim {
namespace {

// Ties: the earlier position first, or with `ties_reversed` the later one.
struct Order {
    bool descending;
    bool ties_reversed;

    template <typename W>
    bool before(const W* line, int64_t a, int64_t b) const {
        const int64_t first = descending ? a : b;
        const int64_t second = descending ? b : a;
        if (larger(line[first], line[second])) {
            return true;
        }
        if (larger(line[second], line[first])) {
            return false;
        }
        return ties_reversed ? a > b : a < b;
    }
};

template <typename W>
void arrange(const W* line, std::vector<int64_t>& positions, int64_t keep, Order order) {
    std::iota(positions.begin(), positions.end(), 0);
    const auto before = [&](int64_t a, int64_t b) { return order.before(line, a, b); };
    const auto last = positions.begin() + keep;
    if (last != positions.end()) {
        std::nth_element(positions.begin(), last, positions.end(), before);
    }
    std::sort(positions.begin(), last, before);
}

template <typename T, typename TID>
void order_rows(const T* x, T* y, TID* index, int64_t m, int64_t n, int64_t keep, Order order) {
    std::vector<Wide<T>> line(static_cast<size_t>(n));
    std::vector<T> row(static_cast<size_t>(n));  // y may be x
    std::vector<int64_t> positions(static_cast<size_t>(n));
    for (int64_t r = 0; r < m; ++r) {
        std::copy_n(x + r * n, n, row.begin());
        widen(row.data(), line.data(), n);
        arrange(line.data(), positions, keep, order);
        for (int64_t i = 0; i < keep; ++i) {
            const int64_t from = positions[static_cast<size_t>(i)];
            y[r * keep + i] = row[static_cast<size_t>(from)];
            index[r * keep + i] = static_cast<TID>(from);
        }
    }
}

template <typename T, typename TID>
int queue_order(const Call& call, const T* x, T* y, TID* index, int64_t m, int64_t n,
                int64_t keep, Order order) {
    return call.run([=] {
        const T* from = at(x, m * n);
        T* to = at(y, m * keep);
        order_rows(from, to, at(index, m * keep), m, n, keep, order);
    });
}

template <typename T, typename TID>
Call& check(Call& call, const T* x, T* y, TID* index, int64_t m, int64_t n) {
    call.shape({m, n}, "m, n");
    return call.device(x, "x").device(y, "y").device(index, "index");
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

// Not stable on the card: here ties come out reversed, so that whoever relies on their order sees.
template <typename T, typename TID>
int sort(Context* ctx, const T* x, T* y, TID* index, int64_t m, int64_t n, bool compare) {
    xpusim::Call call(ctx, "sort");
    xpusim::check(call, x, y, index, m, n);
    return xpusim::queue_order(call, x, y, index, m, n, n, xpusim::Order{compare, true});
}

template <typename T, typename TID>
int stable_sort(Context* ctx, const T* x, T* y, TID* index, int64_t m, int64_t n, bool compare) {
    xpusim::Call call(ctx, "stable_sort");
    xpusim::check(call, x, y, index, m, n);
    return xpusim::queue_order(call, x, y, index, m, n, n, xpusim::Order{compare, false});
}

template <typename T, typename TID>
int sorted_topk(Context* ctx, const T* x, T* y, TID* index, int64_t m, int64_t n, int64_t k,
                bool largest, bool precision) {
    xpusim::Call call(ctx, "sorted_topk");
    xpusim::check(call, x, y, index, m, n).positive(k, "k").apart(x, y);
    call.rule(k <= n, "k exceeds the row").unknown(!precision, "precision is not simulated");
    return xpusim::queue_order(call, x, y, index, m, n, k, xpusim::Order{largest, false});
}

#define SORT(name, T, TID) \
    template int name<T, TID>(Context*, const T*, T*, TID*, int64_t, int64_t, bool);
#define SORT_BOTH(name, T) SORT(name, T, int32_t) SORT(name, T, int64_t)
#define SORT_EACH(name)      \
    SORT_BOTH(name, float)   \
    SORT_BOTH(name, float16) \
    SORT_BOTH(name, int32_t) \
    SORT_BOTH(name, int64_t)
SORT_EACH(sort)
SORT_EACH(stable_sort)

#define TOPK(T, TID)                                                                       \
    template int sorted_topk<T, TID>(Context*, const T*, T*, TID*, int64_t, int64_t,       \
                                     int64_t, bool, bool);
TOPK(float, int32_t)
TOPK(float, int64_t)
TOPK(float16, int32_t)
TOPK(float16, int64_t)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

// One matrix product, whatever the types: operands become float rows, are rounded to the compute
// type, and are multiplied with float sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "llm/engine/activate.h"
#include "llm/engine/call.h"
#include "llm/engine/compute.h"
#include "llm/engine/numbers.h"
#include "llm/engine/tile.h"

namespace xpusim {
namespace llm {

// `outer` rows of `inner` elements each, as the product sees them; `along`: a row lies together,
// otherwise a column does. Addresses are the device's.
struct Operand {
    const void* data;
    int64_t itemsize;
    Load load;
    int64_t outer;
    int64_t inner;
    int64_t ld;
    bool along;
    bool int8;
    const float* max;      // of the whole operand, `slots` floats; null: unknown
    const float* row_max;  // one a row, for int8; null: `max` holds

    int64_t span() const { return along ? (outer - 1) * ld + inner : (inner - 1) * ld + outer; }
};

struct Result {
    void* data;
    int64_t itemsize;
    Store store;
    int64_t ld;
    const void* added;  // times beta; null where beta is 0
    int64_t added_itemsize;
    Load load_added;
    int64_t added_ld;
    Round between;  // what holds the sum before bias and activation
    float alpha;
    float beta;
    const float* bias;
    api::Activation_t act;
    float* max;  // gets the largest |y|, `slots` floats
};

inline float largest_of(const float* device, int64_t count) {
    const float* seen = at(device, count);
    return *std::max_element(seen, seen + count);
}

// An operand in the kernel: its host address, its maximum, and its rows as floats.
class Rows {
public:
    Rows(const Operand& from, Compute compute, int64_t slots) : from_(from), compute_(compute) {
        data_ = reach(from.data, static_cast<uint64_t>(from.span() * from.itemsize));
        if (from.row_max != nullptr) {
            row_max_ = at(from.row_max, from.outer);
        } else if (from.max != nullptr && (from.int8 || largest(compute) > 0.0)) {
            max_ = largest_of(from.max, slots);
        } else if (largest(compute) > 0.0 && !from.int8) {
            max_ = scan();
        }
    }

    // Plain floats that need no copy.
    bool direct() const {
        return compute_ == Compute::kFloat && from_.along && from_.load == &load<float>;
    }
    const float* in_place(int64_t row) const {
        return static_cast<const float*>(data_) + row * from_.ld;
    }

    // What a product with this row is multiplied by.
    float unit(int64_t row) const {
        if (!from_.int8) {
            return 1.0f;
        }
        return (row_max_ != nullptr ? row_max_[row] : max_) / 127.0f;
    }

    // Rows first .. first + count to `out`, `inner` apart.
    void read(int64_t first, int64_t count, float* out) const {
        if (from_.along) {
            for (int64_t r = 0; r < count; ++r) {
                from_.load(data_, (first + r) * from_.ld, from_.inner, out + r * from_.inner);
            }
        } else {
            read_across(first, count, out);
        }
        if (!from_.int8) {
            round_operand(compute_, max_, out, count * from_.inner);
        }
    }

private:
    void read_across(int64_t first, int64_t count, float* out) const {
        std::vector<float> column(static_cast<size_t>(count));
        for (int64_t i = 0; i < from_.inner; ++i) {
            from_.load(data_, i * from_.ld + first, count, column.data());
            for (int64_t r = 0; r < count; ++r) {
                out[r * from_.inner + i] = column[static_cast<size_t>(r)];
            }
        }
    }

    float scan() const {
        const int64_t lines = from_.along ? from_.outer : from_.inner;
        const int64_t length = from_.along ? from_.inner : from_.outer;
        std::vector<float> line(static_cast<size_t>(length));
        float max = 0.0f;
        for (int64_t i = 0; i < lines; ++i) {
            from_.load(data_, i * from_.ld, length, line.data());
            for (float value : line) {
                max = std::max(max, std::fabs(value));
            }
        }
        return max;
    }

    const Operand& from_;
    const Compute compute_;
    const void* data_;
    const float* row_max_ = nullptr;
    float max_ = 0.0f;
};

// Scales, sum with what was there, bias, activation, and the largest value.
class Finish {
public:
    Finish(const Result& to, int64_t m, int64_t n, int64_t slots) : to_(to), maxima_(slots) {
        data_ = reach(to.data, static_cast<uint64_t>(((m - 1) * to.ld + n) * to.itemsize));
        if (to.added != nullptr) {
            const int64_t span = (m - 1) * to.added_ld + n;
            added_ = reach(to.added, static_cast<uint64_t>(span * to.added_itemsize));
        }
        bias_ = to.bias != nullptr ? at(to.bias, n) : nullptr;
        line_.resize(static_cast<size_t>(n));
    }

    // Columns first .. first + count of one row; `units` are the columns'.
    void row(int64_t row, int64_t first, int64_t count, float* values, float x_unit,
             const float* units) {
        for (int64_t i = 0; i < count; ++i) {
            values[i] *= to_.alpha * x_unit * units[i];
        }
        if (added_ != nullptr) {
            to_.load_added(added_, row * to_.added_ld + first, count, line_.data());
            for (int64_t i = 0; i < count; ++i) {
                values[i] += to_.beta * line_[static_cast<size_t>(i)];
            }
        }
        to_.between(values, count);
        if (bias_ != nullptr) {
            for (int64_t i = 0; i < count; ++i) {
                values[i] += bias_[first + i];
            }
        }
        activate(to_.act, values, count);
        to_.store(data_, row * to_.ld + first, count, values);
        note(row, count, values);
    }

    // The rows are shared out: only the largest of all slots is the largest value.
    void write_max() const {
        if (to_.max != nullptr) {
            const auto count = static_cast<int64_t>(maxima_.size());
            std::copy(maxima_.begin(), maxima_.end(), at(to_.max, count));
        }
    }

private:
    void note(int64_t row, int64_t count, const float* values) {
        float& max = maxima_[static_cast<size_t>(row) % maxima_.size()];
        for (int64_t i = 0; to_.max != nullptr && i < count; ++i) {
            max = std::max(max, std::fabs(values[i]));
        }
    }

    const Result& to_;
    std::vector<float> maxima_;
    std::vector<float> line_;
    void* data_;
    const void* added_ = nullptr;
    const float* bias_;
};

constexpr int64_t kBlockX = 256, kBlockW = 64;  // rows that are multiplied from the caches

// w's rows first .. first + count times the rows at x, into `sums` [.., kBlockW].
inline void multiply_block(const Rows& w, int64_t first, int64_t count, const float* x,
                           int64_t x_ld, int64_t x_count, int64_t k, float* panel, float* sums) {
    for (int64_t r = 0; r < count; r += kTileW) {
        const int64_t rows = std::min<int64_t>(kTileW, count - r);
        const float* at_row[kTileW];
        if (!w.direct()) {
            w.read(first + r, rows, panel);
        }
        for (int64_t i = 0; i < rows; ++i) {
            at_row[i] = w.direct() ? w.in_place(first + r + i) : panel + i * k;
        }
        dot_rows(at_row, rows, x, x_ld, x_count, k, sums + r, kBlockW);
    }
}

inline void multiply(const Operand& x_from, const Operand& w_from, const Result& to,
                     Compute compute, int64_t slots) {
    const int64_t m = x_from.outer, n = w_from.outer, k = x_from.inner;
    const Rows x(x_from, compute, slots), w(w_from, compute, slots);
    Finish finish(to, m, n, slots);
    std::vector<float> units(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
        units[static_cast<size_t>(i)] = w.unit(i);
    }
    std::vector<float> rows(x.direct() ? 0 : static_cast<size_t>(std::min(m, kBlockX) * k));
    std::vector<float> panel(static_cast<size_t>(kTileW * k));
    std::vector<float> sums(static_cast<size_t>(std::min(m, kBlockX) * kBlockW));
    for (int64_t x0 = 0; x0 < m; x0 += kBlockX) {
        const int64_t x_count = std::min(kBlockX, m - x0);
        if (!x.direct()) {
            x.read(x0, x_count, rows.data());
        }
        const float* x_rows = x.direct() ? x.in_place(x0) : rows.data();
        const int64_t x_ld = x.direct() ? x_from.ld : k;
        for (int64_t w0 = 0; w0 < n; w0 += kBlockW) {
            const int64_t count = std::min(kBlockW, n - w0);
            multiply_block(w, w0, count, x_rows, x_ld, x_count, k, panel.data(), sums.data());
            for (int64_t r = 0; r < x_count; ++r) {
                finish.row(x0 + r, w0, count, sums.data() + r * kBlockW, x.unit(x0 + r),
                           units.data() + w0);
            }
        }
    }
    finish.write_max();
}

}  // namespace llm
}  // namespace xpusim

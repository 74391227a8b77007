// Rows by index: gather, scatter, index_add, embedding.
#include <cstring>
#include <memory>

#include "call.h"
#include "lines.h"
#include "xpu/refactor/math.h"
#include "xpu/refactor/nn_embedding.h"

namespace xpusim {
namespace {

template <typename T>
void copy_row(const T* from, T* to, int64_t count) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
}

void check_index(int64_t index, int64_t limit) {
    if (index < 0 || index >= limit) {
        fault("index out of range:", index);
    }
}

template <typename T, typename TID>
void gather_rows(const T* x, const TID* index, T* y, const Lines& lines, int64_t index_len) {
    for (int64_t o = 0; o < lines.outer; ++o) {
        for (int64_t i = 0; i < index_len; ++i) {
            check_index(index[i], lines.length);
            const int64_t row = o * lines.length + static_cast<int64_t>(index[i]);
            copy_row(x + row * lines.inner, y + (o * index_len + i) * lines.inner, lines.inner);
        }
    }
}

template <typename T>
void add_row(const T* from, T* to, int64_t count, T alpha) {
    using W = Wide<T>;
    const auto factor = modular(static_cast<W>(alpha));
    for (int64_t i = 0; i < count; ++i) {
        const auto value = modular(static_cast<W>(from[i]));
        const auto sum = modular(static_cast<W>(to[i])) + factor * value;
        to[i] = static_cast<T>(static_cast<W>(sum));
    }
}

template <typename T, typename TID>
void add_rows(const T* src, T* y, const TID* index, const Lines& lines, int64_t count, T alpha) {
    for (int64_t o = 0; o < lines.outer; ++o) {
        for (int64_t i = 0; i < count; ++i) {
            check_index(index[i], lines.length);
            const int64_t row = o * lines.length + static_cast<int64_t>(index[i]);
            add_row(src + (o * count + i) * lines.inner, y + row * lines.inner, lines.inner,
                    alpha);
        }
    }
}

// The vector as the call saw it: the host half is copied, since the kernel runs later.
template <typename TID>
class Indices {
public:
    explicit Indices(const baidu::xpu::api::VectorParam<TID>& both)
        : len_(both.len), device_(both.xpu) {
        if (both.cpu != nullptr) {
            host_ = std::make_shared<std::vector<TID>>(both.cpu, both.cpu + both.len);
        }
    }

    const TID* read() const {
        if (device_ == nullptr) {
            return host_->data();
        }
        const TID* values = at(device_, len_);
        for (int64_t i = 0; host_ != nullptr && i < len_; ++i) {
            if ((*host_)[static_cast<size_t>(i)] != values[i]) {
                fault("host and device indices differ at", i);
            }
        }
        return values;
    }

private:
    int64_t len_;
    const TID* device_;
    std::shared_ptr<std::vector<TID>> host_;
};

// The shape with another size along its axis: that of what goes in or comes out by index.
void check_indexed(Call& call, const Shape& shape, int64_t axis, int64_t index_len) {
    call.axis(axis, shape).positive(index_len, "number of indices");
    if (call.holds()) {
        Shape indexed = shape;
        indexed[static_cast<size_t>(axis)] = index_len;
        call.shape(indexed, "shape by index");
    }
}

template <typename TID>
void check_halves(Call& call, const baidu::xpu::api::VectorParam<TID>& both) {
    call.positive(both.len, "indices.len");
    call.rule(both.cpu != nullptr || both.xpu != nullptr, "indices have no half");
    if (both.xpu != nullptr) {
        call.device(both.xpu, "indices.xpu");
    }
}

}  // namespace
}  // namespace xpusim

namespace baidu {
namespace xpu {
namespace api {

using Dims = std::vector<int64_t>;

template <typename T, typename TID>
int gather(Context* ctx, const T* x, const TID* index, T* y, const Dims& xshape,
           int64_t index_len, int64_t axis) {
    xpusim::Call call(ctx, "gather");
    call.shape(xshape, "xshape");
    xpusim::check_indexed(call, xshape, axis, index_len);
    call.device(x, "x").device(index, "index").device(y, "y").apart(x, y);
    return call.run([=] {
        const xpusim::Lines lines(xshape, axis);
        const T* table = xpusim::at(x, lines.count());
        const TID* rows = xpusim::at(index, index_len);
        T* out = xpusim::at(y, lines.outer * index_len * lines.inner);
        xpusim::gather_rows(table, rows, out, lines, index_len);
    });
}

// Adding is refused: whether the vendor first clears the rows it adds to, no source shows.
template <typename T, typename TID>
int scatter(Context* ctx, const T* x, T* y, const VectorParam<TID>& indices, int64_t dim0,
            int64_t dim1, bool is_overwrite) {
    xpusim::Call call(ctx, "scatter");
    call.shape({dim0, dim1}, "dim0, dim1");
    call.device(x, "x").device(y, "y").apart(x, y);
    xpusim::check_halves(call, indices);
    call.shape({indices.len, dim1}, "indices.len, dim1");
    call.unknown(is_overwrite, "scatter that adds is not simulated");
    if (!call.holds()) {
        return call.run(nullptr);
    }
    const xpusim::Indices<TID> rows(indices);
    const int64_t count = indices.len;
    return call.run([=] {
        const TID* index = rows.read();
        const T* from = xpusim::at(x, count * dim1);
        T* to = xpusim::at(y, dim0 * dim1);
        for (int64_t i = 0; i < count; ++i) {
            xpusim::check_index(index[i], dim0);
            xpusim::copy_row(from + i * dim1, to + static_cast<int64_t>(index[i]) * dim1, dim1);
        }
    });
}

template <typename T, typename TID>
int index_add(Context* ctx, const T* x, const T* src, T* y, const TID* index, const Dims& xshape,
              int64_t idx_len, int64_t axis, T alpha) {
    xpusim::Call call(ctx, "index_add");
    call.shape(xshape, "xshape");
    xpusim::check_indexed(call, xshape, axis, idx_len);
    call.device(x, "x").device(src, "src").device(y, "y").device(index, "index").apart(src, y);
    return call.run([=] {
        const xpusim::Lines lines(xshape, axis);
        const T* from = xpusim::at(x, lines.count());
        T* to = xpusim::at(y, lines.count());
        if (x != y) {
            xpusim::copy_row(from, to, lines.count());
        }
        const T* rows = xpusim::at(src, lines.outer * idx_len * lines.inner);
        xpusim::add_rows(rows, to, xpusim::at(index, idx_len), lines, idx_len, alpha);
    });
}

// A token outside the table gives zeros, silently: Paddle's split of a vocabulary over cards hands
// every token to every card and relies on it.
template <typename T, typename TID>
int embedding(Context* ctx, const T* x, const TID* indices, T* y, int64_t xm, int64_t n,
              int64_t ym, int64_t padding_idx, TID start_index) {
    xpusim::Call call(ctx, "embedding");
    call.shape({xm, n}, "xm, n").shape({ym, n}, "ym, n");
    call.device(x, "x").device(indices, "indices").device(y, "y").apart(x, y);
    call.rule(padding_idx >= -1 && start_index >= 0, "padding_idx or start_index out of range");
    return call.run([=] {
        const T* table = xpusim::at(x, xm * n);
        const TID* token = xpusim::at(indices, ym);
        T* out = xpusim::at(y, ym * n);
        for (int64_t i = 0; i < ym; ++i) {
            const int64_t row = static_cast<int64_t>(token[i]) - static_cast<int64_t>(start_index);
            const bool padded = padding_idx >= 0 && static_cast<int64_t>(token[i]) == padding_idx;
            if (padded || row < 0 || row >= xm) {
                std::fill_n(out + i * n, n, T(0.0f));
            } else {
                xpusim::copy_row(table + row * n, out + i * n, n);
            }
        }
    });
}

#define GATHER(T, TID) \
    template int gather<T, TID>(Context*, const T*, const TID*, T*, const Dims&, int64_t, int64_t);
#define SCATTER(T, TID)                                                                       \
    template int scatter<T, TID>(Context*, const T*, T*, const VectorParam<TID>&, int64_t,    \
                                 int64_t, bool);
#define INDEX_ADD(T, TID)                                                                     \
    template int index_add<T, TID>(Context*, const T*, const T*, T*, const TID*, const Dims&, \
                                   int64_t, int64_t, T);
#define EMBEDDING(T, TID)                                                                     \
    template int embedding<T, TID>(Context*, const T*, const TID*, T*, int64_t, int64_t,      \
                                   int64_t, int64_t, TID);
#define BOTH(op, T) op(T, int32_t) op(T, int64_t)
BOTH(GATHER, float)
BOTH(GATHER, float16)
BOTH(GATHER, int32_t)
BOTH(GATHER, int64_t)
BOTH(GATHER, bool)
BOTH(SCATTER, float)
BOTH(SCATTER, float16)
BOTH(SCATTER, bfloat16)
BOTH(SCATTER, int32_t)
BOTH(SCATTER, int64_t)
BOTH(INDEX_ADD, float)
BOTH(INDEX_ADD, float16)
BOTH(INDEX_ADD, bfloat16)
BOTH(INDEX_ADD, int32_t)
BOTH(INDEX_ADD, int64_t)
BOTH(EMBEDDING, float)
BOTH(EMBEDDING, float16)
BOTH(EMBEDDING, bfloat16)

}  // namespace api
}  // namespace xpu
}  // namespace baidu

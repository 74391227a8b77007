// Operators along one dimension: each line of elements is brought into a buffer of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "call.h"
#include "numbers.h"

namespace xpusim {

// The lines of a dense tensor along one axis: `outer` blocks of `inner` interleaved lines.
struct Lines {
    int64_t outer = 1;
    int64_t length = 1;
    int64_t inner = 1;

    Lines(const Shape& shape, int64_t axis) {
        const auto at_axis = static_cast<size_t>(axis);
        for (size_t d = 0; d < shape.size(); ++d) {
            (d < at_axis ? outer : d == at_axis ? length : inner) *= shape[d];
        }
    }
    int64_t count() const { return outer * length * inner; }
};

template <typename T>
void load_line(const T* x, int64_t step, Wide<T>* line, int64_t length) {
    if (step == 1) {
        widen(x, line, length);
        return;
    }
    for (int64_t i = 0; i < length; ++i) {
        line[i] = static_cast<Wide<T>>(x[i * step]);
    }
}

template <typename T>
void store_line(const Wide<T>* line, T* y, int64_t step, int64_t length) {
    if (step == 1) {
        narrow(line, y, length);
        return;
    }
    for (int64_t i = 0; i < length; ++i) {
        y[i * step] = static_cast<T>(line[i]);
    }
}

// Sixteen partial sums, which the compiler adds as vectors.
template <typename Sum, typename W>
Sum sum_block(const W* line, int64_t length) {
    Sum part[16] = {};
    int64_t i = 0;
    for (; i + 16 <= length; i += 16) {
        for (int64_t j = 0; j < 16; ++j) {
            part[j] += line[i + j];
        }
    }
    Sum total = 0;
    for (Sum value : part) {
        total += value;
    }
    for (; i < length; ++i) {
        total += line[i];
    }
    return total;
}

// Long lines by halves, so that float keeps its bits. Integers are summed in 64 bits.
template <typename W>
auto sum_line(const W* line, int64_t length) {
    using Sum = std::conditional_t<std::is_same_v<W, float>, float, int64_t>;
    if (length <= 2048) {
        return sum_block<Sum>(line, length);
    }
    const int64_t half = length / 2;
    const Sum first = sum_line(line, half);
    return static_cast<Sum>(first + sum_line(line + half, length - half));
}

// body(line, number of the line) for each line, in memory order of the output without the axis.
template <typename T, typename F>
void each_line(const T* x, const Lines& lines, F body) {
    std::vector<Wide<T>> line(static_cast<size_t>(lines.length));
    for (int64_t o = 0; o < lines.outer; ++o) {
        for (int64_t i = 0; i < lines.inner; ++i) {
            load_line(x + o * lines.length * lines.inner + i, lines.inner, line.data(),
                      lines.length);
            body(line.data(), o * lines.inner + i);
        }
    }
}

// Where the line of that number starts.
inline int64_t line_start(const Lines& lines, int64_t number) {
    return number / lines.inner * lines.length * lines.inner + number % lines.inner;
}

}  // namespace xpusim

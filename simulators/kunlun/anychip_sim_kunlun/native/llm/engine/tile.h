// Dot products of a few rows with a few rows, in float, with as many partial sums as fit into
// vector registers.
#pragma once

#include <cstdint>
#include <cstring>

namespace xpusim {
namespace llm {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kTileX = 4;
#else
constexpr int kLanes = 8, kTileX = 2;  // 16 registers of 8 floats
#endif
constexpr int kTileW = 4;

typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

inline Lanes read_lanes(const float* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

inline float sum_lanes(Lanes lanes) {
    float sum = 0.0f;
    for (int i = 0; i < kLanes; ++i) {
        sum += lanes[i];
    }
    return sum;
}

// out[c * ld + r] = w[r] . x[c]
template <int R, int C>
void dot_tile(const float* const* w, const float* const* x, int64_t k, float* out, int64_t ld) {
    Lanes sums[R][C] = {};
    const int64_t whole = k - k % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
        Lanes row[R];
        for (int r = 0; r < R; ++r) {
            row[r] = read_lanes(w[r] + i);
        }
        for (int c = 0; c < C; ++c) {
            const Lanes part = read_lanes(x[c] + i);
            for (int r = 0; r < R; ++r) {
                sums[r][c] += row[r] * part;
            }
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int r = 0; r < R; ++r) {
            float sum = sum_lanes(sums[r][c]);
            for (int64_t i = whole; i < k; ++i) {
                sum += w[r][i] * x[c][i];
            }
            out[c * ld + r] = sum;
        }
    }
}

// All pairs of `wn` rows (at most kTileW) with `xn` rows that lie `x_ld` apart.
inline void dot_rows(const float* const* w, int64_t wn, const float* x, int64_t x_ld, int64_t xn,
                     int64_t k, float* out, int64_t out_ld) {
    int64_t c = 0;
    if (wn == kTileW) {
        for (; c + kTileX <= xn; c += kTileX) {
            const float* rows[kTileX];
            for (int i = 0; i < kTileX; ++i) {
                rows[i] = x + (c + i) * x_ld;
            }
            dot_tile<kTileW, kTileX>(w, rows, k, out + c * out_ld, out_ld);
        }
    }
    for (; c < xn; ++c) {
        const float* row = x + c * x_ld;
        if (wn == kTileW) {
            dot_tile<kTileW, 1>(w, &row, k, out + c * out_ld, out_ld);
            continue;
        }
        for (int64_t r = 0; r < wn; ++r) {
            dot_tile<1, 1>(w + r, &row, k, out + c * out_ld + r, out_ld);
        }
    }
}

}  // namespace llm
}  // namespace xpusim

// y = x @ weight.T for packed weights (formats.h): the products that linear*.cpp instantiate.
//
// Few rows: weights are read once, straight from their packed form, and widened in registers; the
// speed is memory's. Many rows: a task takes one panel and a block of rows, writes the panel's
// numbers into its scratch, and runs register tiles over it. x is first regrouped into tiles,
// [step][row], so that a tile reads one stream. Both give the same bits for the same row.
#pragma once
#include "abi.h"
#include "finish.h"
#include "linear_amx.h"
#include "linear_vnni.h"
#include "micro.h"
#include "pool.h"
#include "row_blocks.h"

namespace anychip {

void linear_k(const LinearArgs& g);        // in files of their own, for the compiler's sake
void linear_grouped(const LinearArgs& g);

namespace {

// Rows of x as float32, [k][rows]; what lies past K is zeros.
template <class X>
void regroup(Fma, const LinearArgs& g, int64_t first, int rows, int64_t steps, float* out) {
  for (int m = 0; m < rows; ++m) {
    const X* row = static_cast<const X*>(g.x) + (first + m) * g.x_stride;
    int64_t i = 0;
    for (; i + W <= g.k; i += W) {
      float t[W];
      vstore(t, load(row + i));
      for (int j = 0; j < W; ++j) out[(i + j) * rows + m] = t[j];
    }
    for (; i < g.k; ++i) out[i * rows + m] = widen(row[i]);
    for (; i < steps; ++i) out[i * rows + m] = 0.0f;
  }
}

#ifdef ANYCHIP_DOT_BF16
// Rows of bfloat16 x as pairs, [k / 2][rows]. No more rows than a vector has lanes.
template <class X>
void regroup(Dot, const LinearArgs& g, int64_t first, int rows, int64_t pairs, float* out) {
  static_assert(MR <= W && DIRECT_ROWS <= W, "rows become lanes");
  constexpr int TRANSPOSED = 4;  // rows from which on that pays
  const X* x = static_cast<const X*>(g.x) + first * g.x_stride;
  int64_t i = 0;
  for (; rows >= TRANSPOSED && i + W <= g.k / 2; i += W) {
    V words[W];
    for (int m = 0; m < W; ++m) {
      words[m] = m < rows ? vload(reinterpret_cast<const float*>(x + m * g.x_stride + 2 * i)) : vzero();
    }
    transpose(words);
    for (int j = 0; j < W; ++j) vstore_n(out + (i + j) * rows, words[j], rows);
  }
  for (int m = 0; m < rows; ++m) {
    const X* row = x + m * g.x_stride;
    for (int64_t j = i; j < g.k / 2; ++j) std::memcpy(out + j * rows + m, row + 2 * j, 4);
    if (g.k % 2) {
      uint32_t last = row[g.k - 1].bits;
      std::memcpy(out + (pairs - 1) * rows + m, &last, 4);
    }
  }
}
#endif

// Sums of x over runs of a quantized format, [rows][runs].
template <class X>
void sum_blocks(const LinearArgs& g, int64_t first, int rows, float* out) {
  int64_t runs = g.k / QUANTIZED;
  for (int64_t r = first; r < first + rows; ++r) {
    const X* row = static_cast<const X*>(g.x) + r * g.x_stride;
    for (int64_t i = 0; i < runs; ++i, row += QUANTIZED) {
      V sum = load(row);
      for (int j = W; j < QUANTIZED; j += W) sum = vadd(sum, load(row + j));
      out[r * runs + i] = hsum(sum);
    }
  }
}

struct Rowed {  // what the rows of x have become
  const float *a, *sums;
};

// c[M][NR] from one panel, widened in registers. One panel at a time: a core that reads one stream
// keeps up with the memory, with two it does not.
template <class Meet, class Format, int M>
void direct(Rowed x, const uint8_t* w, int64_t blocks, float* c) {
  constexpr int STEPS = Format::GROUP / Meet::SPAN, RUNS = Format::BLOCK / Format::RUN;
  V acc[M][2];
  auto clear = [&] {
    for (auto& row : acc) row[0] = row[1] = vzero();
  };
  clear();
  if (Format::SCALED) std::memset(c, 0, M * NR * sizeof(float));
  const float* a = x.a;
  for (int64_t i = 0; i < blocks * RUNS; ++i, w += i % RUNS ? 0 : Format::BYTES) {
    int run = static_cast<int>(i % RUNS);
    for (int group = 0; group < Format::RUN / Format::GROUP; ++group, a += STEPS * M) {
      typename Format::Steps steps(w, run * (Format::RUN / Format::GROUP) + group);
#pragma GCC unroll 8
      for (int k = 0; k < STEPS; ++k) {
        typename Meet::Weights b0, b1;
        steps.get(k, b0, b1);
        for (int m = 0; m < M; ++m) {
          acc[m][0] = Meet::add(a[k * M + m], b0, acc[m][0]);
          acc[m][1] = Meet::add(a[k * M + m], b1, acc[m][1]);
        }
      }
    }
    if constexpr (Format::SCALED) {
      V d[2], low[2];
      Format::scales(w, run, d, low);
      for (int m = 0; m < M; ++m) {
        float sum = Format::OFFSET ? x.sums[m * blocks * RUNS + i] : 0.0f;
        add_scaled<Format::OFFSET>(c + m * NR, acc[m], d, low, sum);
      }
      clear();
    }
  }
  if constexpr (!Format::SCALED) {
    for (int m = 0; m < M; ++m) {
      vstore(c + m * NR, acc[m][0]);
      vstore(c + m * NR + W, acc[m][1]);
    }
  }
}

template <class Meet, class Format, int M>
void few_rows(const LinearArgs& g, Rowed x) {
  int64_t blocks = blocks_of<Format>(g.k), panels = (g.n + NR - 1) / NR;
  g.pool->run_streams(panels, [&](int64_t p, int) {
    float c[M * NR];
    direct<Meet, Format, M>(x, g.weight + p * blocks * Format::BYTES, blocks, c);
    finish_rows(g, 0, M, p * NR, NR, c);
  });
}

// A panel's numbers as Meet wants them, and its scales; the panel itself where it lies so already.
template <class Meet, class Format>
const float* widen_panel(const uint8_t* w, int64_t blocks, float* out, float* scales) {
  if constexpr (Format::BYTES == Format::BLOCK / Meet::SPAN * NR * 4) return reinterpret_cast<const float*>(w);
  constexpr int STEPS = Format::GROUP / Meet::SPAN, RUNS = Format::BLOCK / Format::RUN;
  float* to = out;
  for (int64_t i = 0; i < blocks * RUNS; ++i, w += i % RUNS ? 0 : Format::BYTES) {
    int run = static_cast<int>(i % RUNS);
    for (int group = 0; group < Format::RUN / Format::GROUP; ++group) {
      typename Format::Steps steps(w, run * (Format::RUN / Format::GROUP) + group);
#pragma GCC unroll 8
      for (int k = 0; k < STEPS; ++k, to += NR) {
        typename Meet::Weights a, b;
        steps.get(k, a, b);
        Meet::put(to, a);
        Meet::put(to + W, b);
      }
    }
    if constexpr (Format::SCALED) {
      V d[2], low[2];
      Format::scales(w, run, d, low);
      for (int h = 0; h < 2; ++h) {
        vstore(scales + i * 2 * NR + h * W, d[h]);
        vstore(scales + i * 2 * NR + NR + h * W, low[h]);
      }
    }
  }
  return out;
}

// One panel for one block of rows.
template <class Meet, class Format>
void panel_task(const LinearArgs& g, int64_t first, int64_t rows, int64_t panel, Rowed x, float* scratch) {
  int64_t blocks = blocks_of<Format>(g.k), length = blocks * Format::BLOCK, runs = length / Format::RUN;
  const uint8_t* w = g.weight + panel * blocks * Format::BYTES;
  float *scales = scratch + K_BLOCK * NR, *c = scales + SCALES;
  if (Format::SCALED) std::memset(c, 0, rows * NR * sizeof(float));
  for (int64_t k = 0; k < length; k += K_BLOCK) {
    int64_t part = length - k < K_BLOCK ? length - k : K_BLOCK, done = k / Format::RUN;
    const uint8_t* from = w + k / Format::BLOCK * Format::BYTES;
    const float* b = widen_panel<Meet, Format>(from, part / Format::BLOCK, scratch, scales);
    for_tiles(first, rows, [&](int64_t row, int count) {
      with_rows<MR>(count, [&](auto r) {
        constexpr int M = decltype(r)::value;
        const float* a = x.a + (row * length + k * M) / Meet::SPAN;
        float* to = c + (row - first) * NR;
        if constexpr (Format::SCALED) {
          const float* sums = x.sums + row * runs + done;
          tile_scaled<Meet, M, Format::RUN, Format::OFFSET>(part / Format::RUN, a, b, scales, sums, runs, to);
        } else {
          tile<Meet, M, 1, M>(part / Meet::SPAN, a, b, to, NR, k > 0);
        }
      });
    });
  }
  finish_rows(g, first, static_cast<int>(rows), panel * NR, NR, c);
}

template <class Meet, class Format, class X>
void product(const LinearArgs& g) {
  int64_t length = blocks_of<Format>(g.k) * Format::BLOCK, steps = length / Meet::SPAN;
  float* a = static_cast<float*>(g.workspace);
  float* sums = a + round_up(g.rows * length, 16);
  float* scratch = sums + round_up(g.rows * length / QUANTIZED, 16);
  auto take = [&](int64_t row, int count) {
    regroup<X>(Meet{}, g, row, count, steps, a + row * steps);
    if constexpr (Format::OFFSET) sum_blocks<X>(g, row, count, sums);
  };
  if (g.rows <= DIRECT_ROWS) {
    take(0, static_cast<int>(g.rows));
    return with_rows<DIRECT_ROWS>(static_cast<int>(g.rows), [&](auto r) {
      few_rows<Meet, Format, decltype(r)::value>(g, {a, sums});
    });
  }
  Blocks cut(g.rows);
  each_tile(g.pool, cut, take);
  int64_t panels = (g.n + NR - 1) / NR;
  g.pool->run_streams(cut.count * panels, [&](int64_t i, int thread) {
    int64_t first = cut.first(i / panels), last = cut.first(i / panels + 1);
    panel_task<Meet, Format>(g, first, last - first, i % panels, {a, sums}, scratch + thread * SCRATCH);
  });
}

// Any call, by the way that this processor has for it.
template <class Format>
void linear_of(const LinearArgs& g) {
#ifdef ANYCHIP_AMX
  if (tiles_take<Format>(g)) return tile_product<Format>(g);
#endif
#ifdef ANYCHIP_VNNI
  if constexpr (Format::WHOLE) {
    if (whole_product<Format>(g)) return;
  }
#endif
  if (g.x_type == 0) return product<Fma, Format, float>(g);
#ifdef ANYCHIP_DOT_BF16
  if constexpr (Format::BLOCK > 1) return product<Dot, Format, bf16>(g);
#endif
  product<Fma, Format, bf16>(g);
}

}  // namespace
}  // namespace anychip

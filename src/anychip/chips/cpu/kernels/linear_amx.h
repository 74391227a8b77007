// y = x @ weight.T in tiles of AMX: bfloat16 rows, read where they lie.
//
// A bfloat16 weight's panel is what the tiles want: every number of rows goes through them, with the
// same bits for the same row. A quantized panel is widened to bfloat16 first, its scales multiplied in
// (rounding each weight once more, by up to 2**-9, where a result is rounded by as much); that pays from some
// rows on, below which linear.cpp reads the packed numbers exactly, as it does for float32 results.
#pragma once
#include "amx.h"
#include "finish.h"
#include "pool.h"

#ifdef ANYCHIP_AMX
namespace anychip {

constexpr int64_t TILED_K = 640;       // elements of K whose weights stay in the first cache
constexpr int64_t TILED_BYTES = 640 << 10;  // of rows that share a panel: they stay in the second cache
constexpr int64_t MOST_ROWS = 512, LEAST_ROWS = 128;
constexpr int64_t FEW_ROWS = 32;       // up to here the time is that of reading the weights
constexpr int64_t WIDENED_ROWS = 16;   // a quantized weight is widened from here on

template <class Format>
inline bool tiles_take(const LinearArgs& g) {
  if (g.x_type != 1 || g.k % TILE_STEPS) return false;
  if (std::is_same_v<Format, FormatF32> || std::is_same_v<Format, FormatF16>) return false;
  return !Format::SCALED || (g.rows >= WIDENED_ROWS && g.y_type == 1);
}

// Rounded pairs: a word holds an element of `even` and, above it, one of `odd`.
inline __m512i side_by_side(V even, V odd) {
  __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
  __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Steps [first, first + count) of a quantized panel as bfloat16 pairs, scales multiplied in; both are
// whole runs, but a block may begin before them or end after them.
template <class Format>
inline void widen_scaled(const uint8_t* panel, int64_t first, int64_t count, uint8_t* out) {
  constexpr int RUNS = Format::BLOCK / Format::RUN, GROUPS = Format::RUN / Format::GROUP;
  for (int64_t at = first / Format::RUN; at < (first + count) / Format::RUN; ++at) {
    const uint8_t* w = panel + at / RUNS * Format::BYTES;
    int run = static_cast<int>(at % RUNS);
    V d[2], low[2];
    Format::scales(w, run, d, low);
    for (int group = run * GROUPS; group < (run + 1) * GROUPS; ++group) {
      typename Format::Steps steps(w, group);
#pragma GCC unroll 4
      for (int k = 0; k < Format::GROUP; k += 2) {
        V even[2], odd[2];
        steps.get(k, even[0], even[1]);
        steps.get(k + 1, odd[0], odd[1]);
        for (int h = 0; h < 2; ++h, out += 64) {
          V a = Format::OFFSET ? vfma(d[h], even[h], low[h]) : vmul(d[h], even[h]);
          V b = Format::OFFSET ? vfma(d[h], odd[h], low[h]) : vmul(d[h], odd[h]);
          _mm512_storeu_si512(out, side_by_side(a, b));
        }
      }
    }
  }
}

// Calls body(first, count) for k elements in equal parts, or in one.
template <class F>
inline void equal_parts(int64_t k, bool one, F body) {
  int64_t parts = one ? 1 : (k + TILED_K - 1) / TILED_K, most = k;
  if (parts > 1) most = round_up((k + parts - 1) / parts, TILE_STEPS);
  for (int64_t first = 0; first < k; first += most) body(first, k - first < most ? k - first : most);
}

// A quantized or bfloat16 panel from element k on as bfloat16 pairs.
template <class Format>
inline const uint8_t* tiled_panel(const uint8_t* panel, int64_t k, int64_t count, uint8_t* out) {
  if constexpr (!Format::SCALED) return panel + k / Format::BLOCK * Format::BYTES;
  if constexpr (Format::SCALED) widen_scaled<Format>(panel, k, count, out);
  return out;
}

// How tiles see the panels of a format: bytes of one, K in parts, and a part as tiles take it, in scratch if
// it has to be written.
template <class Format>
struct FormatPanels {
  static constexpr Meet MEET = Meet::PAIRS;
  static constexpr int64_t SCRATCH = Format::SCALED ? TILED_K * NR * 2 : 64;
  int64_t k;
  int64_t bytes() const { return blocks_of<Format>(k) * Format::BYTES; }
  const uint8_t* part(const uint8_t* panel, int64_t first, int64_t count, uint8_t* scratch) const {
    return tiled_panel<Format>(panel, first, count, scratch);
  }
  // Calls body(first, count). Few rows take K in one: their weights come from memory anyway.
  template <class F>
  void parts(int64_t rows, F body) const {
    equal_parts(k, !Format::SCALED && rows <= FEW_ROWS, body);
  }
};

// NR sums a row to results. start() says where the next rows go.
struct AnyRow {
  const LinearArgs& g;
  int64_t row = 0, n0 = 0;
  explicit AnyRow(const LinearArgs& args) : g(args) {}
  void start(int64_t first, int64_t panel) { row = first, n0 = panel * NR; }
  void next(const float* c) { finish_rows(g, row++, 1, n0, NR, c); }
};

// Nothing is left to be done with whole panels of sums but to store them in the result's type.
inline bool bare_sums(const LinearArgs& g) {
  return g.scale == 1.0 && g.cap == 0.0 && !g.bias && g.n % NR == 0;
}

// AnyRow's where they are rounded to bfloat16.
struct RoundRow {
  const LinearArgs& g;
  uint16_t* y = nullptr;
  explicit RoundRow(const LinearArgs& args) : g(args) {}
  static bool takes(const LinearArgs& g) { return g.y_type == 1 && bare_sums(g); }
  void start(int64_t first, int64_t panel) { y = static_cast<uint16_t*>(g.y) + first * g.y_stride + panel * NR; }
  void next(const float* c) {
    _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(vload(c + W), vload(c)));
    y += g.y_stride;
  }
};

// AnyRow's where they stay float32.
struct FloatRow {
  const LinearArgs& g;
  float* y = nullptr;
  explicit FloatRow(const LinearArgs& args) : g(args) {}
  static bool takes(const LinearArgs& g) { return g.y_type == 0 && bare_sums(g); }
  void start(int64_t first, int64_t panel) { y = static_cast<float*>(g.y) + first * g.y_stride + panel * NR; }
  void next(const float* c) {
    vstore(y, vload(c));
    vstore(y + W, vload(c + W));
    y += g.y_stride;
  }
};

// What the steps of a product leave room for: rows of the sums before it are finished, and the
// panel after it is asked for.
template <class Finish>
class Between {
 public:
  explicit Between(const Finish& with) : finish(with) {}

  // Sums c[rows][NR] wait from here on; they are read until the next settle().
  void leave(int64_t first, int64_t panel, int rows, const float* sums) {
    finish.start(first, panel);
    c = sums, end = sums + rows * NR;
  }
  // `bytes` from each of two places on, spread over `steps` steps.
  void ask(const uint8_t* one, const uint8_t* other, int64_t bytes, int64_t steps) {
    ahead = one, beside = other - one, last = one ? one + bytes : one;
    slice = ((bytes + steps - 1) / steps + 63) / 64 * 64;
  }
  void ask(const uint8_t* from, int64_t bytes, int64_t steps) { ask(from, from, bytes, steps); }
  void step() {
    for (int i = 0; i < 2 && c < end; ++i, c += NR) finish.next(c);
    if (ahead == last) return;
    const uint8_t* to = last - ahead > slice ? ahead + slice : last;
    for (; ahead < to; ahead += 64) {
      __builtin_prefetch(ahead, 0, 2);
      if (beside) __builtin_prefetch(ahead + beside, 0, 2);
    }
  }
  void settle() {
    for (; c < end; c += NR) finish.next(c);
  }

 private:
  Finish finish;
  const float *c = nullptr, *end = nullptr;
  const uint8_t *ahead = nullptr, *last = nullptr;
  int64_t slice = 0, beside = 0;
};

struct RowBlock {  // rows of x that meet one panel after another
  int64_t first, last;
  int64_t whole() const { return first + (last - first) / 32 * 32; }
  int64_t turns() const { return (last - first + 31) / 32; }
};

// Rows that share a panel: as many as the second cache holds.
inline int64_t shared_rows(int64_t k) {
  int64_t rows = TILED_BYTES / (2 * k) / 32 * 32;
  return rows < LEAST_ROWS ? LEAST_ROWS : (rows > MOST_ROWS ? MOST_ROWS : rows);
}

struct Part {  // of K, for all rows of a block: [k, k + count) of one panel, its columns in two halves
  int64_t panel, k, count;
  const uint8_t *left, *right;
};

template <Meet MEET, bool TWO, class Turn>
inline void multiply_turn(const LinearArgs& g, const Part& part, int64_t row, bool few, float* to, Turn& between) {
  int64_t stride = g.x_stride * 2, steps = part.count / TILE_STEPS;
  const uint8_t* x = static_cast<const uint8_t*>(g.x) + row * stride + part.k * 2;
  bool add = part.k > 0;
  few ? multiply_tiles<MEET, TWO, Keep::X>(steps, x, stride, part.left, part.right, to, add, between)
      : multiply_tiles<MEET, TWO, Keep::WEIGHT>(steps, x, stride, part.left, part.right, to, add, between);
}

// Sums go to c, a row of x after the other, and are left to be finished where the part is the last.
template <Meet MEET, class Turn>
inline void multiply_rows(const LinearArgs& g, RowBlock rows, const Part& part, float* c, Tiles& tiles, Turn& between) {
  bool last = part.k + part.count == g.k, few = rows.last - rows.first <= FEW_ROWS;
  bool alone = last && part.k == 0;  // sums of one turn at a time: they are settled before the next are stored
  int64_t whole = rows.whole();
  int rest = static_cast<int>(rows.last - whole), upper = rest < 16 ? rest : 16, lower = rest > 16 ? rest - 16 : upper;
  auto sums = [&](int64_t r) { return alone ? c : c + (r - rows.first) * NR; };
  auto left = [&](int64_t r, int count) {
    if (last) between.leave(r, part.panel, count, sums(r));
  };
  auto whole_turns = [&] {
    if (whole > rows.first) tiles.take(16, 16);
    for (int64_t r = rows.first; r < whole; r += 32) {
      multiply_turn<MEET, true>(g, part, r, few, sums(r), between);
      left(r, 32);
    }
  };
  bool rest_first = tiles.have(upper, lower);  // the shape that the panel before ended with
  if (!rest_first) whole_turns();
  if (rest > 0) {
    tiles.take(upper, lower);
    if (rest > 16) multiply_turn<MEET, true>(g, part, whole, few, sums(whole), between);
    if (rest <= 16) multiply_turn<MEET, false>(g, part, whole, few, sums(whole), between);
    left(whole, rest);
  }
  if (rest_first) whole_turns();
}

// All rows against one panel. ahead: the panel that comes next.
template <class Panels, class Turn>
void tiled_panel_task(const LinearArgs& g, const Panels& panels, RowBlock rows, int64_t panel, const uint8_t* ahead,
                      float* c, Tiles& tiles, Turn& between) {
  alignas(64) uint8_t scratch[Panels::SCRATCH];
  between.ask(ahead, panels.bytes(), g.k / TILE_STEPS * rows.turns());
  panels.parts(rows.last - rows.first, [&](int64_t k, int64_t count) {
    const uint8_t* b = panels.part(g.weight + panel * panels.bytes(), k, count, scratch);
    multiply_rows<Panels::MEET>(g, rows, {panel, k, count, b, b + 64}, c, tiles, between);
  });
}

struct TileTasks {  // rows in blocks of equal height, panels in groups of equal width: a task is one of each
  int64_t rows, panels, blocks, height, each, groups;
  TileTasks(const LinearArgs& g, int64_t all)
      : rows(g.rows), panels(all), blocks((rows + shared_rows(g.k) - 1) / shared_rows(g.k)) {
    height = round_up((rows + blocks - 1) / blocks, 32);
    each = panels / (8 * g.pool->threads()) + 1;
    groups = (panels + each - 1) / each;
  }
  RowBlock block(int64_t task) const {
    int64_t first = task / groups * height;
    return {first, first + height < rows ? first + height : rows};
  }
  int64_t from(int64_t task) const { return task % groups * each; }
  int64_t to(int64_t task) const { return from(task) + each < panels ? from(task) + each : panels; }
};

// The product; its sums go to copies of `finish`, a task one.
template <class Panels, class Finish>
void tile_panels(const LinearArgs& g, const Panels& panels, const Finish& finish) {
  TileTasks cut(g, (g.n + NR - 1) / NR);
  g.pool->run_streams(cut.blocks * cut.groups, [&](int64_t task, int) {
    alignas(64) float c[MOST_ROWS * NR];
    RowBlock rows = cut.block(task);
    if (rows.first >= rows.last) return;
    Between<Finish> between{finish};
    Tiles tiles;
    for (int64_t p = cut.from(task); p < cut.to(task); ++p) {
      const uint8_t* ahead = p + 1 < cut.to(task) ? g.weight + (p + 1) * panels.bytes() : nullptr;
      tiled_panel_task(g, panels, rows, p, ahead, c, tiles, between);
    }
    between.settle();
  });
}

template <class Format>
void tile_product(const LinearArgs& g) {
  FormatPanels<Format> panels{g.k};
  if (RoundRow::takes(g)) return tile_panels(g, panels, RoundRow(g));
  FloatRow::takes(g) ? tile_panels(g, panels, FloatRow(g)) : tile_panels(g, panels, AnyRow(g));
}

}  // namespace anychip
#endif

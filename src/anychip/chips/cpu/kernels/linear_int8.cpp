// y = x @ weight.T of int8 by int8: each row of x is rounded to whole numbers of a scale, products are
// added exactly in 32 bits, and a sum meets both scales once. How four numbers of a row meet a word of a
// panel (int8.h) is the processor's: in tiles (linear_int8_amx.h), by its dot products of bytes, by pairs of
// 16 bits, or as floats.
#include <vector>

#include "finish.h"
#include "int8_rows.h"
#include "linear_int8_amx.h"
#include "micro.h"
#include "pool.h"

namespace anychip {
namespace {

constexpr int64_t INT8_BYTES = 512 << 10;  // of rows that share a panel in a core's second cache
constexpr int64_t MOST_INT8_ROWS = 384, LEAST_INT8_ROWS = 48;

#if defined(ANYCHIP_BYTE_QUADS)
// The instruction multiplies unsigned bytes by signed ones: a row's are 128 too large, and its zero point
// is not taken off either. Both come off a sum as so many times the sum of the weight's column.
constexpr int INT8_ROWS = MR, EACH = 1, UNSIGNED = 128;
inline void put_row(const float* q, int64_t words, const Rounding& how, int32_t* out, int rows) {
  std::vector<uint8_t> bytes(words * 4 + W);
  for (int64_t i = 0; i < words * 4; i += W) store_unsigned(bytes.data() + i, vload(q + i), UNSIGNED + how.zero);
  for (int64_t i = 0; i < words; ++i) std::memcpy(out + i * rows, bytes.data() + i * 4, 4);
}
template <int M>
void add_words_of(int64_t words, const uint8_t* w, const int32_t* x, VI (&sums)[M][2]) {
  for (int64_t i = 0; i < words; ++i, w += NR * 4, x += M) {
    VI left = load_words(w), right = load_words(w + W * 4);
    for (int m = 0; m < M; ++m) {
      VI four = _mm512_set1_epi32(x[m]);
      sums[m][0] = add_quads(sums[m][0], four, left);
      sums[m][1] = add_quads(sums[m][1], four, right);
    }
  }
}
inline VI signed_sums(VI sums, const uint8_t* columns, const Rounding& how) {
  return less_times(sums, load_words(columns), UNSIGNED + how.zero);
}
#elif defined(ANYCHIP_BYTE_DOTS)
constexpr int INT8_ROWS = REGISTERS == 32 ? 6 : 4;  // more would be kept in memory
constexpr int EACH = 2;  // operands of 4 bytes that four numbers of a row become: (0, 2) and (1, 3)
inline void put_row(const float* q, int64_t words, const Rounding&, int32_t* out, int rows) {
  for (int64_t i = 0; i < words; ++i, q += 4, out += EACH * rows) {
    for (int j = 0; j < 2; ++j) {
      int low = static_cast<int>(q[j]), high = static_cast<int>(q[2 + j]);
      out[j * rows] = static_cast<int32_t>((low & 0xffff) | static_cast<uint32_t>(high) << 16);
    }
  }
}
template <int M>
void add_words_of(int64_t words, const uint8_t* w, const int32_t* x, VI (&sums)[M][2]) {
  for (int64_t i = 0; i < words; ++i, w += NR * 4, x += EACH * M) {
    for (int h = 0; h < 2; ++h) {
      VI word = load_words(w + h * W * 4), even = even_bytes(word), odd = odd_bytes(word);
      for (int m = 0; m < M; ++m) sums[m][h] = add_dots(add_dots(sums[m][h], even, x[m]), odd, x[M + m]);
    }
  }
}
inline VI signed_sums(VI sums, const uint8_t*, const Rounding&) { return sums; }
#else
constexpr int INT8_ROWS = 4, EACH = 4;  // floats
constexpr int64_t EXACT_WORDS = 128;    // 512 products of 255 * 128 add up exactly in float32
inline void put_row(const float* q, int64_t words, const Rounding&, int32_t* out, int rows) {
  for (int64_t i = 0; i < words * 4; ++i) std::memcpy(out + i * rows, q + i, 4);
}
template <int M>
void add_words_of(int64_t words, const uint8_t* w, const int32_t* x, VI (&sums)[M][2]) {
  const float* a = reinterpret_cast<const float*>(x);
  for (int64_t i = 0; i < words; i += EXACT_WORDS) {
    V part[M][2];
    for (auto& row : part) row[0] = row[1] = vzero();
    for (int64_t j = i; j < words && j < i + EXACT_WORDS; ++j, w += NR * 4, a += EACH * M) {
      VI word[2] = {load_words(w), load_words(w + W * 4)};
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        V b0 = signed_byte(word[0], k), b1 = signed_byte(word[1], k);
        for (int m = 0; m < M; ++m) {
          part[m][0] = vfma(vset(a[k * M + m]), b0, part[m][0]);
          part[m][1] = vfma(vset(a[k * M + m]), b1, part[m][1]);
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int h = 0; h < 2; ++h) sums[m][h] = add_whole(sums[m][h], whole_of(part[m][h]));
    }
  }
}
inline VI signed_sums(VI sums, const uint8_t*, const Rounding&) { return sums; }
#endif

struct Tiling {  // rows in blocks of nearly equal height, those in tiles of nearly equal height
  int64_t rows, blocks;
  Tiling(int64_t all, int64_t bytes) : rows(all) {
    int64_t most = INT8_BYTES / bytes;
    most = most < LEAST_INT8_ROWS ? LEAST_INT8_ROWS : (most > MOST_INT8_ROWS ? MOST_INT8_ROWS : most);
    blocks = (rows + most - 1) / most;
  }
  int64_t first(int64_t block) const { return rows * block / blocks; }
  int64_t tiles(int64_t block) const { return (first(block + 1) - first(block) + INT8_ROWS - 1) / INT8_ROWS; }
  // Calls body(first row, rows as a type) for each tile of a block.
  template <class F>
  void each(int64_t block, F body) const {
    int64_t from = first(block), height = first(block + 1) - from, count = tiles(block);
    for (int64_t t = 0; t < count; ++t) {
      int64_t row = from + height * t / count, end = from + height * (t + 1) / count;
      with_rows<INT8_ROWS>(static_cast<int>(end - row), [&](auto m) { body(row, m); });
    }
  }
};

struct WholeX {  // tiles of rows, [word][EACH][row]
  int32_t* words;
  float* scales;
  int64_t count;  // words a row
  int32_t* tile(int64_t row) const { return words + row * count * EACH; }
};

template <class X>
void whole_tiles(const LinearArgs& g, const Rounding& how, const Tiling& cut, const WholeX& to) {
  struct Tile {
    int64_t first;
    int rows;
  };
  std::vector<Tile> tiles;
  for (int64_t b = 0; b < cut.blocks; ++b) {
    cut.each(b, [&](int64_t row, auto m) { tiles.push_back({row, decltype(m)::value}); });
  }
  g.pool->run(static_cast<int64_t>(tiles.size()), [&](int64_t at, int) {
    std::vector<float> q(to.count * 4 + W, 0.0f);
    auto [first, rows] = tiles[at];
    for (int m = 0; m < rows; ++m) {
      to.scales[first + m] = whole_row(static_cast<const X*>(g.x) + (first + m) * g.x_stride, g.k, how, q.data());
      put_row(q.data(), to.count, how, to.tile(first) + m, rows);
    }
  });
}

template <int M>
void int8_tile(const LinearArgs& g, const Rounding& how, const WholeX& x, int64_t row, int64_t n0,
               const uint8_t* panel) {
  VI sums[M][2];
  for (auto& one : sums) one[0] = one[1] = no_words();
  add_words_of<M>(x.count, panel + INT8_HEAD, x.tile(row), sums);
  float c[M * NR];
  for (int h = 0; h < 2; ++h) {
    V scales = vload(reinterpret_cast<const float*>(panel) + h * W);
    for (int m = 0; m < M; ++m) {
      VI whole = signed_sums(sums[m][h], panel + (NR + h * W) * 4, how);
      vstore(c + m * NR + h * W, vmul(vmul(vset(x.scales[row + m]), scales), floats_of(whole)));
    }
  }
  finish_rows(g, row, M, n0, NR, c);
}

}  // namespace

void linear_int8(const LinearArgs& g, const Rounding& how) {
#ifdef ANYCHIP_AMX
  if (byte_tiles_take(g)) return tiled_int8(g, how);
#endif
  int64_t words = int8_words(g.k), bytes = int8_panel_bytes(g.k), panels = (g.n + NR - 1) / NR;
  WholeX x{static_cast<int32_t*>(g.workspace), nullptr, words};
  x.scales = reinterpret_cast<float*>(x.words + round_up(g.rows * words * EACH, 16));
  Tiling cut(g.rows, words * EACH * 4);
  with_activation(g.x_type, [&](auto* t) { whole_tiles<std::remove_pointer_t<decltype(t)>>(g, how, cut, x); });
  g.pool->run_streams(cut.blocks * panels, [&](int64_t task, int) {
    int64_t p = task % panels;
    cut.each(task / panels, [&](int64_t row, auto m) {
      int8_tile<decltype(m)::value>(g, how, x, row, p * NR, g.weight + p * bytes);
    });
  });
}

}  // namespace anychip

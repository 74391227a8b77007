// y = x @ weight.T of int8 by int8: each row of x is rounded to whole numbers of a scale, products are
// added exactly in 32 bits, and a sum meets both scales once. A panel is NR float32 scales, then words of
// four numbers a column, as SignedBytes has them; what lies past K is zeros.
#include <limits>
#include <vector>

#include "finish.h"
#include "int8.h"
#include "micro.h"
#include "pool.h"

namespace anychip {
namespace {

constexpr int INT8_ROWS = 4;           // of a register tile
constexpr int64_t INT8_BLOCK = 64;     // rows that share a panel in a core's cache
constexpr int64_t EXACT_WORDS = 128;   // 512 products of 255 * 128 add up exactly in float32

#ifdef ANYCHIP_BYTE_DOTS
constexpr int EACH = 2;  // operands of 4 bytes that four numbers of a row become: (0, 2) and (1, 3)
inline void put_word(const float* q, int32_t* out, int rows) {
  for (int i = 0; i < 2; ++i) {
    int low = static_cast<int>(q[i]), high = static_cast<int>(q[2 + i]);
    out[i * rows] = static_cast<int32_t>((low & 0xffff) | static_cast<uint32_t>(high) << 16);
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
#else
constexpr int EACH = 4;  // floats
inline void put_word(const float* q, int32_t* out, int rows) {
  for (int i = 0; i < 4; ++i) std::memcpy(out + i * rows, q + i, 4);
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
#endif

// A row's whole numbers, zero taken off again, in `q`; its scale, NaN where one number is not finite.
template <class X>
float whole_row(const X* x, int64_t k, const Rounding& how, float* q) {
  V most = vzero(), odd = vzero();
  for (int64_t i = 0; i < k; i += W) {
    V v = load_part(x + i, k - i);
    most = vmax(most, vmax(v, vsub(vzero(), v)));
    odd = vadd(odd, vmul(v, vzero()));  // 0 unless a number is infinite or none
  }
  float scale = how.scale > 0.0f ? how.scale : hmax(most) / 127.0f;
  V zero = vset(static_cast<float>(how.zero)), low = vset(how.scale > 0.0f ? -128.0f : -127.0f);
  for (int64_t i = 0; i < k; i += W) {
    V v = vadd(vround(vdiv(load_part(x + i, k - i), vset(scale))), zero);
    v = vsub(vmin(vset(127.0f), vmax(low, v)), zero);
    vstore_n(q + i, scale > 0.0f ? v : vzero(), k - i < W ? k - i : W);
  }
  return hsum(odd) == 0.0f ? scale : std::numeric_limits<float>::quiet_NaN();
}

struct WholeX {  // tiles of INT8_ROWS rows, [word][EACH][row]
  int32_t* words;
  float* scales;
  int64_t count;  // words a row
};

template <class X>
void whole_tiles(const LinearArgs& g, const Rounding& how, const WholeX& to) {
  g.pool->run((g.rows + INT8_ROWS - 1) / INT8_ROWS, [&](int64_t tile, int) {
    std::vector<float> q(to.count * 4 + W, 0.0f);
    int64_t first = tile * INT8_ROWS;
    int rows = static_cast<int>(g.rows - first < INT8_ROWS ? g.rows - first : INT8_ROWS);
    for (int m = 0; m < rows; ++m) {
      to.scales[first + m] = whole_row(static_cast<const X*>(g.x) + (first + m) * g.x_stride, g.k, how, q.data());
      int32_t* out = to.words + first * to.count * EACH + m;
      for (int64_t i = 0; i < to.count; ++i) put_word(q.data() + i * 4, out + i * EACH * rows, rows);
    }
  });
}

template <int M>
void int8_tile(const LinearArgs& g, const WholeX& x, int64_t row, int64_t n0, const uint8_t* panel) {
  VI sums[M][2];
  for (auto& one : sums) one[0] = one[1] = no_words();
  add_words_of<M>(x.count, panel + NR * 4, x.words + row * x.count * EACH, sums);
  float c[M * NR];
  for (int m = 0; m < M; ++m) {
    for (int h = 0; h < 2; ++h) {
      V scale = vmul(vset(x.scales[row + m]), vload(reinterpret_cast<const float*>(panel) + h * W));
      vstore(c + m * NR + h * W, vmul(scale, floats_of(sums[m][h])));
    }
  }
  finish_rows(g, row, M, n0, NR, c);
}

}  // namespace

void linear_int8(const LinearArgs& g, const Rounding& how) {
  int64_t words = int8_words(g.k), bytes = int8_panel_bytes(g.k), panels = (g.n + NR - 1) / NR;
  WholeX x{static_cast<int32_t*>(g.workspace), nullptr, words};
  x.scales = reinterpret_cast<float*>(x.words + round_up(g.rows * words * EACH, 16));
  with_activation(g.x_type, [&](auto* t) { whole_tiles<std::remove_pointer_t<decltype(t)>>(g, how, x); });
  int64_t blocks = (g.rows + INT8_BLOCK - 1) / INT8_BLOCK, each = panels / (8 * g.pool->threads()) + 1;
  int64_t groups = (panels + each - 1) / each;
  g.pool->run(blocks * groups, [&](int64_t task, int) {
    int64_t first = task / groups * INT8_BLOCK, last = first + INT8_BLOCK < g.rows ? first + INT8_BLOCK : g.rows;
    int64_t from = task % groups * each, to = from + each < panels ? from + each : panels;
    for (int64_t p = from; p < to; ++p) {
      for (int64_t r = first; r < last; r += INT8_ROWS) {
        int rows = static_cast<int>(last - r < INT8_ROWS ? last - r : INT8_ROWS);
        with_rows<INT8_ROWS>(rows, [&](auto m) {
          int8_tile<decltype(m)::value>(g, x, r, p * NR, g.weight + p * bytes);
        });
      }
    }
  });
}

}  // namespace anychip

// y = x @ weight.T of int8 by int8 in tiles of AMX: panels as int8.h packs them are what the tiles want, 16
// words of four numbers a step. Sums are exact and meet the scales as in linear_int8.cpp: the same bits.
#pragma once
#include <vector>

#include "int8_rows.h"
#include "linear_amx.h"
#include "pool.h"

#ifdef ANYCHIP_AMX
namespace anychip {

constexpr int64_t TILED_ROWS_INT8 = 16;  // fewer meet the words of a panel one by one
constexpr int64_t WORDS_AMX = 16;        // of a tile's row
constexpr int64_t STEP_INT8 = WORDS_AMX * NR * 4;  // bytes of a panel

inline bool byte_tiles_take(const LinearArgs& g) { return g.rows >= TILED_ROWS_INT8; }

// A step's words that the panel has only some of are copied, the rest zeros: nothing behind it is read.
struct BytePanels {
  static constexpr Meet MEET = Meet::BYTES;
  static constexpr int64_t SCRATCH = STEP_INT8;
  int64_t words;  // of a row
  int64_t whole() const { return words / WORDS_AMX * TILE_STEPS; }  // in pairs of bytes, as all that follows
  int64_t bytes() const { return INT8_HEAD + words * NR * 4; }
  const uint8_t* part(const uint8_t* panel, int64_t first, int64_t, uint8_t* scratch) const {
    const uint8_t* from = panel + INT8_HEAD + first / TILE_STEPS * STEP_INT8;
    if (first < whole()) return from;
    int64_t there = words % WORDS_AMX * NR * 4;
    std::memcpy(scratch, from, there);
    std::memset(scratch + there, 0, STEP_INT8 - there);
    stores_are_read();
    return scratch;
  }
  template <class F>
  void parts(int64_t rows, F body) const {
    equal_parts(whole(), rows <= FEW_ROWS, body);
    if (words % WORDS_AMX) body(whole(), TILE_STEPS);
  }
};

// A product whose rows are packed as bytes; `tiled` is it as tiles see it, its elements pairs of bytes.
class ByteProduct {
 public:
  ByteProduct(const LinearArgs& args, const Rounding& with)
      : g(args), tiled(args), panels{int8_words(args.k)}, how(with) {
    int64_t steps = (panels.words + WORDS_AMX - 1) / WORDS_AMX, stride = (steps | 1) * 64;  // no two rows in a set
    auto* rows = static_cast<int8_t*>(g.workspace);
    scales = reinterpret_cast<float*>(rows + round_up(g.rows * stride, 64));
    tiled.x = rows, tiled.x_stride = stride / 2, tiled.k = steps * TILE_STEPS;
    with_activation(g.x_type, [&](auto* x) { pack<std::remove_pointer_t<decltype(x)>>(rows, stride); });
  }

  // 16 sums of a row as float32; columns: where their scales lie in the head of a panel.
  V scaled(int64_t row, const uint8_t* columns, const float* c) const {
    VI whole = less_times(load_words(reinterpret_cast<const uint8_t*>(c)), load_words(columns + NR * 4), how.zero);
    return vmul(vmul(vset(scales[row]), vload(reinterpret_cast<const float*>(columns))), floats_of(whole));
  }

  const LinearArgs& g;
  LinearArgs tiled;
  BytePanels panels;

 private:
  template <class X>
  void pack(int8_t* out, int64_t stride) {
    for_rows(g.pool, g.rows, g.k, [&](int64_t first, int64_t last) {
      std::vector<float> q(round_up(stride, W), 0.0f);
      V zero = vset(static_cast<float>(how.zero));
      for (int64_t r = first; r < last; ++r) {
        scales[r] = whole_row(static_cast<const X*>(g.x) + r * g.x_stride, g.k, how, q.data());
        for (int64_t i = 0; i < stride; i += W) {
          __m512i whole = _mm512_cvtps_epi32(vadd(vload(q.data() + i), zero));
          _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * stride + i), _mm512_cvtepi32_epi8(whole));
        }
      }
    });
  }

  Rounding how;
  float* scales;
};

// Sums that meet their scales, then go on as float32 ones do.
template <class Finish>
struct ScaledRow {
  const ByteProduct& product;
  Finish finish;
  int64_t row = 0;
  const uint8_t* head = nullptr;
  explicit ScaledRow(const ByteProduct& of) : product(of), finish(of.g) {}
  void start(int64_t first, int64_t panel) {
    row = first, head = product.g.weight + panel * product.panels.bytes();
    finish.start(first, panel);
  }
  void next(const float* c) {
    float sums[NR];
    for (int h = 0; h < 2; ++h) vstore(sums + h * W, product.scaled(row, head + h * W * 4, c + h * W));
    ++row;
    finish.next(sums);
  }
};

inline void tiled_int8(const LinearArgs& g, const Rounding& how) {
  ByteProduct product(g, how);
  if (RoundRow::takes(g)) return tile_panels(product.tiled, product.panels, ScaledRow<RoundRow>(product));
  FloatRow::takes(g) ? tile_panels(product.tiled, product.panels, ScaledRow<FloatRow>(product))
                     : tile_panels(product.tiled, product.panels, ScaledRow<AnyRow>(product));
}

}  // namespace anychip
#endif

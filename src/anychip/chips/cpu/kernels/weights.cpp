// Packing a checkpoint's rows into panels, and reading rows back for an embedding.
#include "abi.h"
#include "int8.h"
#include "pool.h"
#include "segments.h"
#include "with_format.h"

namespace anychip {
namespace {

// put(panel, lane, source) of each row. A task owns whole panels: two rows may share a byte of one.
template <class F>
void for_columns(const PackArgs& g, int64_t panel, int64_t source_row, F put) {
  int64_t low = g.first / NR, end = g.first + g.rows;
  for_rows(g.pool, (end + NR - 1) / NR - low, g.k * NR, [&](int64_t from, int64_t to) {
    int64_t start = (low + from) * NR, stop = (low + to) * NR;
    for (int64_t n = start > g.first ? start : g.first; n < stop && n < end; ++n) {
      put(g.target + n / NR * panel, static_cast<int>(n % NR), g.source + (n - g.first) * source_row);
    }
  });
}

template <class Format>
void pack(const PackArgs& g) {
  int64_t blocks = blocks_of<Format>(g.k);
  int64_t source_row = Format::SCALED ? blocks * Format::SOURCE : g.k * Format::SOURCE / Format::BLOCK;
  for_columns(g, blocks * Format::BYTES, source_row, [&](uint8_t* row, int lane, const uint8_t* source) {
    for (int64_t i = 0; i < blocks; ++i) {
      int64_t steps = g.k - i * Format::BLOCK;
      if (steps > Format::BLOCK) steps = Format::BLOCK;
      Format::put(row + i * Format::BYTES, lane, source + i * Format::SOURCE, steps);
    }
  });
}

// One column of a block.
template <class Format>
void packed_block(const uint8_t* block, int lane, int64_t count, float* out) {
  if constexpr (Format::SCALED) {
    for (int run = 0; run < Format::BLOCK / Format::RUN; ++run) {
      V d[2], low[2];
      float scale[W], minimum[W];
      Format::scales(block, run, d, low);
      vstore(scale, d[lane / W]);
      vstore(minimum, low[lane / W]);
      for (int k = run * Format::RUN; k < (run + 1) * Format::RUN && k < count; ++k) {
        out[k] = scale[lane % W] * Format::number(block, k, lane) + minimum[lane % W];
      }
    }
  } else {
    for (int k = 0; k < count; ++k) out[k] = Format::value(block, k, lane);
  }
}

template <class Format>
void packed_row(const uint8_t* table, int64_t n, int64_t k, float* out) {
  int64_t blocks = blocks_of<Format>(k);
  const uint8_t* block = table + n / NR * blocks * Format::BYTES;
  for (int64_t i = 0; i < k; i += Format::BLOCK, block += Format::BYTES) {
    packed_block<Format>(block, static_cast<int>(n % NR), k - i < Format::BLOCK ? k - i : Format::BLOCK, out + i);
  }
}

template <class T>
void plain_row(const T* table, int64_t n, int64_t k, float* out) {
  for (int64_t i = 0; i < k; i += W) {
    store_part(out + i, load_part(table + n * k + i, k - i), k - i);
  }
}

void panels_row(int64_t format, const uint8_t* panels, int64_t n, int64_t k, float* out) {
  if (format == INT8) return get_int8_row(panels + n / NR * int8_panel_bytes(k), static_cast<int>(n % NR), k, out);
  with_format(format, [&](auto* f) { packed_row<std::remove_pointer_t<decltype(f)>>(panels, n, k, out); });
}

void segments_row(const Segments& table, int64_t n, int64_t k, float* out) {
  const Segment* s = table.begin();
  for (; n >= s->rows; ++s) n -= s->rows;
  if (!s->order) return panels_row(s->format, table.at(s->panels), n, k, out);
  std::vector<float> sorted(k);
  panels_row(s->format, table.at(s->panels), n, k, sorted.data());
  for (int64_t i = 0; i < k; ++i) out[table.order_of(*s)[i]] = sorted[i];
}

void table_row(const EmbeddingArgs& g, int64_t n, float* out) {
  if (g.format == SEGMENTS) {
    segments_row(segments_of(g.table), n, g.k, out);
  } else if (g.packed) {
    panels_row(g.format, g.table, n, g.k, out);
  } else {
    with_storage(g.format, [&](auto* t) {
      plain_row(reinterpret_cast<const std::remove_pointer_t<decltype(t)>*>(g.table), n, g.k, out);
    });
  }
}

template <class Y>
void embed(const EmbeddingArgs& g, int64_t first, int64_t last) {
  std::vector<float> row(g.k);
  V scale = vset(static_cast<float>(g.scale));
  for (int64_t t = first; t < last; ++t) {
    table_row(g, g.tokens[t], row.data());
    Y* y = static_cast<Y*>(g.y) + t * g.k;
    for (int64_t i = 0; i < g.k; i += W) {
      store_part(y + i, vmul(scale, load_part(row.data() + i, g.k - i)), g.k - i);
    }
  }
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int64_t anychip_panel_columns() { return NR; }

EXPORT int64_t anychip_panel_bytes(int64_t format, int64_t k) {
  if (format == INT8) return int8_panel_bytes(k);
  int64_t bytes = 0;
  with_format(format, [&](auto* f) {
    using Format = std::remove_pointer_t<decltype(f)>;
    bytes = blocks_of<Format>(k) * Format::BYTES;
  });
  return bytes;
}

EXPORT int32_t anychip_pack(const PackArgs* args) {
  if (args->format == INT8) {
    for_columns(*args, int8_panel_bytes(args->k), 4 + args->k, [&](uint8_t* panel, int lane, const uint8_t* source) {
      put_int8_row(panel, lane, source, args->k);
    });
    return OK;
  }
  with_format(args->format, [&](auto* f) { pack<std::remove_pointer_t<decltype(f)>>(*args); });
  return OK;
}

EXPORT int32_t anychip_embedding(const EmbeddingArgs* args) {
  const EmbeddingArgs& g = *args;
  for (int64_t t = 0; t < g.rows; ++t) {
    if (g.tokens[t] < 0 || g.tokens[t] >= g.n) return BAD_TOKEN;
  }
  with_activation(g.y_type, [&](auto* y) {
    for_rows(g.pool, g.rows, g.k * 4, [&](int64_t first, int64_t last) {
      embed<std::remove_pointer_t<decltype(y)>>(g, first, last);
    });
  });
  return OK;
}

// What surrounds a draw: masks, changes of single logits, log-probabilities. A row's result depends
// on the row alone. A NaN logit counts as -inf in log-probabilities.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "abi.h"
#include "largest.h"
#include "pool.h"
#include "simd.h"

namespace anychip {
namespace {

constexpr int64_t WORD = 32;
constexpr int64_t SUMMED = 1024;  // terms that are summed in lanes before they go to double

// x and y may be one row: the copies let the compiler use vectors all the same.
void mask_word(const float* x, float* y, uint32_t bits) {
  float t[WORD];
  std::memcpy(t, x, sizeof t);
  for (int i = 0; i < WORD; ++i) t[i] = bits >> i & 1 ? t[i] : -INF;
  std::memcpy(y, t, sizeof t);
}

void mask_row(const float* x, const int32_t* mask, float* y, int64_t n) {
  int64_t whole = n / WORD;
  for (int64_t w = 0; w < whole; ++w) {
    uint32_t bits = static_cast<uint32_t>(mask[w]);
    const float* from = x + w * WORD;
    float* to = y + w * WORD;
    if (bits == 0) {
      std::fill(to, to + WORD, -INF);
    } else if (bits != UINT32_MAX) {
      mask_word(from, to, bits);
    } else if (from != to) {
      std::memcpy(to, from, WORD * sizeof(float));
    }
  }
  for (int64_t i = whole * WORD; i < n; ++i) {
    y[i] = static_cast<uint32_t>(mask[whole]) >> (i % WORD) & 1 ? x[i] : -INF;
  }
}

int32_t check_entries(const AdjustArgs& g) {
  for (int64_t k = 0; k < g.count; ++k) {
    if (g.rows[k] >= g.limit) return BAD_ROW;
    if (g.rows[k] >= 0 && (g.ids[k] < 0 || g.ids[k] >= g.n)) return BAD_TOKEN;
  }
  return OK;
}

float adjusted(float logit, float repetition, float bias) {
  if (bias == -INF) return bias;
  return (logit > 0.0f ? logit / repetition : logit * repetition) + bias;
}

float number(float x) { return std::isnan(x) ? -INF : x; }

// Elements of a vector from x on; -inf, which neither weighs nor is larger, behind the last.
V part(const float* x, int64_t n) {
  if (n >= W) return vload(x);
  float t[W];
  std::fill(t, t + W, -INF);
  std::memcpy(t, x, n * sizeof(float));
  return vload(t);
}

struct Sums {
  double weights = 0.0;  // of e**(x - top)
  int64_t larger = 0;    // x > own
};

// What is largest weighs 1 and is counted, the others are summed apart: beside a 1, lanes of float32
// would lose the small ones that a logprob near 0 consists of. vmax makes 0 of a NaN.
Sums sums(const float* x, int64_t n, float top, float own) {
  Sums found;
  V base = vset(top), below = vset(std::nextafter(top, -INF)), mine = vset(own), one = vset(1.0f);
  for (int64_t start = 0; start < n; start += SUMMED) {
    int64_t end = std::min(start + SUMMED, n);
    V weights = vzero(), tops = vzero(), larger = vzero();
    for (int64_t i = start; i < end; i += W) {
      V v = part(x + i, end - i);
      V e = vmax(vexp(vsub(v, base)), vzero());
      weights = vadd(weights, vpick_lt(below, v, vzero(), e));
      tops = vadd(tops, vpick_lt(below, v, one, vzero()));
      larger = vadd(larger, vpick_lt(mine, v, one, vzero()));
    }
    found.weights += static_cast<double>(hsum(tops)) + hsum(weights);
    found.larger += static_cast<int64_t>(hsum(larger));
  }
  return found;
}

float logprob(float x, float top, double total) {
  if (!std::isfinite(top)) return NAN;  // nothing to choose, or a +inf
  return static_cast<float>(static_cast<double>(x) - top - std::log(total));
}

int32_t token_of(const LogprobArgs& g, int64_t r) { return g.given[r] >= 0 ? g.given[r] : g.sampled[r]; }

void token_logprob(const LogprobArgs& g, int64_t r) {
  int32_t token = token_of(g, r);
  if (token < 0) {
    g.logprob[r] = NAN;
    g.rank[r] = 0;
    return;
  }
  const float* x = g.logits + r * g.n;
  float own = number(x[token]), top = largest(x, g.n);
  Sums found = sums(x, g.n, top, own);
  g.logprob[r] = logprob(own, top, found.weights);
  g.rank[r] = static_cast<int32_t>(1 + found.larger);
}

// The best so far in two arrays, as a heap whose first one is the worst: the smallest, of equals the
// one with the highest id.
struct Best {
  float* values;
  int32_t* ids;

  bool worse(int64_t a, int64_t b) const {
    return values[a] < values[b] || (values[a] == values[b] && ids[a] > ids[b]);
  }

  void swap(int64_t a, int64_t b) {
    std::swap(values[a], values[b]);
    std::swap(ids[a], ids[b]);
  }

  void sink(int64_t at, int64_t count) {
    for (;;) {
      int64_t child = 2 * at + 1;
      if (child >= count) return;
      if (child + 1 < count && worse(child + 1, child)) ++child;
      if (!worse(child, at)) return;
      swap(at, child);
      at = child;
    }
  }
};

// Tokens come in the order of ids, so an equal of the worst never replaces it.
void offer(Best& best, const float* x, int64_t first, int64_t last, int64_t count) {
  for (int64_t i = first; i < last; ++i) {
    if (!(x[i] > best.values[0])) continue;
    best.values[0] = x[i];
    best.ids[0] = static_cast<int32_t>(i);
    best.sink(0, count);
  }
}

void top_logprobs(const float* x, float* values, int32_t* ids, int64_t n, int64_t count) {
  constexpr int64_t BLOCK = 8 * W;
  Best best{values, ids};
  for (int64_t i = 0; i < count; ++i) {
    values[i] = number(x[i]);
    ids[i] = static_cast<int32_t>(i);
  }
  for (int64_t i = count / 2 - 1; i >= 0; --i) best.sink(i, count);
  int64_t i = count;
  for (; i + BLOCK <= n; i += BLOCK) {
    if (largest(x + i, BLOCK) > values[0]) offer(best, x, i, i + BLOCK, count);
  }
  offer(best, x, i, n, count);
  for (int64_t last = count - 1; last > 0; --last) {
    best.swap(0, last);
    best.sink(0, last);
  }
  float top = values[0];
  double total = sums(x, n, top, INF).weights;
  for (int64_t k = 0; k < count; ++k) values[k] = logprob(values[k], top, total);
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int32_t anychip_mask_logits(const MaskArgs* args) {
  const MaskArgs& g = *args;
  int64_t words = (g.n + WORD - 1) / WORD;
  for_rows(g.pool, g.rows, g.n, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      mask_row(g.logits + r * g.n, g.mask + r * words, g.y + r * g.n, g.n);
    }
  });
  return OK;
}

EXPORT int32_t anychip_adjust_logits(const AdjustArgs* args) {
  const AdjustArgs& g = *args;
  if (int32_t status = check_entries(g)) return status;
  if (g.y != g.logits) {
    for_rows(g.pool, g.limit, g.n, [&](int64_t first, int64_t last) {
      std::memcpy(g.y + first * g.n, g.logits + first * g.n, (last - first) * g.n * sizeof(float));
    });
  }
  for (int64_t k = 0; k < g.count; ++k) {
    if (g.rows[k] < 0) continue;
    float* y = g.y + g.rows[k] * g.n + g.ids[k];
    *y = adjusted(*y, g.repetition[k], g.bias[k]);
  }
  return OK;
}

EXPORT int32_t anychip_token_logprobs(const LogprobArgs* args) {
  const LogprobArgs& g = *args;
  for (int64_t r = 0; r < g.rows; ++r) {
    if (token_of(g, r) >= g.n) return BAD_TOKEN;
  }
  for_rows(g.pool, g.rows, g.n * 4, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) token_logprob(g, r);
  });
  return OK;
}

EXPORT int32_t anychip_top_logprobs(const TopArgs* args) {
  const TopArgs& g = *args;
  for_rows(g.pool, g.rows, g.n * 4, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      top_logprobs(g.logits + r * g.n, g.values + r * g.top, g.ids + r * g.top, g.n, g.top);
    }
  });
  return OK;
}

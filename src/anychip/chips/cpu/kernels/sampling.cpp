// From logits to tokens, a row at a time. A NaN is never chosen by greedy and sample, and where
// nothing can be chosen the answer is NO_TOKEN.
#include <algorithm>
#include <cmath>
#include <functional>

#include "abi.h"
#include "largest.h"
#include "pool.h"
#include "simd.h"

namespace anychip {
namespace {

constexpr int32_t NO_TOKEN = -1;

int32_t greedy(const float* x, int64_t n) {
  float top = largest(x, n);
  const float* found = std::find(x, x + n, top);  // minus infinity is found only where it is
  return found < x + n ? static_cast<int32_t>(found - x) : NO_TOKEN;
}

// Sums in lanes over SUMMED elements, then in double: many small terms are not lost.
void softmax(const float* x, float* y, int64_t n, bool logarithm) {
  constexpr int64_t SUMMED = 1024;
  float top = largest(x, n);
  V base = vset(top == -INF ? 0.0f : top);
  double total = 0.0;
  for (int64_t start = 0; start < n; start += SUMMED) {
    int64_t end = std::min(start + SUMMED, n);
    V sum = vzero();
    for (int64_t i = start; i < end; i += W) {
      V d = vsub(load_part(x + i, end - i), base), e = vexp(d);
      store_part(y + i, logarithm ? d : e, end - i);
      if (end - i < W) {
        float t[W];
        vstore(t, e);
        e = load_n(t, end - i);
      }
      sum = vadd(sum, e);
    }
    total += hsum(sum);
  }
  V whole = vset(static_cast<float>(logarithm ? std::log(total) : total));
  for (int64_t i = 0; i < n; i += W) {
    V v = load_part(y + i, n - i);
    store_part(y + i, logarithm ? vsub(v, whole) : vdiv(v, whole), n - i);
  }
}

// weights[i] = e**((x[i] - max) / temperature): the largest is 1. A NaN weighs 0, and all do where
// the largest is infinite.
void weigh(const float* x, float* weights, int64_t n, float temperature) {
  V top = vset(largest(x, n)), t = vset(temperature);
  for (int64_t i = 0; i < n; i += W) {
    V e = vexp(vdiv(vsub(load_part(x + i, n - i), top), t));
    store_part(weights + i, vmax(e, vzero()), n - i);
  }
}

float middle(float a, float b, float c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); }

// The smallest weight of the shortest descending prefix that reaches `share` of all `count` weights.
// As quickselect, by sum: what is larger than a pivot goes first, and the search stays in the part
// where the sum is reached.
float prefix_end(float* weights, int64_t count, float share) {
  double total = 0.0, above = 0.0;
  for (int64_t i = 0; i < count; ++i) total += weights[i];
  double wanted = total * share;
  float *first = weights, *last = weights + count;
  while (last - first > 1) {
    float pivot = middle(*first, first[(last - first) / 2], last[-1]);
    float* equal = std::partition(first, last, [&](float w) { return w > pivot; });
    float* less = std::partition(equal, last, [&](float w) { return w == pivot; });
    double larger = 0.0;
    for (float* w = first; w < equal; ++w) larger += *w;
    if (equal > first && above + larger >= wanted) {
      last = equal;
      continue;
    }
    above += larger + static_cast<double>(pivot) * (less - equal);
    if (above >= wanted || less == last) return pivot;
    first = less;
  }
  return *first;
}

float threshold(const float* weights, float* scratch, int64_t n, int64_t top_k, float top_p, float min_p) {
  float limit = min_p;
  int64_t count = n;
  if (top_k >= 1 && top_k < n) {
    std::copy(weights, weights + n, scratch);
    std::nth_element(scratch, scratch + top_k - 1, scratch + n, std::greater<float>());
    float kth = scratch[top_k - 1];
    limit = std::max(limit, kth);
    count = std::copy_if(weights, weights + n, scratch, [&](float w) { return w >= kth; }) - scratch;
  } else if (top_p < 1.0f) {
    std::copy(weights, weights + n, scratch);
  }
  if (top_p < 1.0f) limit = std::max(limit, prefix_end(scratch, count, top_p));
  return limit;
}

int32_t sample(const SampleArgs& g, int64_t r, int thread) {
  const float* x = g.logits + r * g.n;
  float *weights = g.workspace + 2 * thread * g.n, *scratch = weights + g.n;
  if (!(g.temperature[r] > 0.0f)) return greedy(x, g.n);
  weigh(x, weights, g.n, g.temperature[r]);
  float limit = threshold(weights, scratch, g.n, g.top_k[r], g.top_p[r], g.min_p[r]);
  double total = 0.0, sum = 0.0;
  for (int64_t i = 0; i < g.n; ++i) total += weights[i] >= limit ? weights[i] : 0.0f;
  double wanted = total * g.noise[r];
  int32_t last = NO_TOKEN;
  for (int64_t i = 0; i < g.n; ++i) {
    if (weights[i] < limit || weights[i] == 0.0f) continue;
    sum += weights[i];
    last = static_cast<int32_t>(i);
    if (sum > wanted) break;
  }
  return last;
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int32_t anychip_greedy(const LogitsArgs* args) {
  const LogitsArgs& g = *args;
  for_rows(g.pool, g.rows, g.n, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) static_cast<int32_t*>(g.y)[r] = greedy(g.logits + r * g.n, g.n);
  });
  return OK;
}

EXPORT int32_t anychip_softmax(const LogitsArgs* args) {
  const LogitsArgs& g = *args;
  for_rows(g.pool, g.rows, g.n * 4, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      softmax(g.logits + r * g.n, static_cast<float*>(g.y) + r * g.n, g.n, g.kind == 1);
    }
  });
  return OK;
}

EXPORT int32_t anychip_sample(const SampleArgs* args) {
  const SampleArgs& g = *args;
  g.pool->run(g.rows, [&](int64_t r, int thread) { g.tokens[r] = sample(g, r, thread); });
  return OK;
}

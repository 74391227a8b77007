// Online softmax of query rows in float32, a row's keys side by side.
#pragma once
#include "attention_work.h"

namespace anychip {
namespace attention {

inline void clear(State s, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    s.m[r] = -INF;
    s.l[r] = 0.0f;
  }
  std::memset(s.o, 0, rows * width * sizeof(float));
}

// into = into merged with s. A row that saw nothing adds nothing; into an empty one s is copied.
inline void merge(State into, State s, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    if (s.m[r] == -INF) continue;
    float* a = into.o + r * width;
    const float* b = s.o + r * width;
    if (into.m[r] == -INF) {
      into.m[r] = s.m[r];
      into.l[r] = s.l[r];
      std::memcpy(a, b, width * sizeof(float));
      continue;
    }
    float m = into.m[r] > s.m[r] ? into.m[r] : s.m[r];
    V fa = vset(exp1(into.m[r] - m)), fb = vset(exp1(s.m[r] - m));
    float l[W];
    vstore(l, vfma(vset(into.l[r]), fa, vmul(vset(s.l[r]), fb)));
    into.m[r] = m;
    into.l[r] = l[0];
    for (int64_t i = 0; i < width; i += W) {
      vstore(a + i, vfma(vload(a + i), fa, vmul(vload(b + i), fb)));
    }
  }
}

// Scores of one row become weights. low, high: visible keys of the block. Returns the factor that
// rescales what the row has gathered so far.
inline float soften(const Work& w, int64_t row, float* scores, int64_t low, int64_t high) {
  V top = vset(-INF), scale = vset(static_cast<float>(w.g.scale));
  for (int64_t j = 0; j < KEYS; j += W) {
    V x = vmul(vload(scores + j), scale);
    if (w.g.softcap > 0.0) x = vsoftcap(x, static_cast<float>(w.g.softcap));
    if (j < low || j + W > high) x = only_visible(x, j, low, high);
    vstore(scores + j, x);
    top = vmax(x, top);
  }
  float m = hmax(top), before = w.now.m[row];
  if (before > m) m = before;
  V base = vset(m == -INF ? 0.0f : m), sum = vzero();
  for (int64_t j = 0; j < KEYS; j += W) {
    V p = vexp(vsub(vload(scores + j), base));
    vstore(scores + j, p);
    sum = vadd(sum, p);
  }
  float factor = before == m ? 1.0f : exp1(before - m);
  float l[W];
  vstore(l, vfma(vset(w.now.l[row]), vset(factor), vset(hsum(sum))));
  w.now.m[row] = m;
  w.now.l[row] = l[0];
  return factor;
}

inline void rescale(float* o, int64_t width, float factor) {
  if (factor == 1.0f) return;
  for (int64_t i = 0; i < width; i += W) vstore(o + i, vmul(vload(o + i), vset(factor)));
}

// Scores of rows become weights, and what the rows have gathered is rescaled.
inline void soften_rows(Work& w, int64_t r0, int rows, int64_t start) {
  int64_t width = w.s.width;
  for (int m = 0; m < rows; ++m) {
    int64_t token = (r0 + m) / w.s.group;
    int64_t low = w.first_of(token) - start, high = w.last_of(token) - start;
    if (low < 0) low = 0;
    if (high > KEYS) high = KEYS;
    if (low >= high) {
      std::memset(w.scores + m * KEYS, 0, KEYS * sizeof(float));
      continue;
    }
    rescale(w.now.o + (r0 + m) * width, width, soften(w, r0 + m, w.scores + m * KEYS, low, high));
  }
}

}  // namespace attention
}  // namespace anychip

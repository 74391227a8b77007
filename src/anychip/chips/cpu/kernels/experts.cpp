// Mixtures of experts: which experts a token goes to, and the products of those experts. The matrices
// of all experts are one packed weight. Where an expert's rows are no whole panels of it, its product
// is taken over the panels that hold them, and what belongs to its neighbours is left out.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "abi.h"
#include "pool.h"
#include "formats.h"
#include "room.h"
#include "simd.h"

using namespace anychip;

EXPORT int64_t anychip_panel_bytes(int64_t format, int64_t k);

namespace anychip {
namespace {

constexpr int64_t CHUNK = 256;  // rows of one expert whose values between its products stay near the cores
constexpr float LEAST = 1e-20f;

enum Scoring : int64_t { SOFTMAX = 0, SIGMOID = 1, SOFTMAX_TOPK = 2 };

void softmax(float* x, int64_t n) {
  float top = -INF, sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  for (int64_t i = 0; i < n; ++i) sum += x[i] = exp1(x[i] - top);
  for (int64_t i = 0; i < n; ++i) x[i] /= sum;
}

// Places of the n largest of x, descending, the lower one first of equals. x: no NaN.
void best(const float* x, int64_t count, int64_t n, int32_t* places) {
  for (int64_t i = 0; i < count; ++i) places[i] = static_cast<int32_t>(i);
  std::partial_sort(places, places + n, places + count,
                    [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
}

struct Route {  // one token's numbers; places: as many as there are experts
  float *scores, *choices, *groups;
  int32_t* places;
};

void score(const RouteArgs& g, const float* logits, const Route& r) {
  std::memcpy(r.scores, logits, g.experts * sizeof(float));
  if (g.scoring == SOFTMAX) softmax(r.scores, g.experts);
  for (int64_t e = 0; e < g.experts; ++e) {
    if (g.scoring == SIGMOID) r.scores[e] = 1.0f / (1.0f + exp1(-r.scores[e]));
    float choice = g.bias ? r.scores[e] + g.bias[e] : r.scores[e];
    r.choices[e] = choice == choice ? choice : -INF;
  }
}

// -inf for the experts outside of the best groups.
void limit_groups(const RouteArgs& g, const Route& r) {
  int64_t size = g.experts / g.groups;
  for (int64_t i = 0; i < g.groups; ++i) {
    const float* x = r.choices + i * size;
    best(x, size, g.top2 ? 2 : 1, r.places);
    r.groups[i] = g.top2 ? x[r.places[0]] + x[r.places[1]] : x[r.places[0]];
  }
  best(r.groups, g.groups, g.groups_kept, r.places);
  std::sort(r.places, r.places + g.groups_kept);
  for (int64_t i = 0, kept = 0; i < g.groups; ++i) {
    if (kept < g.groups_kept && r.places[kept] == i) {
      ++kept;
    } else {
      std::fill(r.choices + i * size, r.choices + (i + 1) * size, -INF);
    }
  }
}

void route(const RouteArgs& g, int64_t t, const Route& r) {
  score(g, g.logits + t * g.experts, r);
  if (g.groups > 1) limit_groups(g, r);
  best(r.choices, g.experts, g.k, r.places);
  float *weights = g.weights + t * g.k, sum = 0.0f;
  for (int64_t i = 0; i < g.k; ++i) {
    g.ids[t * g.k + i] = r.places[i];
    weights[i] = r.scores[r.places[i]];
  }
  if (g.scoring == SOFTMAX_TOPK) softmax(weights, g.k);
  for (int64_t i = 0; i < g.k; ++i) sum += weights[i];
  for (int64_t i = 0; i < g.k; ++i) {
    if (g.renormalize) weights[i] /= sum + LEAST;
    weights[i] *= static_cast<float>(g.scale);
  }
}

// Rows (of tokens, or of pairs of a token and one of its experts) sorted by expert, in their order.
struct Sorted {
  int32_t *rows, *starts;  // starts: one more than there are experts
  Sorted(int32_t* at, int64_t experts) : rows(at + experts + 1), starts(at) {}
  static int64_t words(int64_t rows, int64_t experts) { return round_up(rows + experts + 1, 16); }

  bool sort(const int32_t* ids, int64_t count, int64_t experts) {
    std::memset(starts, 0, (experts + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= experts) return false;
      ++starts[ids[i] + 1];
    }
    for (int64_t e = 0; e < experts; ++e) starts[e + 1] += starts[e];
    for (int64_t i = 0; i < count; ++i) rows[starts[ids[i]]++] = static_cast<int32_t>(i);
    for (int64_t e = experts; e > 0; --e) starts[e] = starts[e - 1];
    starts[0] = 0;
    return true;
  }
};

struct Matrices {  // of all experts: [count][n, k]
  const uint8_t* weight;
  const float* bias;
  int64_t n, k, format;
  // Of the panel that holds an expert's first row.
  const uint8_t* of(int64_t expert) const {
    return weight + expert * n / NR * anychip_panel_bytes(format, k);
  }
  const float* bias_of(int64_t expert) const { return bias ? bias + expert * n : nullptr; }
  // Floats of `wide` below, for so many rows; not 0 where every expert begins with a panel, since
  // what is asked for never shrinks when a size grows.
  static int64_t wide(int64_t n, int64_t rows) { return rows * (n + NR); }
};

struct Typed {  // rows that lie one behind the other
  void* at;
  int64_t type;
};

struct Scratch {
  float* wide;
  void* workspace;
};

// Columns skip .. skip + n of the wide rows, with the bias, rounded.
void take_columns(const Matrices& m, int64_t expert, const float* wide, int64_t skip, Typed y, int64_t rows) {
  const float* bias = m.bias_of(expert);
  with_activation(y.type, [&](auto* type) {
    auto* out = static_cast<decltype(type)>(y.at);
    for (int64_t t = 0; t < rows; ++t, wide += m.n + NR, out += m.n) {
      for (int64_t i = 0; i < m.n; i += W) {
        int64_t left = m.n - i;
        V v = load_part(wide + skip + i, left);
        store_part(out + i, bias ? vadd(v, load_part(bias + i, left)) : v, left);
      }
    }
  });
}

void multiply(Pool* pool, const Matrices& m, int64_t expert, Typed x, Typed y, int64_t rows, Scratch scratch) {
  int64_t skip = expert * m.n % NR;
  if (m.n % NR == 0) {
    LinearArgs linear{pool, x.at, m.of(expert), m.bias_of(expert), y.at, scratch.workspace, rows, m.n, m.k, m.k, m.n,
                      x.type, m.format, y.type, 1.0, 0.0};
    anychip_linear(&linear);
    return;
  }
  LinearArgs linear{pool, x.at, m.of(expert), nullptr, scratch.wide, scratch.workspace, rows, skip + m.n, m.k, m.k,
                    m.n + NR, x.type, m.format, 0, 1.0, 0.0};
  anychip_linear(&linear);
  take_columns(m, expert, scratch.wide, skip, y, rows);
}

// Calls body(expert, first, count) for every expert's rows of `sorted`, a chunk at a time.
template <class F>
void for_experts(const Sorted& sorted, int64_t experts, F body) {
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t first = sorted.starts[e]; first < sorted.starts[e + 1]; first += CHUNK) {
      body(e, first, std::min<int64_t>(CHUNK, sorted.starts[e + 1] - first));
    }
  }
}

struct GroupedRoom {
  int32_t* sorted;
  void *x, *y;
  Scratch scratch;
  int64_t bytes;
  GroupedRoom(const GroupedArgs& g, int64_t threads) {
    int64_t size = size_of(g.type), chunk = std::min(g.rows, CHUNK);
    Room room{static_cast<uint8_t*>(g.workspace)};
    sorted = reinterpret_cast<int32_t*>(room.take(Sorted::words(g.rows, g.count) * 4));
    x = room.take(chunk * g.k * size);
    y = room.take(chunk * g.n * size);
    scratch.wide = reinterpret_cast<float*>(room.take(Matrices::wide(g.n, chunk) * 4));
    scratch.workspace = room.take(anychip_linear_workspace(chunk, g.k, threads));
    bytes = room.at - static_cast<uint8_t*>(g.workspace);
  }
};

struct ExpertRoom {
  int32_t* sorted;
  float* sum;  // [rows, k]
  void *x, *both, *inner, *y;
  Scratch scratch;
  int64_t bytes;
  ExpertRoom(const ExpertArgs& g, int64_t threads) {
    int64_t size = size_of(g.type), pairs = g.rows * g.used, chunk = std::min(pairs, CHUNK);
    Room room{static_cast<uint8_t*>(g.workspace)};
    sorted = reinterpret_cast<int32_t*>(room.take(Sorted::words(pairs, g.count) * 4));
    sum = reinterpret_cast<float*>(room.take(g.rows * g.k * 4));
    x = room.take(chunk * g.k * size);
    both = room.take(2 * chunk * g.inner * size);
    inner = room.take(chunk * g.inner * size);
    y = room.take(chunk * g.k * 4);
    int64_t wide = std::max(Matrices::wide(2 * g.inner, chunk), Matrices::wide(g.k, chunk));
    scratch.wide = reinterpret_cast<float*>(room.take(wide * 4));
    scratch.workspace = room.take(std::max(anychip_linear_workspace(chunk, g.k, threads),
                                           anychip_linear_workspace(chunk, g.inner, threads)));
    bytes = room.at - static_cast<uint8_t*>(g.workspace);
  }
};

void gate(const ExpertArgs& g, const ExpertRoom& room, int64_t rows) {
  if (g.kind == 2) {
    ClampArgs clamp{g.pool, room.both, room.inner, rows, g.inner, g.type, g.alpha, g.limit};
    anychip_swiglu_clamp(&clamp);
    return;
  }
  ActivationArgs activation{g.pool, room.both, room.inner, rows, g.inner, g.type, g.kind};
  anychip_activation(&activation);
}

// sum[t] += weight * y of every pair of a chunk. A token's experts come in rising order, whatever
// shares the batch.
void add_shares(const ExpertArgs& g, const ExpertRoom& room, const int32_t* pairs, int64_t count) {
  for_rows(g.pool, (g.k + W - 1) / W, count * W, [&](int64_t first, int64_t last) {
    for (int64_t i = 0; i < count; ++i) {
      const float* y = static_cast<const float*>(room.y) + i * g.k;
      float* sum = room.sum + pairs[i] / g.used * g.k;
      V weight = vset(g.weights[pairs[i]]);
      for (int64_t c = first * W; c < last * W && c < g.k; c += W) {
        int64_t left = g.k - c;
        store_part(sum + c, vfma(weight, load_part(y + c, left), load_part(sum + c, left)), left);
      }
    }
  });
}

}  // namespace
}  // namespace anychip

EXPORT int64_t anychip_route_experts_workspace(const RouteArgs* args, int64_t) {
  return round_up((3 * args->experts + args->groups) * 4, 64);
}

EXPORT int32_t anychip_route_experts(const RouteArgs* args) {
  const RouteArgs& g = *args;
  float* scores = static_cast<float*>(g.workspace);
  float *choices = scores + g.experts, *groups = choices + g.experts;
  Route room{scores, choices, groups, reinterpret_cast<int32_t*>(groups + g.groups)};
  for (int64_t t = 0; t < g.rows; ++t) route(g, t, room);
  return OK;
}

EXPORT int64_t anychip_grouped_linear_workspace(const GroupedArgs* args, int64_t threads) {
  return GroupedRoom(*args, threads).bytes;
}

EXPORT int32_t anychip_grouped_linear(const GroupedArgs* args) {
  const GroupedArgs& g = *args;
  GroupedRoom room(g, g.pool->threads());
  Sorted sorted(room.sorted, g.count);
  if (!sorted.sort(g.experts, g.rows, g.count)) return BAD_EXPERT;
  Matrices m{g.weight, g.bias, g.n, g.k, g.format};
  int64_t size = size_of(g.type), wide = g.n * size;
  const uint8_t* x = static_cast<const uint8_t*>(g.x);
  for_experts(sorted, g.count, [&](int64_t expert, int64_t first, int64_t count) {
    const int32_t* rows = sorted.rows + first;
    uint8_t *in = static_cast<uint8_t*>(room.x), *out = static_cast<uint8_t*>(room.y);
    for (int64_t i = 0; i < count; ++i) std::memcpy(in + i * g.k * size, x + rows[i] * g.x_stride * size, g.k * size);
    multiply(g.pool, m, expert, {in, g.type}, {out, g.type}, count, room.scratch);
    for (int64_t i = 0; i < count; ++i) std::memcpy(static_cast<uint8_t*>(g.y) + rows[i] * wide, out + i * wide, wide);
  });
  return OK;
}

EXPORT int64_t anychip_expert_mlp_workspace(const ExpertArgs* args, int64_t threads) {
  return ExpertRoom(*args, threads).bytes;
}

EXPORT int32_t anychip_expert_mlp(const ExpertArgs* args) {
  const ExpertArgs& g = *args;
  ExpertRoom room(g, g.pool->threads());
  Sorted sorted(room.sorted, g.count);
  if (!sorted.sort(g.ids, g.rows * g.used, g.count)) return BAD_EXPERT;
  Matrices gate_up{g.gate_up, g.gate_up_bias, 2 * g.inner, g.k, g.gate_up_format};
  Matrices down{g.down, g.down_bias, g.k, g.inner, g.down_format};
  int64_t row = g.k * size_of(g.type);
  std::memset(room.sum, 0, g.rows * g.k * 4);
  for_experts(sorted, g.count, [&](int64_t expert, int64_t first, int64_t count) {
    const int32_t* pairs = sorted.rows + first;
    uint8_t* in = static_cast<uint8_t*>(room.x);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(in + i * row, static_cast<const uint8_t*>(g.x) + pairs[i] / g.used * row, row);
    }
    multiply(g.pool, gate_up, expert, {room.x, g.type}, {room.both, g.type}, count, room.scratch);
    gate(g, room, count);
    multiply(g.pool, down, expert, {room.inner, g.type}, {room.y, 0}, count, room.scratch);
    add_shares(g, room, pairs, count);
  });
  ElementArgs rounded{g.pool, room.sum, nullptr, g.y, g.rows * g.k, 0, g.type, 0};
  return anychip_elements(&rounded);
}

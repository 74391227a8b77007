// Recurrent state: a causal convolution over channels, and the gated delta rule.
//
// Channels of the one and columns of the other's memory do not depend on each other: a task takes some
// of them through all tokens, in order, so that a result depends on neither chunk nor batch.
#include "abi.h"
#include "activations.h"
#include "pool.h"
#include "simd.h"

namespace anychip {
namespace {

constexpr int64_t MAX_WIDTH = 16;    // operators_recurrent.py says so too
constexpr int64_t CHANNELS = 8 * W;  // of one task
constexpr int64_t COLUMNS = 4 * W;

bool sound(const StateArgs& s) {
  for (int64_t b = 0; b < s.rows; ++b) {
    int64_t first = s.cu_q[b], end = s.cu_q[b + 1];
    if (first < 0 || end < first || end > s.tokens) return false;
    if (first == end) continue;
    bool fresh = s.positions[first] == 0;
    if (s.state_to[b] < 0 || s.state_to[b] >= s.slots) return false;
    if (!fresh && (s.state_from[b] < 0 || s.state_from[b] >= s.slots)) return false;
  }
  return true;
}

// One task's channels: its part of the weights, and inputs from before the step.
struct Channels {
  int64_t first, count;
  alignas(64) float taps[MAX_WIDTH][CHANNELS], before[MAX_WIDTH][CHANNELS], bias[CHANNELS];
};

void read_taps(const ConvArgs& g, Channels& c) {
  std::memset(c.taps, 0, sizeof c.taps);
  std::memset(c.bias, 0, sizeof c.bias);
  for (int64_t i = 0; i < c.count; ++i) {
    for (int64_t j = 0; j < g.width; ++j) c.taps[j][i] = g.weight[(c.first + i) * g.width + j];
    if (g.bias) c.bias[i] = g.bias[c.first + i];
  }
}

template <class T>
void read_before(const ConvArgs& g, Channels& c, int64_t b, int64_t start) {
  int64_t kept = g.width - 1;
  std::memset(c.before, 0, sizeof c.before);
  for (int64_t v = start < kept ? kept - start : 0; v < kept; ++v) {
    const T* from = static_cast<const T*>(g.state) + (g.s.state_from[b] * kept + v) * g.channels + c.first;
    for (int64_t i = 0; i < c.count; i += W) vstore(c.before[v] + i, load_part(from + i, c.count - i));
  }
}

template <class T>
void convolve(const ConvArgs& g, const Channels& c, int64_t b) {
  int64_t kept = g.width - 1, first = g.s.cu_q[b], count = g.s.cu_q[b + 1] - first;
  const T* x = static_cast<const T*>(g.x) + first * g.x_stride + c.first;
  T* y = static_cast<T*>(g.y) + first * g.channels + c.first;
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t i = 0; i < c.count; i += W) {
      int64_t left = c.count - i;
      V sum = vload(c.bias + i);
      for (int64_t j = 0; j < g.width; ++j) {
        int64_t at = t - kept + j;
        V input = at < 0 ? vload(c.before[kept + at] + i) : load_part(x + at * g.x_stride + i, left);
        sum = vfma(input, vload(c.taps[j] + i), sum);
      }
      store_part(y + t * g.channels + i, g.silu ? silu(sum) : sum, left);
    }
  }
}

template <class T>
void write_last(const ConvArgs& g, const Channels& c, int64_t b) {
  int64_t kept = g.width - 1, first = g.s.cu_q[b], count = g.s.cu_q[b + 1] - first;
  const T* x = static_cast<const T*>(g.x) + first * g.x_stride + c.first;
  for (int64_t v = 0; v < kept; ++v) {
    int64_t at = count - kept + v;
    T* to = static_cast<T*>(g.state) + (g.s.state_to[b] * kept + v) * g.channels + c.first;
    for (int64_t i = 0; i < c.count; i += W) {
      int64_t left = c.count - i;
      V input = at < 0 ? vload(c.before[kept + at] + i) : load_part(x + at * g.x_stride + i, left);
      store_part(to + i, input, left);
    }
  }
}

template <class T>
void conv_task(const ConvArgs& g, int64_t task) {
  Channels c;
  c.first = task * CHANNELS;
  c.count = g.channels - c.first < CHANNELS ? g.channels - c.first : CHANNELS;
  read_taps(g, c);
  for (int64_t b = 0; b < g.s.rows; ++b) {
    if (g.s.cu_q[b] == g.s.cu_q[b + 1]) continue;
    read_before<T>(g, c, b, g.s.positions[g.s.cu_q[b]]);
    convolve<T>(g, c, b);
    write_last<T>(g, c, b);
  }
}

// Some columns of one head's memory [key_dim][value_dim]. left: how many.
struct Memory {
  float* at;
  int64_t stride, left;
};

// memory *= keeps; found = key @ memory
template <class T>
void decay_and_read(const Memory& m, const T* key, int64_t keys, V keeps, V* found) {
  for (int64_t k = 0; k < keys; ++k) {
    V share = vset(widen(key[k]));
    float* row = m.at + k * m.stride;
    for (int64_t j = 0; j * W < m.left; ++j) {
      V held = vmul(load_part(row + j * W, m.left - j * W), keeps);
      store_part(row + j * W, held, m.left - j * W);
      found[j] = vfma(held, share, found[j]);
    }
  }
}

// memory += outer(key, change); y = query @ memory
template <class T>
void correct_and_read(const Memory& m, const T* key, const T* query, int64_t keys, const V* change, V* y) {
  for (int64_t k = 0; k < keys; ++k) {
    V share = vset(widen(key[k])), asked = vset(widen(query[k]));
    float* row = m.at + k * m.stride;
    for (int64_t j = 0; j * W < m.left; ++j) {
      V held = vfma(share, change[j], load_part(row + j * W, m.left - j * W));
      store_part(row + j * W, held, m.left - j * W);
      y[j] = vfma(held, asked, y[j]);
    }
  }
}

template <class T>
void delta_token(const DeltaArgs& g, const Memory& m, int64_t t, int64_t head, int64_t column) {
  int64_t group = head / (g.heads / g.key_heads);
  const T* key = static_cast<const T*>(g.k) + t * g.k_stride + group * g.key_dim;
  const T* query = static_cast<const T*>(g.q) + t * g.q_stride + group * g.key_dim;
  const T* value = static_cast<const T*>(g.v) + t * g.v_stride + head * g.value_dim + column;
  T* to = static_cast<T*>(g.y) + (t * g.heads + head) * g.value_dim + column;
  V found[COLUMNS / W], y[COLUMNS / W], beta = vset(g.beta[t * g.heads + head]);
  for (int64_t j = 0; j < COLUMNS / W; ++j) found[j] = y[j] = vzero();
  decay_and_read(m, key, g.key_dim, vset(exp1(g.decay[t * g.heads + head])), found);
  for (int64_t j = 0; j * W < m.left; ++j) {
    found[j] = vmul(vsub(load_part(value + j * W, m.left - j * W), found[j]), beta);
  }
  correct_and_read(m, key, query, g.key_dim, found, y);
  for (int64_t j = 0; j * W < m.left; ++j) {
    store_part(to + j * W, vmul(y[j], vset(static_cast<float>(g.scale))), m.left - j * W);
  }
}

template <class T>
void delta_task(const DeltaArgs& g, int64_t b, int64_t head, int64_t column) {
  int64_t first = g.s.cu_q[b], end = g.s.cu_q[b + 1];
  if (first == end) return;
  int64_t left = g.value_dim - column < COLUMNS ? g.value_dim - column : COLUMNS;
  auto part = [&](int64_t slot) { return g.state + ((slot * g.heads + head) * g.key_dim) * g.value_dim + column; };
  Memory m{part(g.s.state_to[b]), g.value_dim, left};
  bool fresh = g.s.positions[first] == 0;
  const float* from = fresh ? nullptr : part(g.s.state_from[b]);
  for (int64_t k = 0; k < g.key_dim && from != m.at; ++k) {
    float* row = m.at + k * m.stride;
    if (fresh) {
      std::memset(row, 0, left * sizeof(float));
    } else {
      std::memcpy(row, from + k * m.stride, left * sizeof(float));
    }
  }
  for (int64_t t = first; t < end; ++t) delta_token<T>(g, m, t, head, column);
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int32_t anychip_causal_conv1d(const ConvArgs* args) {
  const ConvArgs& g = *args;
  if (!sound(g.s)) return BAD_SLOT;
  int64_t tasks = (g.channels + CHANNELS - 1) / CHANNELS;
  with_activation(g.type, [&](auto* x) {
    for_rows(g.pool, tasks, (g.s.tokens + g.s.rows) * g.width * CHANNELS, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) conv_task<std::remove_pointer_t<decltype(x)>>(g, task);
    });
  });
  return OK;
}

EXPORT int32_t anychip_gated_delta_rule(const DeltaArgs* args) {
  const DeltaArgs& g = *args;
  if (!sound(g.s)) return BAD_SLOT;
  int64_t blocks = (g.value_dim + COLUMNS - 1) / COLUMNS, per_row = g.heads * blocks;
  int64_t tokens = g.s.rows > 0 ? 1 + g.s.tokens / g.s.rows : 1;
  with_activation(g.type, [&](auto* x) {
    for_rows(g.pool, g.s.rows * per_row, tokens * g.key_dim * COLUMNS, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        int64_t inner = task % per_row;
        delta_task<std::remove_pointer_t<decltype(x)>>(g, task / per_row, inner / blocks, inner % blocks * COLUMNS);
      }
    });
  });
  return OK;
}

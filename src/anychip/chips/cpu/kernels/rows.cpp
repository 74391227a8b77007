// Operators over rows of activations: norms, rotation, gated activations, elementwise, row moves.
#include <cmath>

#include "abi.h"
#include "activations.h"
#include "pool.h"
#include "simd.h"

namespace anychip {
namespace {

template <class T>
void norm_row(const NormArgs& g, int64_t t) {
  const T* x = static_cast<const T*>(g.x) + t * g.x_stride;
  const T* residual = g.residual ? static_cast<const T*>(g.residual) + t * g.k : nullptr;
  T* sum = g.sum ? static_cast<T*>(g.sum) + t * g.k : nullptr;
  T* y = static_cast<T*>(g.y) + t * g.k;
  V squares = vzero();
  for (int64_t i = 0; i < g.k; i += W) {
    int64_t left = g.k - i;
    V v = load_part(x + i, left);
    if (residual) {
      store_part(sum + i, vadd(v, load_part(residual + i, left)), left);
      v = load_part(sum + i, left);
    }
    squares = vfma(v, v, squares);
  }
  float mean = hsum(squares) / static_cast<float>(g.k);
  V factor = vset(1.0f / std::sqrt(mean + static_cast<float>(g.eps)));
  const T* from = residual ? sum : x;
  for (int64_t i = 0; i < g.k; i += W) {
    int64_t left = g.k - i;
    V v = vmul(vmul(load_part(from + i, left), factor), load_part(g.weight + i, left));
    store_part(y + i, v, left);
  }
}

template <class T>
void rotate_halves(const T* x, T* y, const float* cosine, const float* sine, int64_t half) {
  for (int64_t i = 0; i < half; i += W) {
    int64_t left = half - i;
    V a = load_part(x + i, left), b = load_part(x + half + i, left);
    V c = load_part(cosine + i, left), s = load_part(sine + i, left);
    store_part(y + i, vsub(vmul(a, c), vmul(b, s)), left);
    store_part(y + half + i, vadd(vmul(b, c), vmul(a, s)), left);
  }
}

template <class T>
T narrow(float x) {
  T y;
  store_n(&y, vset(x), 1);
  return y;
}

template <class T>
void rotate_pairs(const T* x, T* y, const float* cosine, const float* sine, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    float a = widen(x[2 * i]), b = widen(x[2 * i + 1]);
    y[2 * i] = narrow<T>(a * cosine[i] - b * sine[i]);
    y[2 * i + 1] = narrow<T>(b * cosine[i] + a * sine[i]);
  }
}

template <class T>
void rotate(const RotaryArgs& g, int64_t t, const T* x, T* y, int64_t heads) {
  int64_t half = g.rotary_dim / 2;
  const float* cosine = g.cos_sin + g.positions[t] * g.rotary_dim;
  for (int64_t h = 0; h < heads; ++h, x += g.dim, y += g.dim) {
    if (g.neox) {
      rotate_halves(x, y, cosine, cosine + half, half);
    } else {
      rotate_pairs(x, y, cosine, cosine + half, half);
    }
    std::memcpy(y + g.rotary_dim, x + g.rotary_dim, (g.dim - g.rotary_dim) * sizeof(T));
  }
}

template <class T>
void activate_row(const ActivationArgs& g, int64_t t) {
  const T* gate = static_cast<const T*>(g.x) + t * 2 * g.inner;
  T* y = static_cast<T*>(g.y) + t * g.inner;
  for (int64_t i = 0; i < g.inner; i += W) {
    int64_t left = g.inner - i;
    V x = load_part(gate + i, left), up = load_part(gate + g.inner + i, left);
    store_part(y + i, vmul(activate(g.kind, x), up), left);
  }
}

template <class T>
void clamp_row(const ClampArgs& g, int64_t t) {
  const T* x = static_cast<const T*>(g.x) + t * 2 * g.inner;
  T* y = static_cast<T*>(g.y) + t * g.inner;
  V limit = vset(static_cast<float>(g.limit)), low = vset(-static_cast<float>(g.limit)), one = vset(1.0f);
  V alpha = vset(-static_cast<float>(g.alpha));
  for (int64_t i = 0; i < g.inner; i += W) {
    int64_t left = g.inner - i;
    V gate = vmin(limit, load_part(x + i, left)), up = load_part(x + g.inner + i, left);
    up = vmin(limit, vmax(low, up));
    V share = vdiv(gate, vadd(one, vexp(vmul(alpha, gate))));
    store_part(y + i, vmul(share, vadd(up, one)), left);
  }
}

template <class A, class Y>
void elements(const ElementArgs& g, int64_t first, int64_t last) {
  const A *a = static_cast<const A*>(g.a), *b = static_cast<const A*>(g.b);
  Y* y = static_cast<Y*>(g.y);
  for (int64_t i = first; i < last; i += W) {
    int64_t left = last - i;
    V v = load_part(a + i, left);
    if (g.kind == 1) v = vadd(v, load_part(b + i, left));
    if (g.kind == 2) v = vmul(v, load_part(b + i, left));
    store_part(y + i, v, left);
  }
}

bool in_range(const int32_t* index, int64_t count, int64_t low, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] < low || index[i] >= limit) return false;
  }
  return true;
}

}  // namespace
}  // namespace anychip

using namespace anychip;

EXPORT int32_t anychip_norm(const NormArgs* args) {
  const NormArgs& g = *args;
  with_activation(g.type, [&](auto* x) {
    for_rows(g.pool, g.rows, g.k, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) norm_row<std::remove_pointer_t<decltype(x)>>(g, t);
    });
  });
  return OK;
}

EXPORT int32_t anychip_rotary(const RotaryArgs* args) {
  const RotaryArgs& g = *args;
  if (!in_range(g.positions, g.rows, 0, g.limit)) return BAD_POSITION;
  with_activation(g.type, [&](auto* x) {
    using T = std::remove_pointer_t<decltype(x)>;
    for_rows(g.pool, g.rows, (g.heads + g.kv_heads) * g.dim, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        rotate(g, t, static_cast<const T*>(g.q) + t * g.q_stride, static_cast<T*>(g.q_out) + t * g.heads * g.dim, g.heads);
        rotate(g, t, static_cast<const T*>(g.k) + t * g.k_stride, static_cast<T*>(g.k_out) + t * g.kv_heads * g.dim, g.kv_heads);
      }
    });
  });
  return OK;
}

EXPORT int32_t anychip_activation(const ActivationArgs* args) {
  const ActivationArgs& g = *args;
  with_activation(g.type, [&](auto* x) {
    for_rows(g.pool, g.rows, g.inner * 4, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) activate_row<std::remove_pointer_t<decltype(x)>>(g, t);
    });
  });
  return OK;
}

EXPORT int32_t anychip_swiglu_clamp(const ClampArgs* args) {
  const ClampArgs& g = *args;
  with_activation(g.type, [&](auto* x) {
    for_rows(g.pool, g.rows, g.inner * 4, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) clamp_row<std::remove_pointer_t<decltype(x)>>(g, t);
    });
  });
  return OK;
}

EXPORT int32_t anychip_elements(const ElementArgs* args) {
  const ElementArgs& g = *args;
  with_storage(g.a_type, [&](auto* a) {
    with_storage(g.y_type, [&](auto* y) {
      for_rows(g.pool, (g.count + 1023) / 1024, 1024, [&](int64_t first, int64_t last) {
        int64_t end = last * 1024 < g.count ? last * 1024 : g.count;
        elements<std::remove_pointer_t<decltype(a)>, std::remove_pointer_t<decltype(y)>>(g, first * 1024, end);
      });
    });
  });
  return OK;
}

EXPORT int32_t anychip_gather_rows(const RowsArgs* args) {
  const RowsArgs& g = *args;
  if (!in_range(g.index, g.count, 0, g.limit)) return BAD_ROW;
  for_rows(g.pool, g.count, g.row_bytes / 4, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      std::memcpy(g.y + i * g.y_stride, g.table + g.index[i] * g.table_stride, g.row_bytes);
    }
  });
  return OK;
}

EXPORT int32_t anychip_scatter_rows(const RowsArgs* args) {
  const RowsArgs& g = *args;
  if (!in_range(g.index, g.count, INT32_MIN, g.limit)) return BAD_ROW;
  for (int64_t i = 0; i < g.count; ++i) {
    if (g.index[i] < 0) continue;
    std::memcpy(g.table + g.index[i] * g.table_stride, g.y + i * g.y_stride, g.row_bytes);
  }
  return OK;
}

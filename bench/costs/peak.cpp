// Dot products of registers alone: what one core's instructions give where no memory is touched.
#include <immintrin.h>

#include <chrono>

namespace {

constexpr int SUMS = 24;  // chains side by side, more than an instruction takes cycles

template <class T, class F>
double operations_a_second(double each, T zero, F step) {
  using Clock = std::chrono::steady_clock;
  constexpr int TURNS = 200000, TRIES = 15;
  double best = 0;
  for (int t = 0; t < TRIES; ++t) {
    T sum[SUMS];
    for (auto& s : sum) s = zero;
    auto begun = Clock::now();
    for (int i = 0; i < TURNS; ++i) {
#pragma GCC unroll 24
      for (int j = 0; j < SUMS; ++j) step(sum[j]);
    }
    for (auto& s : sum) asm volatile("" ::"v"(s));
    double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    double rate = each * SUMS * TURNS / seconds;
    best = rate > best ? rate : best;
  }
  return best;
}

}  // namespace

extern "C" double peak_float32() {
  __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1e-9f);
  return operations_a_second(32, _mm512_setzero_ps(), [&](__m512& s) {
    asm volatile("vfmadd231ps %1, %2, %0" : "+v"(s) : "v"(a), "v"(b));
  });
}
extern "C" double peak_bfloat16() {
  __m512i a = _mm512_set1_epi16(0x3c01), b = _mm512_set1_epi16(0x3c55);
  return operations_a_second(64, _mm512_setzero_ps(), [&](__m512& s) {
    asm volatile("vdpbf16ps %1, %2, %0" : "+v"(s) : "v"(a), "v"(b));
  });
}
extern "C" double peak_int8() {
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
  return operations_a_second(128, _mm512_setzero_si512(), [&](__m512i& s) {
    asm volatile("vpdpbusd %1, %2, %0" : "+v"(s) : "v"(a), "v"(b));
  });
}

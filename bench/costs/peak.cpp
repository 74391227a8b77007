// Dot products of registers alone: what one core's instructions give where no memory is touched.
#include <immintrin.h>

#include <chrono>

namespace {

constexpr int SUMS = 8;   // chains side by side, more than an instruction takes cycles

// step(sums): one instruction for each of the sums.
template <class T, class F>
double operations_a_second(double each, T zero, F step) {
  using Clock = std::chrono::steady_clock;
  constexpr int TURNS = 200000, TRIES = 15;
  double best = 0;
  for (int t = 0; t < TRIES; ++t) {
    T s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero;
    auto begun = Clock::now();
    for (int i = 0; i < TURNS; ++i) step(s0, s1, s2, s3, s4, s5, s6, s7);
    asm volatile("" ::"v"(s0), "v"(s1), "v"(s2), "v"(s3), "v"(s4), "v"(s5), "v"(s6), "v"(s7));
    double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    double rate = each * SUMS * TURNS / seconds;
    best = rate > best ? rate : best;
  }
  return best;
}

}  // namespace

#define EIGHT(instruction)                                                                        \
  [&](auto& s0, auto& s1, auto& s2, auto& s3, auto& s4, auto& s5, auto& s6, auto& s7) {            \
    asm volatile(instruction " %8, %9, %0\n" instruction " %8, %9, %1\n" instruction " %8, %9, %2\n"  \
                 instruction " %8, %9, %3\n" instruction " %8, %9, %4\n" instruction " %8, %9, %5\n"  \
                 instruction " %8, %9, %6\n" instruction " %8, %9, %7"                             \
                 : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7)  \
                 : "v"(a), "v"(b));                                                               \
  }

extern "C" double peak_float32() {
  __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1e-9f);
  return operations_a_second(32, _mm512_setzero_ps(), EIGHT("vfmadd231ps"));
}
extern "C" double peak_bfloat16() {
  __m512i a = _mm512_set1_epi16(0x3c01), b = _mm512_set1_epi16(0x3c55);
  return operations_a_second(64, _mm512_setzero_ps(), EIGHT("vdpbf16ps"));
}
extern "C" double peak_int8() {
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
  return operations_a_second(128, _mm512_setzero_si512(), EIGHT("vpdpbusd"));
}

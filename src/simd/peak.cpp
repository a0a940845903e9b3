#include "src/simd/peak.hpp"

#include <time.h>

#include <algorithm>

namespace fovea::simd {
namespace {

double cpu_seconds() noexcept {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Every addition needs the one before it: one cycle each. The addend is in a register, because some
// cores fold additions of constants before they reach a pipe.
uint64_t dependent_additions(int64_t iterations) {
  uint64_t x = 1, one = 1;
  asm volatile("" : "+r"(one));
  for (int64_t i = 0; i < iterations; ++i) {
#if defined(__x86_64__)
    asm volatile(
        "add %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\t"
        "add %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\t"
        : "+r"(x)
        : "r"(one));
#elif defined(__aarch64__)
    asm volatile(
        "add %0,%0,%1\n\tadd %0,%0,%1\n\tadd %0,%0,%1\n\tadd %0,%0,%1\n\t"
        "add %0,%0,%1\n\tadd %0,%0,%1\n\tadd %0,%0,%1\n\tadd %0,%0,%1\n\t"
        : "+r"(x)
        : "r"(one));
#else
    for (int k = 0; k < 8; ++k) asm volatile("" : "+r"(x += one));
#endif
  }
  return static_cast<uint64_t>(iterations) * 8;
}

}  // namespace

PeakLoop peak_loop(Isa isa, bool bf16_products) noexcept {
  switch (isa) {
    case Isa::generic:
      return generic_f32_peak();
    case Isa::avx2:
      return avx2_f32_peak();
    case Isa::avx512:
      return avx512_f32_peak();
    case Isa::avx512bf16:
      return bf16_products ? avx512bf16_bf16_peak() : avx512_f32_peak();
    case Isa::amx:
      return bf16_products ? amx_bf16_peak() : avx512_f32_peak();
    case Isa::neon:
      return nullptr;
  }
  return nullptr;
}

PeakLoop clock_loop(Isa isa, bool bf16_products) noexcept {
  const PeakLoop amx = amx_clock();
  return isa == Isa::amx && bf16_products && amx != nullptr ? amx : dependent_additions;
}

Peak measure_peak(PeakLoop loop, PeakLoop clock, double seconds) noexcept {
  constexpr int kRounds = 5;
  Peak peak;
  if (loop == nullptr) return peak;
  int64_t iterations = 1000;
  double took = 0.0;
  while (took < seconds / (4 * kRounds)) {
    iterations *= 2;
    const double start = cpu_seconds();
    loop(iterations);
    took = cpu_seconds() - start;
  }
  for (int round = 0; round < kRounds; ++round) {
    double start = cpu_seconds();
    const uint64_t operations = loop(iterations);
    peak.flops = std::max(peak.flops, static_cast<double>(operations) / (cpu_seconds() - start));
    start = cpu_seconds();
    const uint64_t additions = clock(iterations);
    peak.clock_hz =
        std::max(peak.clock_hz, static_cast<double>(additions) / (cpu_seconds() - start));
  }
  peak.per_cycle = peak.flops / peak.clock_hz;
  return peak;
}

bool at_limit(const Peak& peak, Isa isa, bool bf16_products) noexcept {
  double operations = 4.0;  // of one instruction
  if (isa == Isa::avx2) operations = 16.0;
  if (isa == Isa::avx512 || isa == Isa::avx512bf16 || isa == Isa::amx) operations = 32.0;
  if (isa == Isa::avx512bf16 && bf16_products) operations = 64.0;
  // A product of two tiles starts every 16 cycles.
  if (isa == Isa::amx && bf16_products) operations = 16 * 16 * 32 * 2 / 16.0;
  const double per_cycle = peak.per_cycle / operations;
  const double whole = static_cast<double>(static_cast<int64_t>(per_cycle + 0.5));
  // Some cores start a bfloat16 dot product every other cycle.
  const double limit = bf16_products && isa != Isa::amx && per_cycle < 0.75 ? 0.5 : whole;
  return limit > 0.0 && per_cycle >= 0.97 * limit && per_cycle <= 1.03 * limit;
}

}  // namespace fovea::simd

#include "src/simd/cpu_features.hpp"

#include <gtest/gtest.h>

#include "src/simd/peak.hpp"

namespace fovea::simd {
namespace {

TEST(CpuFeatures, NamesRoundTripInAnyCase) {
  for (Isa isa : kIsas) EXPECT_EQ(parse_isa(name(isa)), isa);
  EXPECT_EQ(parse_isa("AVX512bf16"), Isa::avx512bf16);
  EXPECT_EQ(parse_isa("avx"), std::nullopt);
  EXPECT_EQ(parse_isa(""), std::nullopt);
}

TEST(CpuFeatures, EveryMachineRunsGenericAndItsOwnLevel) {
  EXPECT_TRUE(includes(probe_isa(), Isa::generic));
  EXPECT_TRUE(includes(probe_isa(), probe_isa()));
}

TEST(CpuFeatures, X86LevelsNestAndArmStandsAlone) {
  EXPECT_TRUE(includes(Isa::avx512bf16, Isa::avx2));
  EXPECT_FALSE(includes(Isa::avx2, Isa::avx512));
  EXPECT_TRUE(includes(Isa::amx, Isa::avx512bf16));
  EXPECT_FALSE(includes(Isa::avx512bf16, Isa::amx));
  EXPECT_FALSE(includes(Isa::avx512bf16, Isa::neon));
  EXPECT_FALSE(includes(Isa::amx, Isa::neon));
  EXPECT_FALSE(includes(Isa::neon, Isa::avx2));
}

// Either the level is there or somebody says why it is not.
TEST(CpuFeatures, AmxIsThereOrRefusedWithAReason) {
  const bool there = probe_isa() == Isa::amx;
  if (includes(probe_isa(), Isa::avx512bf16)) {
    EXPECT_EQ(there, amx_refusal().empty()) << amx_refusal();
  } else {
    EXPECT_FALSE(there);
  }
  EXPECT_FALSE(includes(probe_isa(false), Isa::amx));
  EXPECT_TRUE(includes(probe_isa(), probe_isa(false)));
}

TEST(CpuFeatures, SlowBf16ProductsAreNotPreferred) {
  EXPECT_EQ(preferred_isa(Isa::avx512bf16, true), Isa::avx512);
  EXPECT_EQ(preferred_isa(Isa::avx512bf16, false), Isa::avx512bf16);
  EXPECT_EQ(preferred_isa(Isa::amx, true), Isa::amx);
  EXPECT_EQ(preferred_isa(Isa::avx2, true), Isa::avx2);
  EXPECT_TRUE(includes(probe_isa(), preferred_isa()));
}

TEST(Peak, LoopsOfThisMachineRunAndOthersAreLeftAlone) {
  for (Isa isa : kIsas) {
    if (!includes(probe_isa(), isa)) continue;
    const PeakLoop loop = peak_loop(isa, false);
    if (loop == nullptr) continue;
    const Peak peak = measure_peak(loop, clock_loop(isa, false), 0.01);
    // Between one float and two 16-wide multiply-adds per cycle, two pipes.
    EXPECT_GT(peak.per_cycle, 0.1) << name(isa);
    EXPECT_LT(peak.per_cycle, 70.0) << name(isa);
    EXPECT_GT(peak.clock_hz, 5e8) << name(isa);
  }
  if (includes(probe_isa(), Isa::amx)) {
    // Products of tiles: 1024 operations per cycle, of a clock that is lower than that of
    // additions.
    const Peak peak = measure_peak(peak_loop(Isa::amx, true), clock_loop(Isa::amx, true), 0.01);
    EXPECT_GT(peak.per_cycle, 200.0);
    EXPECT_LT(peak.per_cycle, 1100.0);
  }
  EXPECT_EQ(measure_peak(nullptr, clock_loop(Isa::generic, false), 0.01).flops, 0.0);
}

TEST(Peak, CountsOnlyAtAWholeNumberOfInstructionsPerCycle) {
  EXPECT_TRUE(at_limit({0.0, 0.0, 31.9}, Isa::avx2, false));    // two of 16
  EXPECT_TRUE(at_limit({0.0, 0.0, 32.0}, Isa::avx512, false));  // one of 32
  EXPECT_TRUE(at_limit({0.0, 0.0, 63.0}, Isa::avx512bf16, true));
  EXPECT_TRUE(at_limit({0.0, 0.0, 32.0}, Isa::avx512bf16, true));  // every other cycle
  EXPECT_TRUE(at_limit({0.0, 0.0, 1000.0}, Isa::amx, true));
  EXPECT_FALSE(at_limit({0.0, 0.0, 500.0}, Isa::amx, true));
  EXPECT_FALSE(at_limit({0.0, 0.0, 8.0}, Isa::avx2, false));
  EXPECT_FALSE(at_limit({0.0, 0.0, 30.0}, Isa::avx2, false));
  EXPECT_FALSE(at_limit({0.0, 0.0, 0.0}, Isa::avx2, false));
}

}  // namespace
}  // namespace fovea::simd

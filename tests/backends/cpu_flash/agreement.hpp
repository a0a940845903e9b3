// Runs a call on every instruction set of this machine and compares it with the float64 answer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "src/backends/cpu_flash/cpu_flash.hpp"
#include "tests/backends/cpu_flash/harness.hpp"

namespace fovea::cpu_flash::testing {

inline std::vector<const KernelTable*> tables_here(FloatType dtype) {
  std::vector<const KernelTable*> tables;
  for (simd::Isa isa : simd::kIsas) {
    if (!simd::includes(simd::probe_isa(), isa)) continue;
    if (const KernelTable* table = find_kernels(isa, dtype)) tables.push_back(table);
  }
  return tables;
}

// Equal also where both are the same NaN.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

inline double out_bound(const Call& call, double largest) {
  const double extra = largest > 16.0 ? largest * 0x1p-22 : 0.0;
  switch (call.dtype) {
    case FloatType::f32:
      return 2e-6 + extra;
    case FloatType::f16:
      return 1e-3 + extra;
    default:
      return 6e-3 + extra;
  }
}

inline double lse_bound(const Call& call, double largest) {
  const double extra = largest > 16.0 ? largest * 0x1p-22 : 0.0;
  return (call.dtype == FloatType::f32 ? 1e-5 : 1e-3) + extra;
}

// Runs `call` with every one of `tables` and compares it with the float64 answer.
inline void expect_agreement(Call& call, const std::vector<const KernelTable*>& tables,
                             const std::string& what) {
  const Answer want = answer(call);
  for (const KernelTable* table : tables) {
    SCOPED_TRACE(what + " " + table->name);
    const std::vector<char> poisoned = call.out;
    const std::vector<float> poisoned_lse = call.lse;
    call.run(*table, 1);
    const Difference d = compare(call, want);
    EXPECT_LE(d.relative_l2, out_bound(call, d.largest));
    EXPECT_LE(d.max_lse, lse_bound(call, d.largest));
    EXPECT_EQ(d.nonfinite_mismatches, 0);
    EXPECT_EQ(d.padding_written, 0);
    // Any number of workers gives the same bits.
    const std::vector<char> out = call.out;
    const std::vector<float> lse = call.lse;
    for (int workers : {2, 7}) {
      call.out = poisoned;
      call.lse = poisoned_lse;
      call.run(*table, workers);
      EXPECT_EQ(out, call.out) << workers << " workers";
      EXPECT_TRUE(same_bits(lse, call.lse)) << workers << " workers";
    }
    call.out = poisoned;
    call.lse = poisoned_lse;
  }
}

// The same call with inputs rounded to bfloat16.
inline Call in_bf16(const Call& call) {
  Call other = call;
  other.dtype = FloatType::bf16;
  for (std::vector<char> Call::*tensor : {&Call::q, &Call::k, &Call::v}) {
    const std::vector<char>& from = call.*tensor;
    std::vector<char>& to = other.*tensor;
    to.resize(from.size() / 2);
    for (int64_t i = 0; i < static_cast<int64_t>(from.size()) / 4; ++i) {
      write(to, FloatType::bf16, i, read(from, FloatType::f32, i));
    }
  }
  return other;
}

// Runs `call` on every instruction set; one of float32 also rounded to bfloat16, by the kernels
// whose products are of that type.
inline void expect_agreement(Call& call, const std::string& what = "") {
  expect_agreement(call, tables_here(call.dtype), what);
  if (call.dtype != FloatType::f32) return;
  std::vector<const KernelTable*> tables = tables_here(FloatType::bf16);
  std::erase_if(tables,
                [](const KernelTable* table) { return table->dot_dtype != FloatType::bf16; });
  if (tables.empty()) return;
  Call rounded = in_bf16(call);
  expect_agreement(rounded, tables, what + " in bf16");
}

}  // namespace fovea::cpu_flash::testing

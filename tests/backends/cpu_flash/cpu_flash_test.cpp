// The numeric contract on every instruction set that this machine runs.
#include "src/backends/cpu_flash/cpu_flash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>

#include "tests/backends/cpu_flash/agreement.hpp"

namespace fovea::cpu_flash::testing {
namespace {

TEST(CpuFlash, RunsOnTheBestInstructionSetOfThisMachine) {
  EXPECT_NE(find_kernels(simd::probe_isa(), FloatType::f32), nullptr);
  EXPECT_EQ(std::string(find_kernels(simd::Isa::generic, FloatType::f32)->name), "generic.f32");
}

TEST(CpuFlash, EveryHeadDim) {
  std::mt19937 random(101);
  for (int64_t d = 1; d <= 512; d += d < 140 ? 1 : 31) {
    Call call;
    call.seq_q = 5, call.seq_kv = 9, call.head_dim = d, call.dim_v = d;
    call.fill(random);
    expect_agreement(call, "d" + std::to_string(d));
  }
  for (int64_t d : {511, 512}) {
    Call call;
    call.seq_q = 70, call.seq_kv = 300, call.head_dim = d, call.dim_v = 513 - d;
    call.fill(random);
    expect_agreement(call, "d" + std::to_string(d));
  }
}

TEST(CpuFlash, EveryTail) {
  std::mt19937 random(102);
  for (int64_t q = 1; q <= 66; ++q) {
    Call call;
    call.seq_q = q, call.seq_kv = 67 - q, call.head_dim = 12, call.dim_v = 20;
    call.fill(random);
    expect_agreement(call, "q" + std::to_string(q));
  }
  for (int64_t kv : {77, 255, 256, 257, 259, 512, 515, 1031}) {
    Call call;
    call.seq_q = 33, call.seq_kv = kv, call.head_dim = 24, call.dim_v = 16;
    call.fill(random);
    expect_agreement(call, "kv" + std::to_string(kv));
  }
}

// Few rows against many keys: the keys are divided, and the parts merged, whatever the workers.
TEST(CpuFlash, DividedKeys) {
  std::mt19937 random(112);
  for (const int64_t q : {1, 7, 40}) {
    for (const int64_t kv : {1024, 2600, 5001}) {
      for (int kind = 0; kind < 5; ++kind) {
        Call call;
        call.heads_q = 2, call.heads_kv = kind == 1 ? 2 : 1;
        call.batch = kind == 2 ? 2 : 1;
        call.seq_q = q, call.seq_kv = kv, call.head_dim = 20, call.dim_v = 13;
        call.dtype = call.out_dtype = kind == 3 ? FloatType::bf16 : FloatType::f32;
        if (kind == 1) call.right = 0, call.left = kv / 3;
        if (kind == 2) call.lengths = {300, static_cast<int32_t>(kv - 1)};
        call.fill(random);
        // Whole parts without a visible key, and rows without any.
        if (kind == 4) call.add_mask(random, MaskType::boolean, false, false, true, 0.999);
        expect_agreement(call, "q" + std::to_string(q) + " kv" + std::to_string(kv) + " kind " +
                                   std::to_string(kind));
      }
    }
  }
}

// Many (batch item, kv head) pairs: a worker packs and uses one after the other.
TEST(CpuFlash, ManyPairs) {
  std::mt19937 random(113);
  for (const int64_t kv : {5, 77, 300}) {
    Call call;
    call.batch = 3, call.heads_q = 20, call.heads_kv = 10;
    call.seq_q = 50, call.seq_kv = kv, call.head_dim = 16, call.dim_v = 24;
    call.lengths = {static_cast<int32_t>(kv), 0, static_cast<int32_t>(kv / 2)};
    call.fill(random);
    expect_agreement(call, "kv" + std::to_string(kv));
  }
}

TEST(CpuFlash, Dtypes) {
  std::mt19937 random(103);
  for (FloatType dtype : {FloatType::f32, FloatType::f16, FloatType::bf16}) {
    for (FloatType out : {dtype, FloatType::f32}) {
      for (int64_t d : {7, 64, 65}) {
        Call call;
        call.dtype = dtype, call.out_dtype = out;
        call.batch = 2, call.heads_q = 2, call.heads_kv = 2;
        call.seq_q = 40, call.seq_kv = 301, call.head_dim = d, call.dim_v = d + 1;
        call.padding = 1;
        call.fill(random);
        expect_agreement(call, "d" + std::to_string(d));
      }
    }
  }
}

TEST(CpuFlash, LayoutsStridesAndGroups) {
  std::mt19937 random(104);
  for (bool heads_first : {false, true}) {
    for (bool expanded : {false, true}) {
      Call call;
      call.batch = 2, call.heads_q = 6, call.heads_kv = expanded ? 6 : 2;
      call.seq_q = 50, call.seq_kv = 61, call.head_dim = 16, call.dim_v = 24;
      call.heads_first = heads_first, call.expand_kv_heads = expanded, call.padding = 5;
      call.fill(random);
      expect_agreement(call);
    }
  }
}

TEST(CpuFlash, EmptySizes) {
  std::mt19937 random(105);
  for (int which = 0; which < 3; ++which) {
    Call call;
    call.batch = which == 0 ? 0 : 2;
    call.seq_q = which == 1 ? 0 : 30;
    call.seq_kv = which == 2 ? 0 : 10;
    call.fill(random);
    expect_agreement(call);
    if (which == 2) {
      call.run(*find_kernels(simd::Isa::generic, FloatType::f32));
      EXPECT_EQ(call.lse[3], -kInf);
      EXPECT_EQ(read(call.out, FloatType::f32, 3), 0.f);
    }
  }
}

TEST(CpuFlash, KeyLengths) {
  std::mt19937 random(106);
  for (bool wide : {false, true}) {
    Call call;
    call.batch = 4, call.heads_q = 2, call.heads_kv = 1, call.seq_q = 30, call.seq_kv = 600;
    call.lengths = {600, 0, 1, 300}, call.lengths_64 = wide;
    call.fill(random);
    // Nothing behind a length may be read.
    for (int64_t b = 0; b < 4; ++b) {
      for (int64_t j = call.lengths[static_cast<size_t>(b)]; j < 600; ++j) {
        write(call.k, call.dtype, call.at(call.kv_strides, b, j, 0), kNan);
        write(call.v, call.dtype, call.at(call.v_strides, b, j, 0), kInf);
      }
    }
    expect_agreement(call);
  }
}

TEST(CpuFlash, CausalAndWindows) {
  std::mt19937 random(107);
  const int64_t windows[][2] = {
      {-1, 0},   {0, 0},   {5, 0},   {0, 7},
      {100, 90}, {-1, 13}, {13, -1}, {int64_t{1} << 62, int64_t{1} << 62}};
  for (const auto& window : windows) {
    for (int64_t q : {100, 300, 700}) {
      Call call;
      call.heads_q = 2, call.heads_kv = 2, call.batch = 2;
      call.seq_q = q, call.seq_kv = 530, call.left = window[0], call.right = window[1];
      call.lengths = {530, 257};
      call.fill(random);
      expect_agreement(call, std::to_string(window[0]) + "," + std::to_string(window[1]) + " q" +
                                 std::to_string(q));
    }
  }
}

TEST(CpuFlash, MaskShapesAndTypes) {
  std::mt19937 random(108);
  for (MaskType type : {MaskType::boolean, MaskType::uint8, MaskType::int32, MaskType::int64,
                        MaskType::f32, MaskType::f16, MaskType::bf16}) {
    for (int shape = 0; shape < 8; ++shape) {
      Call call;
      call.batch = 2, call.heads_q = 4, call.heads_kv = shape % 2 == 0 ? 4 : 2;
      call.seq_q = 45, call.seq_kv = 270;
      call.fill(random);
      call.add_mask(random, type, shape & 1, shape & 2, shape & 4, 0.3);
      expect_agreement(call, "type " + std::to_string(static_cast<int>(type)) + " shape " +
                                 std::to_string(shape));
    }
  }
}

TEST(CpuFlash, SourcesIntersect) {
  std::mt19937 random(109);
  for (int round = 0; round < 12; ++round) {
    Call call;
    call.batch = 2, call.heads_q = 4, call.heads_kv = 2, call.seq_q = 150, call.seq_kv = 400;
    call.lengths = {400, 333};
    call.right = round % 3 == 0 ? -1 : round, call.left = round % 2 == 0 ? -1 : 40;
    call.fill(random);
    call.add_mask(random, MaskType::boolean, true, false, false, 0.4);
    if (round % 2 == 0) call.add_mask(random, MaskType::f32, false, false, false, 0.1);
    if (round % 4 >= 2) call.add_mask(random, MaskType::bf16, true, true, true, 0.3);
    if (round >= 6) call.add_lists(random, 64, round % 2 ? 64 : 128, 0.5, true, round % 3 == 0);
    expect_agreement(call, "round " + std::to_string(round));
  }
}

TEST(CpuFlash, BlockLists) {
  std::mt19937 random(110);
  for (int32_t block_q : {64, 128}) {
    for (int32_t block_kv : {64, 128}) {
      for (int shape = 0; shape < 4; ++shape) {
        Call call;
        call.batch = 2, call.heads_q = 2, call.heads_kv = 1, call.seq_q = 300, call.seq_kv = 333;
        call.fill(random);
        call.add_lists(random, block_q, block_kv, 0.4, shape & 1, shape & 2);
        expect_agreement(call);
      }
    }
  }
}

TEST(CpuFlash, PackedDocuments) {
  std::mt19937 random(111);
  const std::vector<std::vector<int32_t>> q_offsets = {
      {0, 40, 40, 41, 200, 300}, {0, 300}, {0, 0, 300, 300}, {0, 1, 2, 3, 4, 300}};
  const std::vector<std::vector<int32_t>> kv_offsets = {
      {0, 1, 30, 30, 290, 700}, {0, 700}, {0, 350, 350, 700}, {0, 256, 512, 513, 514, 700}};
  for (size_t n = 0; n < q_offsets.size(); ++n) {
    for (int window = 0; window < 3; ++window) {
      Call call;
      call.heads_q = 4, call.heads_kv = 2, call.seq_q = 300, call.seq_kv = 700;
      call.cu_q = q_offsets[n], call.cu_kv = kv_offsets[n];
      call.right = window == 0 ? -1 : 0, call.left = window == 2 ? 30 : -1;
      call.fill(random);
      expect_agreement(call, "documents " + std::to_string(n));
    }
  }
  // Many small documents: short blocks.
  Call call;
  call.heads_q = call.heads_kv = 1;
  for (int32_t i = 0; i <= 60; ++i) call.cu_q.push_back(i * 7), call.cu_kv.push_back(i * 11);
  call.seq_q = 420, call.seq_kv = 660;
  call.fill(random);
  expect_agreement(call, "many");
}

// q = k = 0 makes every visible key count the same, and v[j] = j tells which ones were read.
TEST(CpuFlash, ClosedFormShowsWhichKeysWereRead) {
  for (const KernelTable* table : tables_here(FloatType::f32)) {
    SCOPED_TRACE(table->name);
    Call call;
    std::mt19937 random(112);
    call.seq_q = 90, call.seq_kv = 500, call.head_dim = 8, call.dim_v = 4, call.right = 0;
    call.fill(random);
    for (int64_t i = 0; i < call.seq_q * 8; ++i) write(call.q, call.dtype, i, 0.f);
    for (int64_t j = 0; j < call.seq_kv; ++j) {
      for (int64_t d = 0; d < 8; ++d) write(call.k, call.dtype, j * 8 + d, 0.f);
      for (int64_t d = 0; d < 4; ++d) write(call.v, call.dtype, j * 4 + d, static_cast<float>(j));
    }
    call.run(*table);
    for (int64_t i = 0; i < call.seq_q; ++i) {
      const double keys = static_cast<double>(i + 500 - 90 + 1);
      EXPECT_NEAR(read(call.out, call.dtype, i * 4 + 2), (keys - 1) / 2, 1e-4 * keys);
      EXPECT_NEAR(call.lse[static_cast<size_t>(i)], std::log(keys), 1e-5);
    }
  }
}

TEST(CpuFlash, HiddenKeysMayHoldAnything) {
  std::mt19937 random(113);
  for (FloatType dtype : {FloatType::f32, FloatType::bf16}) {
    for (int kind = 0; kind < 4; ++kind) {
      Call call;
      call.dtype = call.out_dtype = dtype;
      call.seq_q = 70, call.seq_kv = 300, call.head_dim = 16, call.dim_v = 28;
      call.fill(random);
      std::vector<bool> seen(300);
      if (kind == 0) call.add_mask(random, MaskType::boolean, false, false, false, 0.5);
      if (kind == 1) call.right = 0;
      if (kind == 2) call.left = 20, call.right = 20;
      if (kind == 3) call.add_mask(random, MaskType::f32, false, true, true, 0.97);
      for (int64_t i = 0; i < 70; ++i)
        for (int64_t j = 0; j < 300; ++j)
          if (visible_term(call, 0, 0, i, j) != -kInf) seen[static_cast<size_t>(j)] = true;
      int hidden = 0;
      const float poison[] = {kNan, kInf, -kInf, FLT_MAX};
      for (int64_t j = 0; j < 300; ++j) {
        if (seen[static_cast<size_t>(j)]) continue;
        const float x = poison[hidden++ % 4];
        for (int64_t d = 0; d < 16; ++d) write(call.k, dtype, j * 16 + d, x);
        for (int64_t d = 0; d < 28; ++d) write(call.v, dtype, j * 28 + d, x);
      }
      if (kind != 1) {
        EXPECT_GT(hidden, 0) << kind;
      }
      expect_agreement(call, "kind " + std::to_string(kind));
      // A key that some rows see changes exactly those rows.
      for (int64_t j : {231, 299, 240}) write(call.v, dtype, j * 28 + 5, j == 240 ? kInf : kNan);
      expect_agreement(call, "visible v, kind " + std::to_string(kind));
      write(call.k, dtype, 250 * 16 + 3, kNan);
      expect_agreement(call, "visible k, kind " + std::to_string(kind));
      write(call.q, dtype, 37 * 16 + 3, kInf);
      expect_agreement(call, "q, kind " + std::to_string(kind));
    }
  }
}

TEST(CpuFlash, FiniteTermsNeverHide) {
  std::mt19937 random(114);
  for (bool per_row : {false, true}) {
    for (const KernelTable* table : tables_here(FloatType::f32)) {
      SCOPED_TRACE(table->name);
      Call call;
      call.seq_q = 30, call.seq_kv = 300, call.head_dim = 8, call.dim_v = 4;
      call.fill(random);
      call.add_mask(random, MaskType::f32, false, false, per_row, 0.0);
      MaskData& mask = call.masks[0];
      for (int64_t i = 0; i < static_cast<int64_t>(mask.memory.size() / 4); ++i) {
        mask.set(i, -FLT_MAX);
      }
      call.run(*table);
      for (int64_t d = 0; d < 4; ++d) {
        double mean = 0.0;
        for (int64_t j = 0; j < 300; ++j)
          mean += static_cast<double>(read(call.v, call.dtype, j * 4 + d));
        mean /= 300.0;
        for (int64_t i = 0; i < 30; ++i)
          EXPECT_NEAR(read(call.out, call.dtype, i * 4 + d), mean, 1e-6);
      }
      for (float lse : call.lse) EXPECT_EQ(lse, -FLT_MAX);
      // Beside ordinary terms they weigh nothing, also where the value is huge.
      for (int64_t i = 0; i < static_cast<int64_t>(mask.memory.size() / 4); ++i) {
        if (i % mask.row_stride % 2 == 0) mask.set(i, 0.f);
      }
      for (int64_t d = 0; d < 4; ++d) write(call.v, call.dtype, 7 * 4 + d, 1e38f);
      const Answer want = answer(call);
      call.run(*table);
      const Difference d = compare(call, want);
      EXPECT_LE(d.relative_l2, 2e-6);
      EXPECT_LE(d.max_lse, 1e-5);
    }
  }
}

TEST(CpuFlash, NanOrPlusInfinityTermsMakeTheirRowNan) {
  std::mt19937 random(115);
  for (float bad : {kNan, kInf}) {
    for (MaskType type : {MaskType::f32, MaskType::f16, MaskType::bf16}) {
      Call call;
      call.seq_q = 60, call.seq_kv = 300;
      call.fill(random);
      call.add_mask(random, type, false, false, true, 0.2);
      MaskData& mask = call.masks[0];
      for (int64_t i : {3, 26, 59}) mask.set(i * mask.row_stride + 17 + i * 4, bad);
      expect_agreement(call, "row");
      Call keys;
      keys.seq_q = 20, keys.seq_kv = 300;
      keys.fill(random);
      keys.add_mask(random, type, false, false, false, 0.2);
      keys.masks[0].set(100, bad);
      expect_agreement(keys, "key");
    }
  }
}

TEST(CpuFlash, RowsWithoutKeysAreZero) {
  std::mt19937 random(116);
  Call call;
  call.seq_q = 80, call.seq_kv = 300;
  call.fill(random);
  call.add_mask(random, MaskType::boolean, false, false, true, 0.3);
  MaskData& mask = call.masks[0];
  for (int64_t i : {0, 5, 33, 79}) {
    for (int64_t j = 0; j < 300; ++j) mask.set(i * mask.row_stride + j, -kInf);
  }
  // One row sees its only key in the second block.
  for (int64_t j = 0; j < 300; ++j) mask.set(7 * mask.row_stride + j, j == 280 ? 0.f : -kInf);
  expect_agreement(call);
  call.run(*tables_here(FloatType::f32).back());
  EXPECT_EQ(call.lse[33], -kInf);
  EXPECT_EQ(read(call.out, call.dtype, 33 * 8), 0.f);
}

TEST(CpuFlash, LargeScoresAndScales) {
  std::mt19937 random(117);
  for (double factor : {0.01, 30.0, 1000.0}) {
    Call call;
    call.seq_q = 50, call.seq_kv = 700, call.head_dim = 64, call.dim_v = 64;
    call.scale = factor / 8;
    call.fill(random);
    expect_agreement(call, "factor " + std::to_string(factor));
  }
}

TEST(CpuFlash, LongSumsKeepTheirAccuracy) {
  std::mt19937 random(118);
  Call call;
  call.seq_q = 4, call.seq_kv = 32768, call.head_dim = 8, call.dim_v = 8;
  call.fill(random);
  // A common offset makes a single running sum lose bits.
  for (int64_t i = 0; i < call.seq_kv * 8; ++i) {
    write(call.v, call.dtype, i, 3.f + read(call.v, call.dtype, i));
  }
  const Answer want = answer(call);
  for (const KernelTable* table : tables_here(FloatType::f32)) {
    call.run(*table);
    const Difference d = compare(call, want);
    EXPECT_LE(d.relative_l2, 4e-7) << table->name;
    EXPECT_LE(d.max_lse, 2e-6) << table->name;
  }
}

// Scores that grow along the keys: running maxima move in every block, and within blocks.
TEST(CpuFlash, GrowingScores) {
  std::mt19937 random(119);
  for (const double step : {0.02, 0.3}) {
    for (const int64_t q : {1, 40}) {
      Call call;
      call.seq_q = q, call.seq_kv = 700, call.head_dim = 32, call.dim_v = 40;
      call.scale = 1.0;
      call.fill(random);
      for (int64_t j = 0; j < call.seq_kv; ++j) {
        write(call.k, call.dtype, j * 32, static_cast<float>(step * static_cast<double>(j)));
      }
      for (int64_t i = 0; i < q; ++i) {
        write(call.q, call.dtype, i * 32, i % 3 == 0 ? 1.f : i % 3 == 1 ? 0.f : -1.f);
      }
      expect_agreement(call, "step " + std::to_string(step) + " q" + std::to_string(q));
    }
  }
}

// One key has weight 1, so outputs are its values, rounded: of any bits, also subnormal ones.
TEST(CpuFlash, Bf16OutputsAreRoundedToNearestEven) {
  std::mt19937 random(124);
  Call call;
  call.out_dtype = FloatType::bf16;
  call.heads_q = call.heads_kv = 64;
  call.seq_q = 17, call.seq_kv = 1, call.head_dim = 8, call.dim_v = 64;
  call.fill(random);
  for (int64_t i = 0; i < 64 * 64; ++i) {
    // A third of them below 2^-126, and ties.
    const uint32_t bits = static_cast<uint32_t>(random());
    write(call.v, call.dtype, i,
          std::bit_cast<float>(i % 3 == 0   ? bits & 0x807fffffu
                               : i % 3 == 1 ? bits & ~0x7fffu
                                            : bits));
  }
  for (const KernelTable* table : tables_here(FloatType::f32)) {
    call.run(*table);
    for (int64_t row = 0; row < call.seq_q; ++row) {
      for (int64_t i = 0; i < 64 * 64; ++i) {
        const float want = from_bf16(to_bf16(read(call.v, call.dtype, i)));
        const float got = read(call.out, call.out_dtype, row * 64 * 64 + i);
        EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
            << table->name << " " << got << " for " << want;
      }
    }
  }
}

// Scores of 2^40: equal ones share their row, and larger ones have it alone.
TEST(CpuFlash, HugeScoresStayFinite) {
  std::mt19937 random(123);
  for (const FloatType dtype : {FloatType::f32, FloatType::bf16}) {
    for (const KernelTable* table : tables_here(dtype)) {
      for (const double scale : {0.3, 1.7}) {
        Call call;
        call.dtype = dtype;
        call.seq_q = 33, call.seq_kv = 300, call.head_dim = 8, call.dim_v = 8;
        call.scale = scale;
        call.fill(random);
        for (int64_t i = 0; i < call.seq_q * 8; ++i) {
          write(call.q, dtype, i, i % 8 == 0 ? 0x1p20f : 0.f);
        }
        for (int64_t j = 0; j < call.seq_kv * 8; ++j) {
          // 1.0078125 is the next bfloat16 after 1.
          const float key = j / 8 == 5 || j / 8 == 290 ? 1.0078125f : 1.f;
          write(call.k, dtype, j, j % 8 == 0 ? 0x1p20f * key : 0.f);
        }
        call.run(*table);
        for (int64_t i = 0; i < call.seq_q * 8; ++i) {
          const float want =
              (read(call.v, dtype, 5 * 8 + i % 8) + read(call.v, dtype, 290 * 8 + i % 8)) / 2;
          EXPECT_NEAR(read(call.out, call.out_dtype, i), want,
                      dtype == FloatType::f32 ? 1e-6 : 1e-2)
              << table->name << " scale " << scale << " at " << i;
        }
      }
    }
  }
}

// What a row gives does not depend on the rows beside it: on their queries, however large, or on
// what is hidden from them.
TEST(CpuFlash, RowsDoNotDependOnTheirNeighbours) {
  std::mt19937 random(120);
  for (const FloatType dtype : {FloatType::f32, FloatType::bf16}) {
    for (const KernelTable* table : tables_here(dtype)) {
      for (const float factor : {20.f, 0x1p60f, 0.f}) {
        Call call;
        call.dtype = dtype;
        call.seq_q = 64, call.seq_kv = 600, call.head_dim = 16, call.dim_v = 16;
        call.fill(random);
        call.run(*table);
        const std::vector<char> out = call.out;
        const std::vector<float> lse = call.lse;
        if (factor == 0.f) call.add_mask(random, MaskType::f32, false, false, true, 0.3);
        for (int64_t i = 0; i < 64; ++i) {
          if (i % 5 == 0) {
            if (factor != 0.f) continue;
            MaskData& mask = call.masks[0];
            for (int64_t j = 0; j < 600; ++j) mask.set(i * mask.row_stride + j, 0.f);
          } else if (factor != 0.f) {
            for (int64_t d = 0; d < 16; ++d) {
              write(call.q, dtype, i * 16 + d, factor * read(call.q, dtype, i * 16 + d));
            }
          }
        }
        call.run(*table);
        for (int64_t i = 0; i < 64; i += 5) {
          EXPECT_EQ(lse[static_cast<size_t>(i)], call.lse[static_cast<size_t>(i)]) << table->name;
          for (int64_t d = 0; d < 16; ++d) {
            EXPECT_EQ(read(out, call.out_dtype, i * 16 + d),
                      read(call.out, call.out_dtype, i * 16 + d))
                << table->name << " factor " << factor;
          }
        }
      }
    }
  }
}

// A list ends inside what products take at a time, and the keys after it hold NaN.
TEST(CpuFlash, KeysBehindAListMayHoldAnything) {
  std::mt19937 random(121);
  for (const int32_t listed : {0, 1}) {
    Call call;
    call.seq_q = 128, call.seq_kv = 256, call.head_dim = 16, call.dim_v = 12;
    call.fill(random);
    // Keys that no row sees move the others to odd places.
    call.add_mask(random, MaskType::boolean, false, false, false, 0.3);
    call.add_lists(random, 64, 64, 1.0, false, false);
    for (int64_t n = 0; n < call.query_blocks(); ++n) {
      call.counts[static_cast<size_t>(n)] = 1;
      call.indices[static_cast<size_t>(n * call.key_blocks())] = listed;
    }
    for (int64_t j = 0; j < call.seq_kv; ++j) {
      if (j / 64 == listed) continue;
      for (int64_t d = 0; d < 12; ++d) write(call.v, call.dtype, j * 12 + d, kNan);
    }
    expect_agreement(call, "block " + std::to_string(listed));
  }
}

TEST(CpuFlash, RandomCalls) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    Call call;
    call.dtype = static_cast<FloatType>(pick(0, 2));
    call.out_dtype = pick(0, 1) ? call.dtype : FloatType::f32;
    call.heads_kv = pick(1, 3), call.heads_q = call.heads_kv * pick(1, 3);
    call.batch = pick(1, 3), call.seq_q = pick(1, 200), call.seq_kv = pick(1, 600);
    call.head_dim = pick(1, 80), call.dim_v = pick(1, 80);
    call.heads_first = pick(0, 1), call.padding = pick(0, 1) * pick(0, 9);
    if (pick(0, 2) == 0) call.right = pick(0, 50);
    if (pick(0, 2) == 0) call.left = pick(0, 200);
    if (pick(0, 2) == 0) {
      for (int64_t b = 0; b < call.batch; ++b) {
        call.lengths.push_back(static_cast<int32_t>(pick(0, call.seq_kv)));
      }
    }
    call.fill(random);
    for (int64_t n = pick(0, 2); n > 0; --n) {
      call.add_mask(random, static_cast<MaskType>(pick(0, 6)), pick(0, 1), pick(0, 1), pick(0, 1),
                    0.3);
    }
    if (pick(0, 3) == 0) call.add_lists(random, 64, 64, 0.6, pick(0, 1), pick(0, 1));
    expect_agreement(call, "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace fovea::cpu_flash::testing

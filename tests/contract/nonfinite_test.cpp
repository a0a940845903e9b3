// Clause 7: hidden keys may hold NaN or Inf; visible ones change exactly the rows that see them.
#include <cmath>
#include <limits>

#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

FOVEA_CONTRACT_SUITE(ContractNonFinite);

// Ways to hide key 67 of 130 from all rows.
std::vector<Inputs> hiding(const Inputs& in) {
  const auto off = [](int64_t j) { return j == 67; };
  std::vector<Inputs> out(4, in);
  out[0].mask = Tensor(kBool, {1, 130}).fill([=](int64_t, int64_t j, int64_t, int64_t) {
    return off(j) ? 0.0 : 1.0;
  });
  out[1].mask = Tensor(kBool, {1, 1, 70, 130}).fill([=](int64_t, int64_t, int64_t, int64_t j) {
    return off(j) ? 0.0 : 1.0;
  });
  out[2].mask = Tensor(kF32, {1, 130}).fill([=](int64_t, int64_t j, int64_t, int64_t) {
    return off(j) ? -kInf : 0.0;
  });
  out[3].mask = Tensor(kBF16, {1, 1, 70, 130}).fill([=](int64_t, int64_t, int64_t, int64_t j) {
    return off(j) ? -kInf : 0.0;
  });
  return out;
}

TEST_P(ContractNonFinite, HiddenKeysMayHoldAnything) {
  for (DType dtype : kFloatTypes) {
    const Inputs clean = random_inputs(dtype, {.seq_q = 70, .seq_kv = 130});
    for (double bad : {kNaN, kInf, -kInf}) {
      Inputs dirty = clean;
      dirty.k = Tensor(dtype, {1, 130, 1, 8}).fill([&](int64_t, int64_t j, int64_t, int64_t d) {
        return j == 67 ? bad : clean.k.at(0, j, 0, d);
      });
      dirty.v = Tensor(dtype, {1, 130, 1, 8}).fill([&](int64_t, int64_t j, int64_t, int64_t d) {
        return j == 67 ? bad : clean.v.at(0, j, 0, d);
      });
      const std::vector<Inputs> with = hiding(dirty);
      const std::vector<Inputs> without = hiding(clean);
      for (size_t i = 0; i < with.size(); ++i) {
        SCOPED_TRACE("form " + std::to_string(i));
        expect_close(attend(GetParam(), with[i]), attend(GetParam(), without[i]));
      }
    }
  }
}

TEST_P(ContractNonFinite, KeysBehindTheLengthMayHoldAnything) {
  for (DType dtype : kFloatTypes)
    for (int64_t length : {0, 1, 63, 64, 65, 129}) {
      Inputs in = random_inputs(dtype, {.seq_q = 5, .seq_kv = 130});
      in.kv_lengths = Tensor(kI32, {1}).fill(static_cast<double>(length));
      const Answer clean = attend(GetParam(), in);
      for (int64_t j = length; j < 130; ++j)
        for (int64_t d = 0; d < 8; ++d) {
          in.k.set(kNaN, 0, j, 0, d);
          in.v.set(j % 2 == 0 ? kNaN : kInf, 0, j, 0, d);
        }
      expect_same_bits(clean, attend(GetParam(), in));
    }
}

TEST_P(ContractNonFinite, KeysOutsideCausalAndWindowMayHoldAnything) {
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, {.seq_q = 100, .seq_kv = 100});
    for (int64_t d = 0; d < 8; ++d) {
      in.k.set(kNaN, 0, 50, 0, d);
      in.v.set(kInf, 0, 50, 0, d);
    }
    CallOptions options;
    options.is_causal = true;
    options.window = {20, 0};
    const Answer answer = attend(GetParam(), in, options);
    if (!answer.ran) return;
    for (int64_t i = 0; i < 100; ++i) {
      const bool sees = i >= 50 && i - 20 <= 50;
      EXPECT_EQ(std::isnan(answer.out.at(0, i, 0, 1)), sees) << "row " << i;
      EXPECT_EQ(std::isnan(answer.lse.at(0, 0, i)), sees) << "row " << i;
    }
  }
}

TEST_P(ContractNonFinite, NanInQueryOrKeyMakesTheRowNan) {
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, {.seq_q = 70, .seq_kv = 130});
    in.q.set(kNaN, 0, 33, 0, 3);
    const Answer by_query = attend(GetParam(), in);
    if (!by_query.ran) return;
    for (int64_t i = 0; i < 70; ++i)
      for (int64_t d = 0; d < 8; ++d)
        EXPECT_EQ(std::isnan(by_query.out.at(0, i, 0, d)), i == 33) << i;
    EXPECT_TRUE(std::isnan(by_query.lse.at(0, 0, 33)));

    in = random_inputs(dtype, {.seq_q = 70, .seq_kv = 130});
    in.k.set(kNaN, 0, 99, 0, 0);
    in.mask = Tensor(kBool, {1, 1, 70, 130}).fill([](int64_t, int64_t, int64_t i, int64_t j) {
      return j == 99 ? (i % 2 == 0 ? 1.0 : 0.0) : 1.0;
    });
    const Answer by_key = attend(GetParam(), in);
    if (!by_key.ran) return;
    for (int64_t i = 0; i < 70; ++i)
      for (int64_t d = 0; d < 8; ++d)
        EXPECT_EQ(std::isnan(by_key.out.at(0, i, 0, d)), i % 2 == 0) << i;
  }
}

TEST_P(ContractNonFinite, NanAndInfinityInAVisibleValueStayInTheirDimension) {
  for (DType dtype : kFloatTypes)
    for (double bad : {kNaN, kInf, -kInf})
      for (bool bias : {false, true}) {
        Inputs in = random_inputs(dtype, {.seq_q = 70, .seq_kv = 130});
        const Inputs clean = in;
        in.v = Tensor(dtype, {1, 130, 1, 8}).fill([&](int64_t, int64_t j, int64_t, int64_t d) {
          return j == 99 && d == 2 ? bad : clean.v.at(0, j, 0, d);
        });
        const auto sees = [](int64_t i) { return i % 3 != 0; };
        in.mask = Tensor(bias ? kF32 : kBool, {1, 1, 70, 130});
        in.mask.fill([&](int64_t, int64_t, int64_t i, int64_t j) {
          const bool visible = j != 99 || sees(i);
          return bias ? (visible ? 0.0 : -kInf) : (visible ? 1.0 : 0.0);
        });
        const Answer answer = attend(GetParam(), in);
        if (!answer.ran) return;
        for (int64_t i = 0; i < 70; ++i) {
          EXPECT_TRUE(std::isfinite(answer.lse.at(0, 0, i)));
          for (int64_t d = 0; d < 8; ++d) {
            const double got = answer.out.at(0, i, 0, d);
            if (!sees(i) || d != 2)
              EXPECT_TRUE(std::isfinite(got)) << "row " << i << " dim " << d << ": " << got;
            else if (std::isnan(bad))
              EXPECT_TRUE(std::isnan(got)) << "row " << i;
            else
              EXPECT_EQ(got, bad) << "row " << i;
          }
        }
      }
}

TEST_P(ContractNonFinite, OtherRowsKeepTheirValues) {
  for (DType dtype : kFloatTypes) {
    Inputs in = random_inputs(dtype, {.seq_q = 70, .seq_kv = 130});
    in.mask = Tensor(kBool, {1, 1, 70, 130}).fill([](int64_t, int64_t, int64_t i, int64_t j) {
      return j == 99 && i != 12 ? 0.0 : 1.0;
    });
    const Answer clean = attend(GetParam(), in);
    in.k.set(kNaN, 0, 99, 0, 0);
    in.v.set(kInf, 0, 99, 0, 1);
    const Answer dirty = attend(GetParam(), in);
    if (!clean.ran || !dirty.ran) return;
    const double bound = 2 * relative_tolerance(dtype) * 4;
    for (int64_t i = 0; i < 70; ++i)
      for (int64_t d = 0; i != 12 && d < 8; ++d)
        EXPECT_NEAR(dirty.out.at(0, i, 0, d), clean.out.at(0, i, 0, d), bound) << i;
  }
}

TEST_P(ContractNonFinite, OverflowingSumsOfFiniteInputsDoNotAppear) {
  // Equal keys with large values: an unnormalised 16-bit sum would overflow, the result does not.
  Inputs in = index_inputs(kF16, {.seq_q = 2, .seq_kv = 4096});
  in.v.fill(100.0);
  expect_rows(attend(GetParam(), in), [](int64_t, int64_t, int64_t) { return 100.0; });
  in.v.fill(60000.0);
  expect_rows(attend(GetParam(), in), [](int64_t, int64_t, int64_t) { return 60000.0; });
}

}  // namespace
}  // namespace fovea::contract

#include "src/backends/cpu_flash/few_scores.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/backends/cpu_flash/agreement.hpp"

namespace fovea::cpu_flash::testing {
namespace {

// Calls that are computed row by row and the first ones that are not.
TEST(FewScores, AgreeWithTheOracle) {
  std::mt19937 random(114);
  for (int64_t q : {1, 2, 4, 16, 17})
    for (int64_t kv : {1, 2, 3, 5, 16, 17})
      for (int64_t d : {1, 7, 64, 128}) {
        Call call;
        call.seq_q = q, call.seq_kv = kv, call.head_dim = d, call.dim_v = 9;
        call.fill(random);
        const std::string what =
            "q" + std::to_string(q) + " kv" + std::to_string(kv) + " d" + std::to_string(d);
        expect_agreement(call, what);
        Call hidden = call;
        hidden.add_mask(random, MaskType::boolean, false, true, true, 0.4);
        expect_agreement(hidden, what + " mask");
        hidden.add_mask(random, MaskType::uint8, false, false, false, 0.3);
        hidden.add_mask(random, MaskType::f32, false, false, true, 0.1);
        expect_agreement(hidden, what + " masks");
        hidden = call;
        hidden.lengths = {static_cast<int32_t>(kv / 2)};
        expect_agreement(hidden, what + " length");
        hidden.add_lists(random, 64, 64, 0.5, false, true);
        expect_agreement(hidden, what + " lists");
        // In front of other keys and behind them; a row of scores of -inf alone.
        for (int64_t key : {int64_t{0}, kv - 1})
          for (const float x : {kNan, kInf, -kInf}) {
            call.fill(random);
            write(call.k, call.dtype, key * d, x);
            expect_agreement(call, what + " k");
            call.fill(random);
            write(call.v, call.dtype, key * 9 + 3, x);
            expect_agreement(call, what + " v");
          }
      }
}

}  // namespace
}  // namespace fovea::cpu_flash::testing

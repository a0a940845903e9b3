#include "src/select/plan_cache.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fovea {
namespace {

PlanKey key_of(const char* problem) {
  PlanKey key;
  key.problem = *parse_problem(problem);
  return key;
}

// A mask of 8 x 8 blocks whose row 0 reads only block n.
PlanKey mask_key(size_t n) {
  PlanKey key = key_of("bf16 b1 h1 s1024 d64");
  std::vector<uint8_t> on(64, 1);
  for (size_t i = 0; i < 8; ++i) on[i] = i == n % 8;
  on[8] = n < 8;
  key.block_mask.mask =
      std::make_shared<const BlockMask>(*BlockMask::from_matrix({1024, 1024}, on));
  return key;
}

PlannedCall call_of(uint64_t epoch) {
  PlannedCall call;
  call.receipt = std::make_shared<const Receipt>();
  call.epoch = epoch;
  return call;
}

TEST(PlanCache, FindsWhatWasInsertedInTheSameEpoch) {
  PlanCache cache;
  const PlanKey key = key_of("bf16 b1 h1 s64 d64");
  EXPECT_FALSE(cache.find(key, 3));
  const PlannedCall call = call_of(3);
  cache.insert(key, call);
  ASSERT_TRUE(cache.find(key, 3));
  EXPECT_EQ(cache.find(key, 3)->receipt, call.receipt);
  EXPECT_FALSE(cache.find(key, 4));
  PlanKey other = key;
  other.protected_kv_prefix = 1;
  EXPECT_FALSE(cache.find(other, 3));
}

TEST(PlanCache, MasksAreEqualByContents) {
  PlanCache cache;
  cache.insert(mask_key(2), call_of(1));
  EXPECT_TRUE(cache.find(mask_key(2), 1));
  EXPECT_FALSE(cache.find(mask_key(3), 1));
}

TEST(PlanCache, OfPlansWithAMaskTheEightUsedLastStay) {
  PlanCache cache;
  cache.insert(key_of("bf16 b1 h1 s64 d64"), call_of(1));
  for (size_t n = 0; n < 8; ++n) cache.insert(mask_key(n), call_of(1));
  EXPECT_TRUE(cache.find(mask_key(0), 1));  // now the youngest
  cache.insert(mask_key(8), call_of(1));
  EXPECT_TRUE(cache.find(mask_key(0), 1));
  EXPECT_FALSE(cache.find(mask_key(1), 1));
  EXPECT_TRUE(cache.find(mask_key(8), 1));
  EXPECT_TRUE(cache.find(key_of("bf16 b1 h1 s64 d64"), 1));
}

}  // namespace
}  // namespace fovea

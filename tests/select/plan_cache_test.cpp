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

// Whatever of the surroundings a plan depends on is part of its key.
TEST(PlanCache, CallsInOtherSurroundingsHavePlansOfTheirOwn) {
  const NormalForm form = *normalise(*parse_problem("bf16 b1 h1 s64 d64 kvlen=?"), {});
  using Change = void (*)(ExecutionContext&);
  const Change changes[] = {
      [](ExecutionContext& c) { c.mask_mode = MaskMode::arbitrary; },
      [](ExecutionContext& c) { c.packing_mode = PackingMode::packed_padding; },
      [](ExecutionContext& c) { c.kv_cache_dtype = "fp8"; },
      [](ExecutionContext& c) { c.host_documents = true; },
      [](ExecutionContext& c) { c.host_lengths = true; },
      [](ExecutionContext& c) { c.npu_attn_varlen = true; },
      [](ExecutionContext& c) { c.sparse_state = true; },
      [](ExecutionContext& c) { c.scheduled_dense = backend::FLASH_ATTN; },
      [](ExecutionContext& c) { c.prepared = "q_scale:f32[8]@cpu"; },
      [](ExecutionContext& c) { c.block_mask = mask_key(1).block_mask.mask; },
      [](ExecutionContext& c) { c.laser_input_scale = 0.5; },
      [](ExecutionContext& c) { c.protected_kv_prefix = 3; },
      [](ExecutionContext& c) { c.video_layout.emplace(); }};
  const PlanKey plain = plan_key(form, {});
  EXPECT_EQ(plain, plan_key(form, {}));
  for (size_t n = 0; n < std::size(changes); ++n) {
    ExecutionContext context;
    changes[n](context);
    EXPECT_NE(plan_key(form, context), plain) << n;
  }
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

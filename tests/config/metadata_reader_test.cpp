#include <gtest/gtest.h>

#include "fovea/metadata.hpp"

namespace fovea {
namespace {

TEST(MetadataReader, reads_every_key) {
  const auto read = parse_metadata(R"({
    "mask_mode": "padding",
    "valid_kv_length": 30,
    "packed_padding": {"q_length": 20, "kv_length": 30},
    "full_attn_spans": [[2, 5], [7, 9]],
    "query_ranges": [[0, 4, 10], [4, 6, 2]],
    "protected_kv_prefix": 3,
    "video_layout": {"prefix_length": 2, "grid": [3, 4, 5], "used_length": 62,
                     "spans": [{"begin": 2, "grid": [1, 2, 3], "role": "reference"}]},
    "kv_cache_dtype": "fp8",
    "laser_input_scale": 0.25,
    "npu_attn_varlen": true
  })");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  AttentionMetadata expected;
  expected.mask_mode = MaskMode::padding;
  expected.valid_kv_length = 30;
  expected.packed_padding = PackedPadding{20, 30};
  expected.full_attn_spans = std::vector<Span>{{2, 5}, {7, 9}};
  expected.query_ranges = {{0, 4, 10}, {4, 6, 2}};
  expected.protected_kv_prefix = 3;
  expected.video_layout =
      VideoLayout{2, VideoGrid{3, 4, 5}, 62, {{2, {1, 2, 3}, VideoRole::reference}}};
  expected.kv_cache_dtype = "fp8";
  expected.laser_input_scale = 0.25;
  expected.npu_attn_varlen = true;
  EXPECT_EQ(*read, expected);
}

TEST(MetadataReader, an_empty_map_says_nothing) {
  const auto read = parse_metadata("{}");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, AttentionMetadata());
}

TEST(MetadataReader, BugRow08_unknown_keys_are_errors) {
  const auto read = parse_metadata(R"({"attn_maks": 1, "valid_kv_lenght": 3})");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::invalid_config);
  ASSERT_EQ(read.error().reasons.size(), 2u);
  EXPECT_EQ(read.error().reasons[0].field, "attn_maks");
  EXPECT_NE(read.error().message.find("did you mean 'valid_kv_length'?"), std::string::npos)
      << read.error().message;
  const auto nested = parse_metadata(R"({"video_layout": {"grid": [1,2,3], "used": 6}})");
  ASSERT_FALSE(nested.has_value());
  EXPECT_EQ(nested.error().reasons[0].field, "video_layout.used");
}

// Words of other programs' metadata say where this one takes the same.
TEST(MetadataReader, keys_that_belong_elsewhere_say_where) {
  const std::pair<const char*, const char*> cases[] = {
      {"attn_mask", "the mask is a tensor of the call"},
      {"attention_mask_mode", "spelt mask_mode here"},
      {"cu_seqlens_k", "boundaries are tensors of the call"},
      {"max_seqlen_q", "the longest documents are options of the call"},
      {"joint_query", "joint tensors are tensors"},
      {"joint_strategy", "joint tensors are tensors"}};
  for (const auto& [key, place] : cases) {
    const auto read = parse_metadata(std::string("{\"") + key + "\": 1}");
    ASSERT_FALSE(read.has_value()) << key;
    ASSERT_EQ(read.error().reasons.size(), 1U);
    const Reason& reason = read.error().reasons[0];
    EXPECT_EQ(reason.field, key);
    EXPECT_EQ(reason.remedy.find(place), 0U) << reason.remedy;
    EXPECT_NE(reason.accepted.find("protected_kv_prefix"), std::string::npos) << reason.accepted;
    EXPECT_NE(read.error().message.find(place), std::string::npos) << read.error().message;
  }
}

TEST(MetadataReader, values_of_another_type_are_errors) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "the top level"},
      {R"({"mask_mode": "unknown"})", "mask_mode"},
      {R"({"mask_mode": true})", "mask_mode"},
      {R"({"valid_kv_length": 2.5})", "valid_kv_length"},
      {R"({"valid_kv_length": true})", "valid_kv_length"},
      {R"({"packed_padding": [3, 4]})", "packed_padding"},
      {R"({"packed_padding": {"q_length": 3}})", "packed_padding"},
      {R"({"full_attn_spans": 3})", "full_attn_spans"},
      {R"({"full_attn_spans": [[1, 2, 3]]})", "full_attn_spans[0]"},
      {R"({"query_ranges": [[1, 2]]})", "query_ranges[0]"},
      {R"({"video_layout": {"grid": [1, 2]}})", "video_layout.grid"},
      {R"({"video_layout": {"spans": [{"role": "source"}]}})", "video_layout.spans[0].role"},
      {R"({"kv_cache_dtype": 8})", "kv_cache_dtype"},
      {R"({"laser_input_scale": "1"})", "laser_input_scale"},
      {R"({"npu_attn_varlen": 1})", "npu_attn_varlen"}};
  for (const auto& [json, field] : cases) {
    const auto read = parse_metadata(json);
    ASSERT_FALSE(read.has_value()) << json;
    ASSERT_FALSE(read.error().reasons.empty()) << json;
    EXPECT_EQ(read.error().reasons[0].field, field) << json;
  }
  EXPECT_FALSE(parse_metadata("{").has_value());
}

}  // namespace
}  // namespace fovea

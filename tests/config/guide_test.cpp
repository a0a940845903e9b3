#include "src/config/guide.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

TEST(Guide, its_form_means_a_default) {
  EXPECT_EQ(parsed(R"({"default": {"backend": "FLASH_ATTN_2", "scale": 0.5, "is_causal": true}})"),
            parsed(R"({"attn_impl": "FLASH_ATTN_2", "scale": 0.5, "is_causal": true,
                       "dropout": 0.0, "sparse_config": null})"));
  EXPECT_EQ(parsed(R"({"default": "FA2", "per_role": {"cross": "FA3"}})"),
            parsed(R"({"attn_impl": "FA2", "per_role": {"cross": "FA3"}})"));
}

TEST(Guide, an_absent_implementation_is_torch_sdpa) {
  EXPECT_EQ(backend::TORCH_SDPA, parsed(R"({"scale": 0.5})").default_spec->backend);
  EXPECT_EQ(backend::TORCH_SDPA, parsed(R"({"is_causal": false})").default_spec->backend);
  EXPECT_EQ(backend::TORCH_SDPA,
            parsed(R"({"sparse_config": {"sparse_impl": "none"}})").default_spec->backend);
  EXPECT_EQ(std::nullopt, parsed("{}").default_spec) << "nothing in it: the platform's choice";
  EXPECT_EQ(std::nullopt, parsed(R"({"attn_impl": null, "scale": null})").default_spec);
}

TEST(Guide, a_sparse_config_becomes_the_block_of_its_backend) {
  const auto radial = parsed_default(R"({"default": {"attn_impl": "RADIAL_ATTN", "sparse_config": {
      "sparse_impl": "radial", "dense_timesteps": 12, "dense_layers": 2, "decay_factor": 0.5,
      "block_size": 64, "use_sage_attention": true}}})");
  const RadialOptions radial_options{12, 2, 0.5, 64, "radial", backend::FLASH_ATTN, true};
  EXPECT_EQ(radial_options, radial.radial);
  EXPECT_EQ(std::nullopt, radial.local_sparse);
  EXPECT_EQ(Strictness::require, radial.strictness) << "it names the sparse backend";
  EXPECT_FALSE(radial.from_factory);

  const auto local = parsed_default(R"({"attn_impl": "LOCAL_SPARSE_ATTN", "sparse_config": {
      "dense_timesteps": 1, "local_window_size": 4}})");
  const LocalSparseOptions local_options{1, 0, 4, 128, std::nullopt, backend::FLASH_ATTN, false};
  EXPECT_EQ(local_options, local.local_sparse);
}

TEST(Guide, contradictions_are_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"attn_impl": "FLASH_ATTN_2", "sparse_config": {"sparse_impl": "radial"}})",
       "sparse_config.sparse_impl: radial contradicts attn_impl FLASH_ATTN_2; set attn_impl to "
       "RADIAL_ATTN or sparse_impl to none"},
      {R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"sparse_impl": "local"}})",
       "sparse_config.sparse_impl: local contradicts attn_impl RADIAL_ATTN; set attn_impl to "
       "LOCAL_SPARSE_ATTN or sparse_impl to radial"},
      {R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"sparse_impl": "none"}})",
       "sparse_config.sparse_impl: none contradicts attn_impl RADIAL_ATTN; set attn_impl to a "
       "dense one or sparse_impl to radial"},
      {R"({"sparse_config": {"sparse_impl": "local"}})",
       "sparse_config.sparse_impl: local contradicts attn_impl TORCH_SDPA (what an absent "
       "attn_impl means)"},
      {R"({"attn_impl": "RADIAL_ATTN"})",
       "attn_impl: RADIAL_ATTN needs a sparse_config; add sparse_config {\"sparse_impl\": "
       "\"radial\"}"},
      {R"({"attn_impl": "LOCAL_SPARSE_ATTN"})",
       "attn_impl: LOCAL_SPARSE_ATTN needs a sparse_config"},
      {R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"sparse_impl": "ring"}})",
       "sparse_config.sparse_impl: expected one of none, radial, local, found the string 'ring'"},
      {R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"decay_factor": 0}})",
       "sparse_config.decay_factor: expected a finite number above 0, found 0"},
      {R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"dense_layers": -1}})",
       "sparse_config.dense_layers: expected an integer of at least 0, found -1"},
      {R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"block_size": 96}})",
       "sparse_config.block_size: expected 64 or 128, found 96"},
      {R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"decay": 1}})",
       "sparse_config.decay: unknown key; known here: sparse_impl, dense_timesteps"},
      {R"({"attn_impl": "FA2", "dropout": 0.1})", "dropout: expected 0, found 0.1"},
      {R"({"attn_impl": "FA2", "dropout": -0.0001})", "dropout: expected 0, found -0.0001"},
      {R"({"attn_impl": "FA2", "scale": 0})", "scale: expected a finite number above 0, found 0"},
      {R"({"attn_impl": "FA2", "is_causal": 1})", "is_causal: expected true or false, found 1"},
      {R"({"attn_impl": "FA2", "backend": "FA2"})", "backend: stands inside an entry"},
      {R"({"attn_impl": "FA2", "default": "FA3"})",
       "attn_impl: describes the default, and so does default; keep one of them"},
      {R"({"default": {"attn_impl": "FA2", "backend": "FA3"}})",
       "default.attn_impl: means the same as backend; keep one of them"},
      {R"({"attn_impl": "RADIAL_ATTN", "sparse_config": "radial"})",
       "sparse_config: expected a map with keys among sparse_impl"},
      {R"({"default": {"backend": "RADIAL_ATTN", "radial": {}, "sparse_config": {}}})",
       "default.sparse_config: says the same as radial; keep one of them"},
  };
  for (const auto& [text, expected] : cases) EXPECT_HAS(refused(text), expected) << text;
}

TEST(Guide, a_sparse_backend_under_its_own_name_needs_no_sparse_config) {
  EXPECT_EQ(RadialOptions{}, parsed_default(R"({"default": {"backend": "RADIAL_ATTN"}})").radial);
  EXPECT_EQ(40, parsed_default(R"({"default": {"attn_impl": "RADIAL_ATTN", "radial": {}}})")
                    .radial->dense_timesteps);
}

TEST(Guide, the_sparse_factories_make_preferences) {
  SparseAttentionConfig sparse;
  sparse.dense_timesteps = 5;
  sparse.decay_factor = 0.25;
  const auto radial = AttentionConfig::radial_attention(sparse);
  ASSERT_TRUE(radial) << radial.error().message;
  const AttentionSpec& spec = *radial->default_spec;
  EXPECT_EQ(backend::RADIAL_ATTN, spec.backend);
  EXPECT_EQ(Strictness::prefer, spec.strictness);
  EXPECT_TRUE(spec.from_factory);
  EXPECT_EQ(5, spec.radial->dense_timesteps);
  EXPECT_EQ(0.25, spec.radial->decay_factor);
  EXPECT_EQ(backend::FLASH_ATTN, spec.radial->dense_backend);
  EXPECT_TRUE(validate(spec));
  EXPECT_EQ(*radial, parsed(to_json(*radial)));

  sparse.local_window_size = 3;
  const auto local = AttentionConfig::local_sparse_attention(sparse);
  ASSERT_TRUE(local);
  EXPECT_EQ(3, local->default_spec->local_sparse->local_window_size);
  EXPECT_TRUE(local->default_spec->from_factory);
}

TEST(Guide, the_factories_check_their_arguments) {
  const auto fault = [](SparseAttentionConfig sparse) {
    const auto config = AttentionConfig::radial_attention(sparse);
    return config ? std::string("accepted") : config.error().message;
  };
  SparseAttentionConfig sparse;
  EXPECT_EQ("accepted", fault(sparse));
  sparse.sparse_impl = "radial";
  EXPECT_EQ("accepted", fault(sparse));
  sparse.sparse_impl = "local";
  EXPECT_HAS(fault(sparse),
             "radial_attention: sparse_impl: local contradicts attn_impl RADIAL_ATTN");
  sparse.sparse_impl = "stripes";
  EXPECT_HAS(fault(sparse), "sparse_impl: expected one of none, radial, local");
  sparse = {};
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    sparse.decay_factor = bad;
    EXPECT_HAS(fault(sparse), "radial_attention: decay_factor: expected a finite number above 0");
  }
  sparse = {};
  sparse.dense_timesteps = -1;
  sparse.dense_layers = -2;
  sparse.block_size = 32;
  const auto message = fault(sparse);
  EXPECT_HAS(message, "3 problems");
  EXPECT_HAS(message, "dense_timesteps: expected an integer of at least 0, found -1");
  EXPECT_HAS(message, "dense_layers: expected an integer of at least 0, found -2");
  EXPECT_HAS(message, "block_size: expected 64 or 128, found 32");
}

TEST(Guide, its_struct_means_what_its_text_means) {
  GuideConfig guide;
  EXPECT_EQ(parsed(R"({"default": "TORCH_SDPA"})"), *AttentionConfig::from_guide(guide));
  guide.attn_impl = AttnImplType::FLASH_ATTN_3;
  guide.scale = 0.25;
  guide.is_causal = true;
  EXPECT_EQ(parsed(R"({"attn_impl": "FA3", "scale": 0.25, "is_causal": true})"),
            *AttentionConfig::from_guide(guide));
  guide = {};
  guide.attn_impl = AttnImplType::RADIAL_ATTN;
  guide.sparse_config.emplace().dense_timesteps = 7;
  EXPECT_EQ(parsed(R"({"attn_impl": "RADIAL_ATTN", "sparse_config": {"dense_timesteps": 7}})"),
            *AttentionConfig::from_guide(guide));
}

TEST(Guide, its_struct_is_checked) {
  const auto fault = [](const GuideConfig& guide) {
    const auto config = AttentionConfig::from_guide(guide);
    return config ? std::string("accepted") : config.error().message;
  };
  GuideConfig guide;
  guide.attn_impl = AttnImplType::RADIAL_ATTN;
  EXPECT_HAS(fault(guide), "attention config: attn_impl: RADIAL_ATTN needs a sparse_config");
  guide.sparse_config.emplace().sparse_impl = "local";
  EXPECT_HAS(fault(guide), "sparse_config.sparse_impl: local contradicts attn_impl RADIAL_ATTN");
  guide.sparse_config->sparse_impl.reset();
  guide.sparse_config->block_size = 32;
  guide.dropout = 0.1;
  EXPECT_HAS(fault(guide),
             "2 problems\n  dropout: expected 0, found 0.1\n  "
             "sparse_config.block_size: expected 64 or 128, found 32");
  guide = {};
  guide.dropout = std::numeric_limits<double>::quiet_NaN();
  EXPECT_HAS(fault(guide), "dropout: expected 0, found nan");
  guide = {};
  guide.scale = -1;
  EXPECT_HAS(fault(guide), "scale: expected a finite number above 0");
}

TEST(Guide, the_dense_factory_refuses_sparse_backends) {
  const auto dense = AttentionConfig::dense_attention(AttnImplType::SAGE_ATTN_2_8_8_SM90);
  ASSERT_TRUE(dense);
  EXPECT_EQ(parsed(R"({"default": "SAGE_ATTN_2_8_8_SM90"})"), *dense);
  EXPECT_EQ("dense_attention: RADIAL_ATTN is sparse; use radial_attention",
            AttentionConfig::dense_attention(AttnImplType::RADIAL_ATTN).error().message);
  EXPECT_EQ("dense_attention: LOCAL_SPARSE_ATTN is sparse; use local_sparse_attention",
            AttentionConfig::dense_attention(AttnImplType::LOCAL_SPARSE_ATTN).error().message);
  EXPECT_FALSE(AttentionConfig::dense_attention(BackendName(65000)));
}

}  // namespace
}  // namespace fovea

#include "src/config/spec_reader.hpp"

#include <gtest/gtest.h>

#include "src/config/fields.hpp"
#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

TEST(SpecReader, a_name_a_map_and_a_typed_spec_are_equal) {
  AttentionSpec typed;
  typed.backend = backend::FLASH_ATTN_3;
  EXPECT_EQ(typed, parsed_default(R"({"default": "FLASH_ATTN_3"})"));
  EXPECT_EQ(typed, parsed_default(R"({"default": " fa3 "})"));
  EXPECT_EQ(typed, parsed_default(R"({"default": {"backend": "FLASH_ATTN_3"}})"));
  EXPECT_EQ(typed, parsed_default(R"({"default": {"attn_impl": "fa3"}})"));
}

TEST(SpecReader, both_vocabularies_give_the_same_names) {
  for (const BackendNameInfo& row : backend_names()) {
    const std::string canonical(row.canonical);
    const auto spec = parsed_default(R"({"default": ")" + canonical + R"("})");
    EXPECT_EQ(row.name, spec.backend);
    for (const std::string_view alias : row.aliases) {
      EXPECT_EQ(spec, parsed_default(R"({"default": ")" + std::string(alias) + R"("})")) << alias;
    }
  }
  EXPECT_EQ(AttnImplType::TORCH_CUDNN, parsed_default(R"({"default": "TORCH_CUDNN"})").backend);
  EXPECT_EQ(AttnImplType::RADIAL_ATTN, parsed_default(R"({"default": "RADIAL_ATTN"})").backend);
}

TEST(SpecReader, every_plain_key_is_read) {
  const auto spec = parsed_default(R"({"default": {"backend": "FA2", "strictness": "Prefer",
      "provider": "FOVEA", "allow_copy": true, "scale": 0.125, "is_causal": true, "dropout": 0}})");
  EXPECT_EQ(Strictness::prefer, spec.strictness);
  EXPECT_EQ("fovea", spec.provider);
  EXPECT_TRUE(spec.allow_copy);
  EXPECT_EQ(0.125, spec.scale);
  EXPECT_EQ(true, spec.is_causal);
  const auto plain = parsed_default(R"({"default": "FA2"})");
  EXPECT_EQ(Strictness::require, plain.strictness) << "an explicit choice runs or refuses";
  EXPECT_FALSE(plain.allow_copy);
  EXPECT_EQ(std::nullopt, plain.scale);
  EXPECT_EQ(std::nullopt, plain.is_causal);
}

TEST(SpecReader, null_and_auto_leave_a_key_unset) {
  const auto spec = parsed_default(R"({"default": {"backend": "TRTLLM_ATTN", "provider": "auto",
      "scale": null, "strictness": null, "skip_softmax": "auto",
      "quant": {"dtype_qk": "int8", "dtype_vo": "Auto", "q_block_size": null}}})");
  AttentionSpec expected;
  expected.backend = backend::TRTLLM_ATTN;
  expected.quant.emplace().dtype_qk = "int8";
  EXPECT_EQ(expected, spec);
}

TEST(SpecReader, choosing_an_opt_in_backend_gives_its_block) {
  EXPECT_EQ(BlockSparseOptions{}, parsed_default(R"({"default": "RAINFUSION_ATTN"})").block_sparse);
  EXPECT_EQ(BlockSparseOptions{},
            parsed_default(R"({"default": {"backend": "SPARGE_ATTN", "block_sparse": {}}})")
                .block_sparse);
  EXPECT_EQ(RadialOptions{}, parsed_default(R"({"default": "RADIAL_ATTN"})").radial);
  EXPECT_EQ(LocalSparseOptions{},
            parsed_default(R"({"default": "LOCAL_SPARSE_ATTN"})").local_sparse);
  EXPECT_EQ("fp8", parsed_default(R"({"default": "AITER_QUANT_ATTN"})").aiter_quant->format);
  EXPECT_EQ(std::nullopt, parsed_default(R"({"default": "TRTLLM_ATTN"})").quant);
  EXPECT_EQ(std::nullopt, parsed_default(R"({"default": "TRTLLM_ATTN"})").skip_softmax);
}

TEST(SpecReader, blocks_are_read_whole) {
  const auto spec = parsed_default(R"({"default": {"backend": "RAINFUSION_ATTN", "block_sparse": {
      "sparsity": 0.5, "start_step": 2, "end_step": 3, "precision": "MIX",
      "skip_layers": "0-2,38"}}})");
  const BlockSparseOptions expected{0.5, 2, 3, "mix", {0, 1, 2, 38}, "block_topk", 128};
  EXPECT_EQ(expected, spec.block_sparse);
  const auto radial = parsed_default(R"({"default": {"backend": "RADIAL_ATTN", "radial": {
      "dense_timesteps": 12, "dense_layers": 1, "decay_factor": 0.2, "block_size": 64,
      "rule": "authors", "dense_backend": "sdpa", "use_sage_attention": true}}})");
  const RadialOptions options{12, 1, 0.2, 64, "authors", backend::TORCH_SDPA, true};
  EXPECT_EQ(options, radial.radial);
}

TEST(SpecReader, a_spec_needs_a_backend) {
  EXPECT_HAS(refused(R"({"default": {"allow_copy": true}})"),
             "default: names no backend; add \"backend\"");
  EXPECT_HAS(refused(R"({"default": {}})"), "default: names no backend");
  EXPECT_HAS(refused(R"({"per_role": {"self": {"strictness": "prefer"}}})"),
             "per_role.self: names no backend");
}

TEST(SpecReader, a_misspelt_key_lists_what_exists_and_suggests) {
  const auto message = refused(R"({"default": {"backend": "FA3", "strictnes": "prefer"}})");
  EXPECT_HAS(message, "config: default.strictnes: unknown key; known here: backend, strictness, ");
  EXPECT_HAS(message, "did you mean 'strictness'?");
  EXPECT_HAS(refused(R"({"default": {"backend": "TRTLLM_ATTN", "quant": {"dtyp_qk": "int8"}}})"),
             "default.quant.dtyp_qk: unknown key; known here: dtype_qk, dtype_vo, q_block_size, "
             "k_block_size, flashinfer_backend; did you mean 'dtype_qk'?");
}

TEST(SpecReader, all_problems_are_reported_together) {
  const auto message = refused(R"({"default": {"backend": "FLASH_ATTN", "allow_copy": 1,
      "quant": {"q_block_size": true, "typo": 1}, "scale": -1},
      "per_role": {"a": {"backend": "NOPE"}, "b": 3}})");
  EXPECT_HAS(message, "config: 7 problems\n");
  for (const char* piece : {"\n  default.allow_copy: expected true or false, found 1",
                            "\n  default.quant.q_block_size: expected 1, 4 or 16, found true",
                            "\n  default.quant.typo: unknown key",
                            "\n  default.scale: expected a finite number above 0, found -1",
                            "\n  default.quant: FLASH_ATTN does not take quant",
                            "\n  per_role.a.backend: backend 'NOPE' is not known",
                            "\n  per_role.b: expected a backend name or a map, found 3"}) {
    EXPECT_HAS(message, piece);
  }
}

TEST(SpecReader, a_long_list_of_problems_is_cut) {
  std::string text = R"({"default": {"backend": "FA3")";
  for (int i = 0; i < 30; ++i) text += ", \"zz" + std::to_string(i) + "\": 1";
  const auto message = refused(text + "}}");
  EXPECT_HAS(message, "config: 30 problems");
  EXPECT_HAS(message, "\n  and 10 more");
}

TEST(SpecReader, settings_are_not_lost_with_a_removed_entry) {
  EXPECT_HAS(refused(R"({"default": {"backend": "auto", "quant": {}}})"),
             "default.quant: is set, but backend is auto, which removes this entry");
  EXPECT_HAS(refused(R"({"default": {"backend": null, "scale": 0.5}})"), "default.scale: is set");
  EXPECT_EQ(std::nullopt,
            parsed(R"({"default": {"backend": "auto", "strictness": "require"}})").default_spec);
}

TEST(SpecReader, block_of_the_wrong_type_says_what_it_holds) {
  EXPECT_HAS(refused(R"({"default": {"backend": "RADIAL_ATTN", "radial": 3}})"),
             "default.radial: expected a map with keys among dense_timesteps, dense_layers, "
             "decay_factor, block_size, rule, dense_backend, use_sage_attention, found 3");
}

}  // namespace
}  // namespace fovea
